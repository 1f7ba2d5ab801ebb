/* The profile as the file holds it, and the trees that are made of it. Pure functions: nothing here knows
 * of the document.
 *
 * A tree is columns, one entry a node. Nodes are numbered level by level and from left to right, so that
 * a level is a range of numbers (levels[d] to levels[d + 1]) whose starts and ends rise: what is at a place
 * is found by halving. */

/* Characters without a picture of their own, and those that turn the text around them, as escapes: a name
 * is shown as what it is. */
function shown(text) {
    return String(text).replace(/[\p{C}\p{Zl}\p{Zp}\u115f\u1160\u3164]/gu,
        (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
}

function readProfile(text) {
    const raw = JSON.parse(text);
    if (raw.version !== 1) {
        throw new Error(`this page shows data of version 1, not ${raw.version}`);
    }
    const modules = raw.modules.map(shown);
    const files = raw.files.map(shown);
    return {
        program: shown(raw.program),
        pid: raw.pid,
        family: shown(raw.family),
        service: shown(raw.service ?? ""),
        start: raw.start_ms,
        duration: raw.duration_ms,
        types: raw.types.map((each) => ({ name: shown(each.type), unit: each.unit })),
        first: raw.default ?? 0,
        comments: (raw.comments ?? []).map(shown),
        frames: raw.frames.map(([name, module, file, line, inlined]) => ({
            name: shown(name),
            module: modules[module] ?? "",
            file: files[file] ?? "",
            line: line ?? 0,
            inlined: inlined === 1,
        })),
        hasLines: files.length > 0,
        nodes: raw.nodes,
        threads: raw.threads.map(([name, tid]) => ({ name: shown(name), tid })),
        labels: raw.labels.map((set) => set.map(([key, value]) => [shown(key), shown(value)])),
        rows: raw.rows,
        stride: 3 + raw.types.length,
    };
}

/* Frames are one function when name and module are the same; with byLine, also file and line. */
function functionsOf(profile, byLine) {
    const list = [];
    const numbers = new Map();
    const of = new Int32Array(profile.frames.length);
    profile.frames.forEach((frame, i) => {
        const place = byLine ? `\n${frame.file}\n${frame.line}` : "";
        const key = `${frame.name}\n${frame.module}${place}`;
        let number = numbers.get(key);
        if (number === undefined) {
            number = list.length;
            numbers.set(key, number);
            list.push({ ...frame, key });
        }
        const known = list[number];
        /* Of several places that are one function, only what they have in common is told. */
        known.file = known.file === frame.file ? known.file : "";
        known.line = known.line === frame.line ? known.line : 0;
        known.inlined = known.inlined && frame.inlined;
        of[i] = number;
    });
    return { list, of };
}

/* How rows are grouped: by "" (not), "thread", "tid" or "label:KEY". */
function grouping(profile, by) {
    const names = [];
    const numbers = new Map();
    const numberOf = (name) => {
        if (!numbers.has(name)) {
            numbers.set(name, names.length);
            names.push(name);
        }
        return numbers.get(name);
    };
    if (by === "") {
        return { names: [], of: () => 0 };
    }
    if (by === "thread" || by === "tid") {
        const of = profile.threads.map((thread) =>
            numberOf(by === "tid" ? `${thread.name} (${thread.tid})` : thread.name));
        return { names, of: (thread) => of[thread] ?? numberOf("(no thread)") };
    }
    const key = by.slice("label:".length);
    const of = profile.labels.map((set) => {
        const found = set.find((each) => each[0] === key);
        return numberOf(found ? `${key}: ${found[1]}` : `(no ${key})`);
    });
    return { names, of: (thread, labels) => of[labels] ?? numberOf(`(no ${key})`) };
}

function labelKeys(profile) {
    return [...new Set(profile.labels.flatMap((set) => set.map((each) => each[0])))];
}

/* A tree while it grows: parents come before their children. */
class GrowingTree {
    constructor() {
        this.parent = [-1];
        this.func = [-1];
        this.value = [0];
        this.slots = new Int32Array(1 << 12);
    }

    slotOf(parent, func) {
        const mask = this.slots.length - 1;
        let slot = (Math.imul(parent, 0x9e3779b1) ^ Math.imul(func, 0x85ebca6b)) >>> 0;
        for (slot ^= slot >>> 15; ; slot++) {
            const node = this.slots[slot & mask];
            if (node === 0 || (this.parent[node] === parent && this.func[node] === func)) {
                return slot & mask;
            }
        }
    }

    child(parent, func) {
        const slot = this.slotOf(parent, func);
        if (this.slots[slot] !== 0) {
            return this.slots[slot];
        }
        const node = this.parent.length;
        this.parent.push(parent);
        this.func.push(func);
        this.value.push(0);
        this.slots[slot] = node;
        if (node * 2 > this.slots.length) {
            this.slots = new Int32Array(this.slots.length * 2);
            for (let i = 1; i <= node; i++) {
                this.slots[this.slotOf(this.parent[i], this.func[i])] = i;
            }
        }
        return node;
    }
}

/* The rows of one thread name or id (or of all), by groups. */
function rowsByGroup(profile, groups, allowed) {
    const { rows, stride } = profile;
    const lists = [];
    for (let at = 0; at < rows.length; at += stride) {
        if (!allowed || allowed[rows[at + 1]]) {
            const group = groups.of(rows[at + 1], rows[at + 2]);
            (lists[group] ??= []).push(at);
        }
    }
    return lists;
}

function growTree(profile, functions, groups, type, allowed) {
    const tree = new GrowingTree();
    const { nodes, rows } = profile;
    const count = nodes.length / 2;
    const placed = new Int32Array(count);
    const placedFor = new Int32Array(count).fill(-1);
    const way = [];
    rowsByGroup(profile, groups, allowed).forEach((list, group) => {
        const top = groups.names.length ? tree.child(0, functions.list.length + group) : 0;
        for (const at of list) {
            let node = rows[at];
            while (node >= 0 && placedFor[node] !== group) {
                way.push(node);
                node = nodes[2 * node];
            }
            let place = node < 0 ? top : placed[node];
            while (way.length) {
                node = way.pop();
                place = tree.child(place, functions.of[nodes[2 * node + 1]]);
                placed[node] = place;
                placedFor[node] = group;
            }
            tree.value[place] += rows[at + 3 + type];
        }
    });
    return tree;
}

/* Self and total of each function; in a recursion, what is below counts once. */
function sumFunctions(grown, count) {
    const self = new Float64Array(count);
    const total = new Float64Array(count);
    const seenAt = new Int32Array(count).fill(-1);
    for (let node = 0; node < grown.parent.length; node++) {
        const value = grown.value[node];
        if (value === 0) {
            continue;
        }
        if (grown.func[node] >= 0 && grown.func[node] < count) {
            self[grown.func[node]] += value;
        }
        for (let at = node; at > 0; at = grown.parent[at]) {
            const func = grown.func[at];
            if (func < count && seenAt[func] !== node) {
                seenAt[func] = node;
                total[func] += value;
            }
        }
    }
    return { self, total };
}

/* Children of each node, the largest first: list[first[n]] to list[first[n + 1]]. */
function childrenOf(grown, total) {
    const count = grown.parent.length;
    const first = new Int32Array(count + 2);
    for (let node = 1; node < count; node++) {
        first[grown.parent[node] + 2]++;
    }
    for (let node = 2; node < count + 2; node++) {
        first[node] += first[node - 1];
    }
    const list = new Int32Array(count);
    for (let node = 1; node < count; node++) {
        list[first[grown.parent[node] + 1]++] = node;
    }
    for (let node = 0; node < count; node++) {
        if (first[node + 1] - first[node] > 1) {
            list.subarray(first[node], first[node + 1]).sort((a, b) => total[b] - total[a] || a - b);
        }
    }
    return { first, list };
}

/* Numbers the nodes level by level. Only what is positive has a place: what shrank is in the table. */
function layOut(grown, functions) {
    const count = grown.parent.length;
    const sum = new Float64Array(count);
    let shrunk = 0;
    for (let node = count - 1; node >= 0; node--) {
        sum[node] += Math.max(0, grown.value[node]);
        shrunk += Math.min(0, grown.value[node]);
        if (node > 0) {
            sum[grown.parent[node]] += sum[node];
        }
    }
    const { first, list } = childrenOf(grown, sum);
    const tree = {
        functions,
        parent: new Int32Array(count),
        func: new Int32Array(count),
        depth: new Int32Array(count),
        start: new Float64Array(count),
        total: new Float64Array(count),
        self: new Float64Array(count),
        levels: [0],
        shrunk,
    };
    const old = new Int32Array(count);
    let used = 1;
    tree.parent[0] = -1;
    for (let node = 0; node < used; node++) {
        const from = old[node];
        const parent = tree.parent[node];
        if (parent >= 0 && tree.depth[parent] + 1 === tree.levels.length) {
            tree.levels.push(node);
        }
        tree.depth[node] = tree.levels.length - 1;
        tree.func[node] = from === 0 ? functions.length - 1 : grown.func[from];
        tree.total[node] = sum[from];
        tree.self[node] = Math.max(0, grown.value[from]);
        let start = tree.start[node];
        for (let i = first[from]; i < first[from + 1]; i++) {
            const child = list[i];
            if (sum[child] > 0) {
                old[used] = child;
                tree.parent[used] = node;
                tree.start[used++] = start;
                start += sum[child];
            }
        }
    }
    tree.levels.push(used);
    tree.count = used;
    return tree;
}

/* allowed: an array by thread number of those that count, or null for all. */
function buildTree(profile, functions, type, allowed, by) {
    const groups = grouping(profile, by);
    const grown = growTree(profile, functions, groups, type, allowed);
    const heads = [...groups.names, "all"].map((name) => ({ name, module: "", key: name, isHead: true }));
    const tree = layOut(grown, [...functions.list, ...heads]);
    tree.sums = sumFunctions(grown, functions.list.length);
    return tree;
}

/* The first node of a level that ends behind a place. */
function nodeAt(tree, level, place) {
    let low = tree.levels[level];
    let high = tree.levels[level + 1];
    while (low < high) {
        const middle = (low + high) >>> 1;
        if (tree.start[middle] + tree.total[middle] > place) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* The keys from the root to a node, by which it is found in another tree of the same profile. */
function wayTo(tree, node) {
    const way = [];
    for (let at = node; at > 0; at = tree.parent[at]) {
        way.unshift(tree.functions[tree.func[at]].key);
    }
    return way;
}

function follow(tree, way) {
    let node = 0;
    for (const key of way) {
        const level = tree.depth[node] + 1;
        if (level + 1 >= tree.levels.length) {
            return node;
        }
        let child = nodeAt(tree, level, tree.start[node]);
        while (child < tree.levels[level + 1] && tree.parent[child] === node &&
            tree.functions[tree.func[child]].key !== key) {
            child++;
        }
        if (child >= tree.levels[level + 1] || tree.parent[child] !== node) {
            return node;
        }
        node = child;
    }
    return node;
}

/* A test of functions from what was typed; null where that is no regular expression. */
function matcherOf(query) {
    if (/^".+"$/s.test(query)) {
        const name = query.slice(1, -1);
        return (func) => func.name === name;
    }
    if (/^\/.+\/$/s.test(query)) {
        try {
            const pattern = new RegExp(query.slice(1, -1), "i");
            return (func) => pattern.test(func.name);
        } catch {
            return null;
        }
    }
    const text = query.toLowerCase();
    if (text.startsWith("module:")) {
        return (func) => !func.isHead && func.module.toLowerCase().includes(text.slice(7).trim());
    }
    return (func) => func.name.toLowerCase().includes(text);
}

/* What matches has of the whole and of a zoomed node's value: what is below a match counts with it, once. */
function searchTree(tree, matches, zoom) {
    const found = new Uint8Array(tree.count);
    const covered = new Uint8Array(tree.count);
    const low = tree.start[zoom];
    const high = low + tree.total[zoom];
    let total = 0;
    let zoomed = 0;
    let frames = 0;
    for (let node = 1; node < tree.count; node++) {
        found[node] = matches[tree.func[node]];
        frames += found[node];
        covered[node] = covered[tree.parent[node]] | found[node];
        if (found[node] && !covered[tree.parent[node]]) {
            const start = tree.start[node];
            const end = start + tree.total[node];
            total += end - start;
            zoomed += Math.max(0, Math.min(end, high) - Math.max(start, low));
        }
    }
    return { found, total, zoomed, frames };
}
