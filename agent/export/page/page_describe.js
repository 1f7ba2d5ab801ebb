/* What is said of the profile and of a frame, in words. */

function timeText(ms) {
    return new Date(ms).toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

function factsOf(profile) {
    const facts = [`pid ${profile.pid}`, timeText(profile.start), valueText(profile.duration * 1e6, "nanoseconds")];
    if (profile.service && profile.service !== profile.program) {
        facts.unshift(profile.service);
    }
    return facts.join(" \u00b7 ");
}

/* A frame in the parts that tooltip and status line show. */
function frameParts(tree, node, zoom, unit) {
    const func = tree.functions[tree.func[node]];
    const shares = [`${shareText(tree.total[node], tree.total[0])} of all`];
    if (zoom > 0 && tree.depth[node] >= tree.depth[zoom]) {
        shares.push(`${shareText(tree.total[node], tree.total[zoom])} of zoom`);
    }
    return {
        name: func.name,
        place: placeText(func),
        value: [valueText(tree.total[node], unit), ...shares].join(" \u00b7 "),
        self: `self ${valueText(tree.self[node], unit)}`,
    };
}

function summaryOf(tree, type, whole) {
    const all = tree.total[0];
    if (tree.shrunk < 0) {
        return `${type.name}: growth of ${valueText(all, type.unit)} is drawn; ` +
            `${valueText(tree.shrunk, type.unit)}, what shrank, is in the table alone`;
    }
    const part = whole > all ? ` \u00b7 ${shareText(all, whole)} of ${valueText(whole, type.unit)}` : "";
    return `${type.name} ${valueText(all, type.unit)}${part}`;
}

function emptyText(profile, tree, type) {
    if (profile.rows.length === 0) {
        return "Nothing was recorded in this window.";
    }
    if (tree.shrunk < 0) {
        return "Nothing grew: what shrank is in the table.";
    }
    return `There is no ${type.name} here: choose another value or thread.`;
}

function matchedText(tree, search, zoom) {
    if (search.bad) {
        return "not a regular expression";
    }
    if (search.frames === 0) {
        return "not found";
    }
    const shares = [shareText(search.total, tree.total[0])];
    if (zoom > 0) {
        shares.push(`${shareText(search.zoomed, tree.total[zoom])} of zoom`);
    }
    return shares.join(" \u00b7 ");
}

/* Modules by what their functions took themselves, the largest first. */
function modulesBySelf(tree) {
    const sums = new Map();
    tree.sums.self.forEach((value, func) => {
        const { module } = tree.functions[func];
        if (module !== "" && value > 0) {
            sums.set(module, (sums.get(module) ?? 0) + value);
        }
    });
    return [...sums].sort((a, b) => b[1] - a[1]);
}

/* Threads to choose from, the largest first: each name once, and those that share it one by one. */
function threadChoices(profile, type) {
    const sums = new Float64Array(profile.threads.length);
    for (let at = 0; at < profile.rows.length; at += profile.stride) {
        if (profile.rows[at + 1] >= 0) {
            sums[profile.rows[at + 1]] += Math.abs(profile.rows[at + 3 + type]);
        }
    }
    const names = new Map();
    profile.threads.forEach((thread, i) => {
        const known = names.get(thread.name) ?? { sum: 0, members: [] };
        known.sum += sums[i];
        known.members.push(i);
        names.set(thread.name, known);
    });
    const choices = [];
    for (const [name, { members }] of [...names].sort((a, b) => b[1].sum - a[1].sum)) {
        if (members.length > 1) {
            choices.push({ text: `${name} (${members.length} threads)`, members });
        }
        for (const i of members.sort((a, b) => sums[b] - sums[a])) {
            choices.push({ text: `${name} (${profile.threads[i].tid})`, members: [i] });
        }
    }
    return choices;
}
