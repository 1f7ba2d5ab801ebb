/* The table of functions. Of many only the first are shown: a search finds the others. */

const TABLE_ROWS = 300;

class FunctionTable {
    /* parts: body, count, and buttons by key (self, total, name); on: mark(func), zoom(func) */
    constructor(parts, on) {
        this.parts = parts;
        this.on = on;
        this.sortBy = "self";
        this.descending = true;
        this.rows = [];
        for (const [key, button] of Object.entries(parts.buttons)) {
            button.addEventListener("click", () => {
                this.descending = this.sortBy === key ? !this.descending : key !== "name";
                this.sortBy = key;
                this.fill();
            });
        }
        parts.body.addEventListener("keydown", (event) => this.key(event));
    }

    /* matches: an array by function of those that a search found, or null; filter: only these are shown. */
    show(tree, unit, matches, filter, dark) {
        Object.assign(this, { tree, unit, matches, filter, dark });
        this.fill();
    }

    /* Other matches, the same rows: they stay in place, so that a double click meets one row twice. */
    highlight(matches) {
        this.matches = matches;
        [...this.parts.body.children].forEach((row, i) =>
            row.classList.toggle("found", Boolean(matches?.[this.rows[i]])));
    }

    order() {
        const { self, total } = this.tree.sums;
        const { functions } = this.tree;
        const list = [];
        for (let func = 0; func < total.length; func++) {
            if ((self[func] !== 0 || total[func] !== 0) && (!this.filter || this.matches[func])) {
                list.push(func);
            }
        }
        const byName = (a, b) => (functions[a].name < functions[b].name ? -1 : functions[a].name > functions[b].name ? 1 : a - b);
        const bySize = (values) => (a, b) => values[a] - values[b];
        const order = { self: bySize(self), total: bySize(total), name: byName }[this.sortBy];
        const sign = this.descending ? -1 : 1;
        return list.sort((a, b) => sign * order(a, b) || total[b] - total[a] || byName(a, b));
    }

    fill() {
        const order = this.order();
        this.rows = order.slice(0, TABLE_ROWS);
        this.parts.body.replaceChildren(...this.rows.map((func) => this.row(func)));
        if (this.rows.length) {
            this.parts.body.firstElementChild.tabIndex = 0;
        }
        const more = order.length > this.rows.length;
        this.parts.count.textContent = more
            ? `${this.rows.length} of ${grouped(order.length)} functions: a search finds the others`
            : `${grouped(order.length)} function${order.length === 1 ? "" : "s"}`;
        for (const [key, button] of Object.entries(this.parts.buttons)) {
            const sorted = key === this.sortBy;
            const direction = this.descending ? "descending" : "ascending";
            button.parentElement.setAttribute("aria-sort", sorted ? direction : "none");
        }
    }

    row(func) {
        const { tree, unit } = this;
        const { self, total } = tree.sums;
        const row = document.createElement("tr");
        row.tabIndex = -1;
        row.classList.toggle("found", Boolean(this.matches?.[func]));
        const name = document.createElement("td");
        name.className = "name";
        const swatch = document.createElement("i");
        swatch.style.background = moduleColour(tree.functions[func].module, this.dark);
        const text = document.createElement("bdi");
        text.textContent = tree.functions[func].name;
        const place = document.createElement("small");
        place.textContent = placeText(tree.functions[func]);
        name.append(swatch, text, place);
        name.title = `${tree.functions[func].name}\n${placeText(tree.functions[func])}`;
        row.append(this.number(self[func]), this.number(total[func]), name);
        row.addEventListener("click", () => {
            row.focus();
            this.on.mark(func);
        });
        row.addEventListener("dblclick", () => this.on.zoom(func));
        return row;
    }

    number(value) {
        const whole = this.tree.total[0];
        const cell = document.createElement("td");
        const share = document.createElement("small");
        share.textContent = shareText(value, whole);
        cell.append(valueText(value, this.unit), share);
        const part = whole > 0 ? Math.max(0, Math.min(1, value / whole)) : 0;
        cell.style.setProperty("--part", `${(100 * part).toFixed(1)}%`);
        cell.classList.toggle("negative", value < 0);
        return cell;
    }

    key(event) {
        const row = event.target.closest("tr");
        const index = [...this.parts.body.children].indexOf(row);
        if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            this.parts.body.children[index + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
        } else if (event.key === "Enter") {
            this.on.zoom(this.rows[index]);
        } else if (event.key === " ") {
            this.on.mark(this.rows[index]);
        } else {
            return;
        }
        event.preventDefault();
        event.stopPropagation();
    }
}
