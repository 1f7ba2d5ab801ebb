/* The graph on two canvases: frames, and over them the marks of pointer and keyboard, which change more
 * often. Both are as large as what is seen; a tall element below them scrolls. Levels are rows; of a row
 * only frames wider than half a pixel are drawn, what lies between is passed over by halving, so that a
 * picture takes time for what is seen and not for what there is. */

const ROW = 21;
const MIN_WIDTH = 0.5;
const MIN_TEXT_WIDTH = 28;
const TEXT_MARGIN = 5;

class Graph {
    /* parts: scroller, height, frames, marks; on: hover(node, x, y), zoom(node), move(node) */
    constructor(parts, on) {
        this.parts = parts;
        this.on = on;
        this.tree = null;
        this.zoom = 0;
        this.found = null;
        this.hovered = -1;
        this.focused = -1;
        this.flame = false;
        this.dark = false;
        this.boxes = 0;
        this.drawTime = 0;
        this.colours = [];
        this.widths = [];
        this.pending = false;
        const { scroller, frames } = parts;
        scroller.addEventListener("scroll", () => {
            this.hover(-1);
            this.invalidate();
        });
        /* Drawn at once: the next frame would come after the empty canvas was seen. */
        new ResizeObserver(() => {
            this.resize();
            this.draw();
        }).observe(scroller);
        frames.addEventListener("mousemove", (event) => this.point(event));
        frames.addEventListener("mouseleave", () => this.hover(-1));
        frames.addEventListener("click", (event) => {
            const node = this.hit(event.offsetX, event.offsetY);
            if (node >= 0) {
                this.focused = node;
                on.zoom(node);
            }
        });
        frames.addEventListener("focus", () => this.drawMarks());
        frames.addEventListener("blur", () => this.drawMarks());
    }

    show(tree, zoom) {
        this.tree = tree;
        this.found = null;
        this.focused = -1;
        this.hovered = -1;
        this.colours = [];
        this.widths = [];
        this.setZoom(zoom);
    }

    setZoom(node) {
        this.zoom = node;
        this.resize();
        this.reveal(node);
    }

    setTheme(dark) {
        this.dark = dark;
        this.colours = [];
        this.invalidate();
    }

    setFlame(flame) {
        this.flame = flame;
        this.resize();
        this.reveal(this.zoom);
    }

    /* Levels that have something in the zoomed range. */
    shownLevels() {
        const { tree, zoom } = this;
        let level = tree.depth[zoom] + 1;
        const end = tree.start[zoom] + tree.total[zoom];
        while (level < tree.levels.length - 1) {
            const node = nodeAt(tree, level, tree.start[zoom]);
            if (node === tree.levels[level + 1] || tree.start[node] >= end) {
                break;
            }
            level++;
        }
        return level;
    }

    resize() {
        if (!this.tree) {
            return;
        }
        const { scroller, height, frames, marks } = this.parts;
        this.width = scroller.clientWidth;
        this.seen = scroller.clientHeight;
        this.levels = this.shownLevels();
        this.tall = Math.max(this.levels * ROW + 1, this.seen);
        height.style.height = `${this.tall}px`;
        /* A scroll bar that came or went. */
        this.width = scroller.clientWidth;
        this.ratio = window.devicePixelRatio || 1;
        const [width, tall] = [this.width, this.seen].map((each) => Math.round(each * this.ratio));
        for (const canvas of [frames, marks]) {
            if (canvas.width !== width || canvas.height !== tall) {
                canvas.width = width;
                canvas.height = tall;
                canvas.style.width = `${this.width}px`;
                canvas.style.height = `${this.seen}px`;
            }
        }
        this.invalidate();
    }

    invalidate() {
        if (!this.pending) {
            this.pending = true;
            requestAnimationFrame(() => {
                this.pending = false;
                this.draw();
            });
        }
    }

    scale() {
        return this.width / this.tree.total[this.zoom];
    }

    yOf(level) {
        const scrolled = this.parts.scroller.scrollTop;
        return (this.flame ? this.tall - (level + 1) * ROW : level * ROW) - scrolled;
    }

    levelAt(y) {
        const down = y + this.parts.scroller.scrollTop;
        return Math.floor((this.flame ? this.tall - down : down) / ROW);
    }

    /* left and right are bounded to what is seen. */
    boxOf(node) {
        const { tree, zoom } = this;
        const left = (tree.start[node] - tree.start[zoom]) * this.scale();
        const right = left + tree.total[node] * this.scale();
        return {
            x: Math.max(0, left),
            y: this.yOf(tree.depth[node]),
            width: Math.min(this.width, right) - Math.max(0, left),
            height: ROW,
        };
    }

    hit(x, y) {
        const level = this.levelAt(y);
        if (!this.tree || level < 0 || level >= this.levels) {
            return -1;
        }
        const place = this.tree.start[this.zoom] + x / this.scale();
        const node = nodeAt(this.tree, level, place);
        return node < this.tree.levels[level + 1] && this.tree.start[node] <= place ? node : -1;
    }

    point(event) {
        this.hover(this.hit(event.offsetX, event.offsetY), event.clientX, event.clientY);
    }

    hover(node, x, y) {
        const changed = node !== this.hovered;
        this.hovered = node;
        this.parts.frames.style.cursor = node >= 0 ? "pointer" : "default";
        if (changed) {
            this.drawMarks();
        }
        if (changed || node >= 0) {
            this.on.hover(node, x, y);
        }
    }

    /* Scrolls so far that a node is seen. */
    reveal(node) {
        const { scroller } = this.parts;
        const y = this.yOf(this.tree.depth[node]);
        const margin = Math.min(2 * ROW, this.seen / 4);
        if (y < margin) {
            scroller.scrollTop += y - margin;
        } else if (y + ROW > this.seen - margin) {
            scroller.scrollTop += y + ROW - this.seen + margin;
        }
    }

    focus(node) {
        this.focused = node;
        this.reveal(node);
        this.drawMarks();
        this.on.move(node);
    }

    /* Where an arrow key leads from the focused node; the node itself where there is nothing. */
    neighbour(key) {
        const { tree, zoom } = this;
        const node = this.focused >= 0 ? this.focused : zoom;
        if (key === "ArrowLeft" || key === "ArrowRight") {
            const next = node + (key === "ArrowLeft" ? -1 : 1);
            const level = tree.depth[node];
            const end = tree.start[zoom] + tree.total[zoom];
            const seen = next >= tree.levels[level] && next < tree.levels[level + 1] &&
                tree.start[next] < end && tree.start[next] + tree.total[next] > tree.start[zoom];
            return seen ? next : node;
        }
        if ((key === "ArrowDown") === this.flame) {
            return Math.max(0, tree.parent[node]);
        }
        const level = tree.depth[node] + 1;
        if (level >= this.levels) {
            return node;
        }
        const child = nodeAt(tree, level, Math.max(tree.start[node], tree.start[zoom]));
        const isChild = child < tree.levels[level + 1] && tree.parent[child] === node;
        return isChild ? child : node;
    }

    palette() {
        const style = getComputedStyle(document.documentElement);
        const of = (name) => style.getPropertyValue(name).trim();
        return { text: of("--frame-text"), dim: of("--dim"), dimText: of("--dim-text"), sliver: of("--sliver"),
            mark: of("--accent"), hover: of("--hover"), font: `12px ${of("--font")}` };
    }

    draw() {
        if (!this.tree || !this.width) {
            return;
        }
        const began = performance.now();
        const context = this.parts.frames.getContext("2d");
        const look = this.palette();
        context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
        context.clearRect(0, 0, this.width, this.seen);
        context.font = look.font;
        context.textBaseline = "middle";
        context.direction = "ltr";
        this.boxes = 0;
        if (this.tree.total[0] > 0) {
            for (let level = 0; level < this.levels; level++) {
                const y = this.yOf(level);
                if (y + ROW > 0 && y < this.seen) {
                    this.drawLevel(context, look, level, y);
                }
            }
        }
        this.drawMarks();
        this.drawTime = performance.now() - began;
    }

    drawLevel(context, look, level, y) {
        const { tree, zoom } = this;
        const origin = tree.start[zoom];
        const scale = this.scale();
        const last = tree.levels[level + 1];
        let node = nodeAt(tree, level, origin);
        while (node < last) {
            const left = (tree.start[node] - origin) * scale;
            if (left >= this.width) {
                return;
            }
            const right = left + tree.total[node] * scale;
            if (right - left >= MIN_WIDTH) {
                this.drawBox(context, look, node, Math.max(0, left), Math.min(this.width, right), y);
                node++;
                continue;
            }
            /* A run of frames too narrow: passed over half a pixel at a time. */
            const next = nodeAt(tree, level, origin + (left + MIN_WIDTH) / scale);
            context.fillStyle = look.sliver;
            context.fillRect(left, y, MIN_WIDTH, ROW - 1);
            node = Math.max(node + 1, next);
        }
    }

    drawBox(context, look, node, left, right, y) {
        const { tree, ratio } = this;
        const func = tree.func[node];
        const dimmed = this.found && !this.found[node];
        const x = Math.round(left * ratio) / ratio;
        const end = Math.round(right * ratio) / ratio;
        const gap = right - left > 3 ? 1 : 0;
        const width = Math.max(end - x - gap, 1 / ratio);
        this.boxes++;
        context.globalAlpha = tree.depth[node] < tree.depth[this.zoom] ? 0.6 : 1;
        context.fillStyle = dimmed ? look.dim : this.colour(func);
        context.fillRect(x, y, width, ROW - 1);
        if (width >= MIN_TEXT_WIDTH) {
            context.fillStyle = dimmed ? look.dimText : look.text;
            const text = this.fitted(context, func, width - 2 * TEXT_MARGIN);
            context.fillText(text, x + TEXT_MARGIN, y + ROW / 2);
        }
        context.globalAlpha = 1;
    }

    colour(func) {
        return (this.colours[func] ??= frameColour(this.tree.functions[func], this.dark));
    }

    /* As much of the name as has room. Its letters are taken to be of one width, then corrected: one or two
     * measurements do. */
    fitted(context, func, room) {
        const { name } = this.tree.functions[func];
        const width = (this.widths[func] ??= context.measureText(name).width);
        if (width <= room) {
            return name;
        }
        let length = Math.floor((name.length * room) / width);
        let text = "";
        do {
            text = name.slice(0, Math.max(0, length - 1)) + "\u2026";
            length = Math.min(length - 1, Math.floor(length * 0.95));
        } while (length > 0 && context.measureText(text).width > room);
        return text;
    }

    drawMarks() {
        if (!this.tree || !this.width) {
            return;
        }
        const context = this.parts.marks.getContext("2d");
        const look = this.palette();
        context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
        context.clearRect(0, 0, this.width, this.seen);
        if (this.hovered >= 0) {
            this.outline(context, this.hovered, look.hover, 1.5);
        }
        if (this.focused >= 0 && document.activeElement === this.parts.frames) {
            this.outline(context, this.focused, look.mark, 2);
        }
    }

    outline(context, node, colour, thickness) {
        const box = this.boxOf(node);
        context.strokeStyle = colour;
        context.lineWidth = thickness;
        const inset = thickness / 2;
        context.strokeRect(box.x + inset, box.y + inset, Math.max(1, box.width - 1 - thickness), ROW - 1 - thickness);
    }
}
