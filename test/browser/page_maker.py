"""Pages of data that a test makes by hand: the same parts that libagent.so holds, around other data."""

import json
import os

GENERATED = os.path.join(os.path.dirname(__file__), "..", "..", "build", "generated")
CPU = [("samples", "count"), ("cpu", "nanoseconds")]


class Data:
    """What a page holds, gathered row by row; a frame is a name or (name, module[, file, line, inlined])."""

    def __init__(self, family="cpu", types=None, default=1, program="example"):
        self.about = {"program": program, "family": family, "default": default}
        self.types = types or CPU
        self.comments = []
        self.modules, self.files, self.frames, self.nodes = {}, {}, {}, {}
        self.threads, self.labels, self.rows = {}, {}, []

    def frame(self, frame):
        name, module, *place = (frame, "example") if isinstance(frame, str) else frame
        made = [name, -1 if module is None else number(self.modules, module)]
        if place:
            file, line, inlined = place
            made += [number(self.files, file), line, int(inlined)]
        return number(self.frames, tuple(made))

    def add(self, stack, *values, thread=("main", 1), labels=()):
        """stack: from the outermost frame on."""
        node = -1
        for frame in stack:
            node = number(self.nodes, (node, self.frame(frame)))
        self.rows += [node, -1 if thread is None else number(self.threads, thread),
                      number(self.labels, tuple(labels)), *values]

    def json(self):
        data = {
            "version": 1, "pid": 4711, "service": "", **self.about, "start_ms": 1764489600123,
            "duration_ms": 60000, "types": [{"type": t, "unit": u} for t, u in self.types],
            "comments": self.comments, "modules": list(self.modules), "files": list(self.files),
            "frames": [list(frame) for frame in self.frames],
            "nodes": [part for node in self.nodes for part in node],
            "threads": [list(thread) for thread in self.threads],
            "labels": [[list(label) for label in labels] for labels in self.labels], "rows": self.rows}
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        for character in "<>&\u2028\u2029\x7f":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return text

    def write(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        parts = []
        for part in ("page_head.html", "page_tail.html"):
            with open(os.path.join(GENERATED, part), encoding="utf-8") as f:
                parts.append(f.read())
        with open(path, "w", encoding="utf-8") as f:
            f.write(parts[0] + '<script id="data" type="application/json">' + self.json() + "</script>\n" +
                    parts[1])
        return path


def number(table, key):
    return table.setdefault(key, len(table))
