/* What is chosen, the controls and keys that choose it, and what follows from it.
 *
 * window.libagentPage is for tests: snapshot() tells what is shown, boxes() where frames of a name are,
 * table() the first rows of the table. */

const $ = (id) => document.getElementById(id);
const MAX_CHOICES = 500;
const LEGEND_MODULES = 8;

const state = { type: 0, thread: -1, group: "", byLine: false, query: "", zoom: 0, table: innerWidth >= 1000 };
const timings = {};
/* Where Back leads: ways from the root, which hold in each tree. */
const zooms = [];
let profile = null;
let functions = null;
let choices = [];
let tree = null;
let search = null;
let graph = null;
let table = null;

function option(value, text) {
    const made = document.createElement("option");
    made.value = value;
    made.textContent = text;
    return made;
}

function isDark() {
    return document.documentElement.dataset.theme === "dark";
}

/* ---- What is shown ---- */

function rebuild() {
    const began = performance.now();
    const way = tree ? wayTo(tree, state.zoom) : [];
    const members = choices[state.thread]?.members;
    const allowed = members ? new Uint8Array(profile.threads.length) : null;
    members?.forEach((i) => (allowed[i] = 1));
    tree = buildTree(profile, functions, state.type, allowed, state.group);
    state.zoom = follow(tree, way);
    timings.build = performance.now() - began;
    graph.show(tree, state.zoom);
    $("empty").hidden = tree.total[0] > 0;
    $("empty").textContent = tree.total[0] > 0 ? "" : emptyText(profile, tree, profile.types[state.type]);
    $("summary").textContent = summaryOf(tree, profile.types[state.type], wholeOf(state.type));
    showLegend();
    showControls();
    runSearch(true);
    showTip(-1);
}

function wholeOf(type) {
    let sum = 0;
    for (let at = 3 + type; at < profile.rows.length; at += profile.stride) {
        sum += Math.max(0, profile.rows[at]);
    }
    return sum;
}

function runSearch(anew) {
    const filtered = search?.filter;
    search = null;
    if (state.query !== "") {
        const matcher = matcherOf(state.query);
        const matches = Uint8Array.from(tree.functions, matcher ? (each) => (matcher(each) ? 1 : 0) : () => 0);
        search = { bad: !matcher, matches, filter: matcher !== null && !/^".+"$/s.test(state.query),
            ...searchTree(tree, matches, state.zoom) };
    }
    graph.found = search?.found ?? null;
    graph.invalidate();
    $("matched").textContent = search ? matchedText(tree, search, state.zoom) : "";
    if (anew || filtered || search?.filter) {
        table.show(tree, profile.types[state.type].unit, search?.matches ?? null, search?.filter, isDark());
    } else {
        table.highlight(search?.matches ?? null);
    }
}

function setQuery(query) {
    if (query !== state.query) {
        state.query = query;
        runSearch(false);
    }
    if ($("search").value !== query) {
        $("search").value = query;
    }
}

function showLegend() {
    const modules = modulesBySelf(tree);
    const sum = modules.reduce((all, each) => all + each[1], 0);
    $("legend").replaceChildren(...modules.slice(0, LEGEND_MODULES).map(([module, value]) => {
        const chip = document.createElement("button");
        const swatch = document.createElement("i");
        swatch.style.background = moduleColour(module, isDark());
        const name = document.createElement("bdi");
        name.textContent = module;
        const share = document.createElement("small");
        share.textContent = `${((100 * value) / sum).toFixed(0)} %`;
        chip.type = "button";
        chip.title = `Show what runs in ${module} itself`;
        chip.append(swatch, name, share);
        chip.addEventListener("click", () => {
            const query = `module:${module}`;
            setQuery(state.query === query ? "" : query);
        });
        return chip;
    }));
}

function showControls() {
    [...$("types").children].forEach((button, i) => button.setAttribute("aria-pressed", i === state.type));
    $("icicle").setAttribute("aria-pressed", !graph.flame);
    $("flame").setAttribute("aria-pressed", graph.flame);
    $("table-button").setAttribute("aria-pressed", state.table);
    document.body.classList.toggle("with-table", state.table);
    $("reset").disabled = state.zoom === 0;
    $("back").disabled = zooms.length === 0;
    $("thread").value = state.thread;
    $("group").value = state.group;
}

function showFrame(node) {
    const shown = node >= 0 ? node : graph.focused >= 0 ? graph.focused : state.zoom;
    if (tree.total[0] === 0) {
        $("status").textContent = "";
        return;
    }
    const { name, place, value, self } = frameParts(tree, shown, state.zoom, profile.types[state.type].unit);
    const title = document.createElement("b");
    const said = document.createElement("bdi");
    said.textContent = name;
    title.append(said);
    const where = document.createElement("span");
    where.textContent = place;
    const amount = document.createElement("span");
    amount.className = "amount";
    amount.textContent = `${value} \u00b7 ${self}`;
    $("status").replaceChildren(title, where, amount);
}

function showTip(node, x, y) {
    const tip = $("tip");
    tip.hidden = node < 0;
    showFrame(node);
    if (node < 0) {
        return;
    }
    const parts = frameParts(tree, node, state.zoom, profile.types[state.type].unit);
    tip.replaceChildren(...Object.entries(parts).filter((each) => each[1] !== "").map(([kind, text]) => {
        const line = document.createElement("div");
        line.className = kind;
        line.textContent = text;
        return line;
    }));
    const { width, height } = tip.getBoundingClientRect();
    const right = x + 14 + width < innerWidth;
    tip.style.left = `${Math.max(4, right ? x + 14 : x - width - 10)}px`;
    tip.style.top = `${Math.max(4, y + 18 + height < innerHeight ? y + 18 : y - height - 10)}px`;
}

/* ---- What is chosen ---- */

function setZoom(node) {
    state.zoom = node;
    graph.setZoom(node);
    showTip(-1);
    showControls();
    if (search) {
        Object.assign(search, searchTree(tree, search.matches, node));
        $("matched").textContent = matchedText(tree, search, node);
    }
}

function zoomTo(node) {
    if (node !== state.zoom) {
        zooms.push(wayTo(tree, state.zoom));
        setZoom(node);
    }
}

function back() {
    if (zooms.length) {
        setZoom(follow(tree, zooms.pop()));
    }
}

function zoomToFunction(func) {
    let largest = -1;
    for (let node = 1; node < tree.count; node++) {
        if (tree.func[node] === func && (largest < 0 || tree.total[node] > tree.total[largest])) {
            largest = node;
        }
    }
    if (largest >= 0) {
        setQuery(`"${tree.functions[func].name}"`);
        zoomTo(largest);
    }
}

function setTheme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    graph.setTheme(dark);
    if (tree) {
        showLegend();
        runSearch(true);
    }
}

function setType(type) {
    state.type = type;
    rebuild();
}

function setFlame(flame) {
    graph.setFlame(flame);
    showControls();
}

function setTable(wanted) {
    state.table = wanted;
    showControls();
}

/* The next or previous frame that a search found, of those in the zoomed range. */
function step(by) {
    const low = tree.start[state.zoom];
    const high = low + tree.total[state.zoom];
    const from = Math.max(0, graph.focused);
    for (let i = 1; search && i <= tree.count; i++) {
        const node = (from + by * i + 2 * tree.count) % tree.count;
        if (search.found[node] && tree.start[node] >= low && tree.start[node] < high) {
            $("frames").focus();
            graph.focus(node);
            return;
        }
    }
}

/* ---- Keys ---- */

const KEYS = {
    "/": () => $("search").focus(),
    "?": () => $("help").showModal(),
    0: () => zoomTo(0),
    n: () => step(1),
    p: () => step(-1),
    f: () => setFlame(!graph.flame),
    t: () => setTable(!state.table),
    v: () => setType((state.type + 1) % profile.types.length),
    d: () => setTheme(!isDark()),
    Backspace: back,
    Escape: () => (state.query !== "" ? setQuery("") : back()),
};

function onKey(event) {
    const typing = /^(INPUT|SELECT)$/.test(event.target.tagName) && event.target.type !== "checkbox";
    if (event.ctrlKey || event.metaKey || event.altKey || typing || document.querySelector("dialog[open]")) {
        return;
    }
    if (KEYS[event.key]) {
        event.preventDefault();
        KEYS[event.key]();
    }
}

function onSearchKey(event) {
    if (event.key === "Escape" || event.key === "Enter") {
        event.preventDefault();
        $("frames").focus();
        if (event.key === "Enter" && search?.frames) {
            graph.focused = state.zoom;
            step(1);
        }
    }
}

function onGraphKey(event) {
    if (tree.total[0] === 0 || event.ctrlKey || event.metaKey || event.altKey) {
        return;
    }
    if (/^Arrow/.test(event.key)) {
        event.preventDefault();
        graph.focus(graph.neighbour(event.key));
    } else if (event.key === "Enter" && graph.focused >= 0) {
        event.preventDefault();
        zoomTo(graph.focused);
    }
}

/* ---- The start ---- */

function fillControls() {
    document.title = `${profile.program} \u00b7 ${profile.family}`;
    $("program").textContent = profile.program;
    $("family").textContent = profile.family;
    $("facts").textContent = factsOf(profile);
    $("notes-button").hidden = profile.comments.length === 0;
    $("note-list").append(...profile.comments.map((comment) => {
        const item = document.createElement("li");
        item.textContent = comment;
        return item;
    }));
    $("types").append(...profile.types.map((type, i) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = type.name;
        button.title = `${type.name}, ${type.unit} (v)`;
        button.addEventListener("click", () => setType(i));
        return button;
    }));
    choices = threadChoices(profile, profile.first);
    $("thread").append(option(-1, "all"), ...choices.slice(0, MAX_CHOICES).map((each, i) => option(i, each.text)));
    $("group").append(option("", "none"), option("thread", "thread name"), option("tid", "thread"),
        ...labelKeys(profile).map((key) => option(`label:${key}`, key)));
    $("lines-label").hidden = !profile.hasLines;
}

function listen() {
    const onClick = (id, action) => $(id).addEventListener("click", action);
    onClick("icicle", () => setFlame(false));
    onClick("flame", () => setFlame(true));
    onClick("table-button", () => setTable(!state.table));
    onClick("reset", () => zoomTo(0));
    onClick("back", back);
    onClick("theme", () => setTheme(!isDark()));
    onClick("help-button", () => $("help").showModal());
    onClick("notes-button", () => $("notes").showModal());
    $("thread").addEventListener("change", () => {
        state.thread = Number($("thread").value);
        rebuild();
    });
    $("group").addEventListener("change", () => {
        state.group = $("group").value;
        rebuild();
    });
    $("lines").addEventListener("change", () => {
        state.byLine = $("lines").checked;
        functions = functionsOf(profile, state.byLine);
        rebuild();
    });
    $("search").addEventListener("input", () => setQuery($("search").value));
    $("search").addEventListener("keydown", onSearchKey);
    $("frames").addEventListener("keydown", onGraphKey);
    document.addEventListener("keydown", onKey);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setTheme(event.matches));
}

function snapshot() {
    const { name } = tree.functions[tree.func[state.zoom]];
    return {
        type: profile.types[state.type], total: tree.total[0], shrunk: tree.shrunk, group: state.group,
        thread: choices[state.thread]?.text ?? "all", flame: graph.flame, dark: isDark(), table: state.table,
        zoom: { name, total: tree.total[state.zoom], depth: tree.depth[state.zoom] },
        search: search && { query: state.query, total: search.total, zoomed: search.zoomed, frames: search.frames },
        focus: graph.focused < 0 ? null : tree.functions[tree.func[graph.focused]].name,
        nodes: tree.count, levels: tree.levels.length - 1, drawn: graph.boxes, drawTime: graph.drawTime, timings,
    };
}

/* Frames of a name that are in the zoomed range, where they are on the screen; all frames without a name. */
function boxes(name) {
    const place = $("frames").getBoundingClientRect();
    const list = [];
    for (let node = 0; node < tree.count; node++) {
        const func = tree.functions[tree.func[node]];
        const box = graph.boxOf(node);
        if ((name === undefined || func.name === name) && box.width > 0) {
            list.push({ name: func.name, total: tree.total[node], self: tree.self[node], depth: tree.depth[node],
                x: place.x + box.x, y: place.y + box.y, width: box.width, height: box.height });
        }
    }
    return list;
}

function start() {
    const data = $("data");
    const began = performance.now();
    profile = readProfile(data.textContent);
    data.textContent = "";
    timings.read = performance.now() - began;
    state.type = profile.first;
    functions = functionsOf(profile, false);
    graph = new Graph({ scroller: $("scroller"), height: $("height"), frames: $("frames"), marks: $("marks") },
        { hover: showTip, zoom: zoomTo, move: showFrame });
    graph.dark = isDark();
    table = new FunctionTable({ body: $("function-rows"), count: $("function-count"),
        buttons: { self: $("by-self"), total: $("by-total"), name: $("by-name") } },
        { mark: (func) => {
            const query = `"${tree.functions[func].name}"`;
            setQuery(state.query === query ? "" : query);
        }, zoom: zoomToFunction });
    fillControls();
    listen();
    document.body.classList.toggle("with-table", state.table);
    rebuild();
    graph.draw();
    timings.firstDraw = performance.now();
    window.libagentPage = Object.freeze({ snapshot, boxes,
        table: () => table.rows.map((func) => ({ name: tree.functions[func].name, self: tree.sums.self[func],
            total: tree.sums.total[func] })) });
}

try {
    start();
} catch (error) {
    $("empty").hidden = false;
    $("empty").textContent = `This file cannot be shown: ${error.message}`;
    throw error;
}
