"""The page with what is hostile, and with what is much: make test-browser."""

import os
import time

from browser import Page
from page_case import KEPT, MS, Pages
from page_maker import Data

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(2)>",
    "<svg onload=alert(3)>\"'`",
    "\"; alert(4); //",
    "javascript:alert(5)",
    "${alert(6)} &lt;b&gt; &amp;",
    "a;b\\u003cscript>",
    "=1+1|' /",
]
# What is no picture of its own is shown as an escape.
UNSEEN = {
    "tab\tnul\0bell\x07del\x7f": "tab\\u0009nul\\u0000bell\\u0007del\\u007f",
    "line\nend\r\u0085": "line\\u000aend\\u000d\\u0085",
    "sep\u2028par\u2029": "sep\\u2028par\\u2029",
    "abc\u202egpj.exe\u2066x": "abc\\u202egpj.exe\\u2066x",
    "zero\u200bwidth\ufeff": "zero\\u200bwidth\\ufeff",
}


class Hostile(Pages):
    def hostile(self):
        """Each text in each place that a profile has for texts."""
        data = Data(program=HOSTILE[0])
        data.about["service"] = HOSTILE[2]
        data.comments = [*HOSTILE, *UNSEEN]
        for i, text in enumerate([*HOSTILE, *UNSEEN]):
            data.add(["main", (text, text, text, 7, True)], 1, (30 - i) * MS, thread=(text, i),
                     labels=[(text, text), ("key", text)])
        return data

    def expect_untouched(self, page):
        self.assertEqual(page.evaluate("document.scripts.length"), 3)  # the theme's, data, the page's
        self.assertEqual(page.evaluate("document.querySelectorAll('img, svg, iframe, object, embed, link"
                                       ":not([rel=icon])').length"), 0)
        self.assertEqual(page.evaluate("document.querySelectorAll('bdi *, option *, li *').length"), 0)

    def test_names(self):
        shown = [*HOSTILE, *UNSEEN.values()]
        page = self.open(self.hostile())
        names = page.evaluate("[...document.querySelectorAll('#function-rows bdi')].map(each => each.textContent)")
        self.assertEqual(names[:len(shown)], shown)
        self.assertEqual(page.text("h1"), HOSTILE[0])
        self.assertIn(HOSTILE[2], page.text("#facts"))
        self.assertEqual(page.evaluate("document.title"), HOSTILE[0] + " \u00b7 cpu")
        self.assertEqual(page.evaluate("[...document.querySelectorAll('#note-list li')]"
                                       ".map(each => each.textContent)"), shown)
        for select, of in (("#thread", lambda i: f"{shown[i]} ({i})"), ("#group", lambda i: shown[i])):
            options = page.evaluate(f"[...document.querySelector('{select}').options].map(each => each.textContent)")
            for i in range(len(shown)):
                self.assertIn(of(i), options)
        for text in shown:
            page.point_at(text)
            self.assertEqual(page.text("#tip .name"), text)
            self.assertIn(f"{text} \u00b7 {text}:7 \u00b7 inlined", page.text("#tip .place"))
            self.assertEqual(page.text("#status b"), text)
        for text in shown:
            page.choose("#group", text)
            self.assertEqual(len(page.boxes(f"{text}: {text}")), 1, text)
        page.choose("#group", "key")
        page.click_on("#lines")
        for text in shown:
            self.assertEqual(len(page.boxes(f"key: {text}")), 1, text)
        page.key("/")
        for text in shown:
            page.evaluate("document.querySelector('#search').select()")
            page.type(text if not text.startswith("/") else f'"{text}"')
            self.assertGreater(page.state()["search"]["total"], 0, text)
        page.key("Escape")
        self.expect_untouched(page)
        page.screenshot(os.path.join(KEPT, "hostile.png"))

    def test_damaged_data(self):
        for text in ('{"version": 2}', "{", "", '{"version": 1}', "<!-- -->"):
            data = Data()
            data.json = lambda text=text: text
            path = data.write(os.path.join(KEPT, self.id() + ".html"))
            page = Page(self.browser, path)
            self.assertIn("This file cannot be shown", page.text("#empty"))
            self.assertTrue(page.evaluate("document.querySelector('#empty').checkVisibility()"))
            self.assertEqual(len(page.complaints()), 1)  # the error itself, for who looks there
            page.close()

    def test_odd_shapes(self):
        """No module, no thread, one frame of 3,000 letters, a stack of 5,000 frames, values beyond 2^53."""
        data = Data()
        data.add([("bare", None)], 1, 2 ** 60, thread=None)
        data.add(["x" * 3000], 1, 2 ** 60)
        data.add([f"deep_{i}" for i in range(5000)], 1, 2 ** 61)
        page = self.open(data)
        self.assertEqual(page.state()["levels"], 5001)
        self.assertEqual(page.state()["total"], 2.0 ** 62)
        page.choose("#group", "thread name")
        self.assertEqual(page.boxes("(no thread)")[0]["total"], 2.0 ** 60)
        page.choose("#group", "none")
        page.evaluate("document.querySelector('#frames').focus()")
        page.key("/")
        page.type("deep_4321")
        page.key("Enter")
        self.assertEqual(page.state()["focus"], "deep_4321")
        box = page.boxes("deep_4321")[0]
        self.assertTrue(100 < box["y"] < 780, box)
        page.key("f")
        page.click_frame("deep_4321") if 100 < page.boxes("deep_4321")[0]["y"] < 780 else page.key("Enter")
        self.assertEqual(page.state()["zoom"]["name"], "deep_4321")
        self.assertTrue(100 < page.boxes("deep_4321")[0]["y"] < 780)


class Much(Pages):
    """Bounds are those of a page that hangs, not of one that is slow: what was measured is printed."""
    STACKS = 100000

    def data(self):
        data = Data()
        trunk = [f"frame_{i}" for i in range(12)]
        for i in range(self.STACKS):
            branches = [f"branch_{depth}_{i // 10 ** depth % 10}" for depth in range(5)]
            leaves = [(f"leaf_{(i * 7 + depth) % 4999}", f"lib{i % 40}.so") for depth in range(3)]
            data.add(trunk[:2 + i % 11] + branches + leaves, 1, 1 + i * 7919 % 1000003, thread=("worker", i % 64),
                     labels=[("request", f"r{i % 100}")])
        return data

    def timed(self, page, what, action):
        """Until the browser has the picture."""
        began = time.monotonic()
        action()
        page.drawn()
        spent = time.monotonic() - began
        print(f"\n{self.STACKS} stacks: {what}: {1000 * spent:.0f} ms", end="")
        self.assertLess(spent, 15, what)

    def test_a_hundred_thousand_stacks(self):
        path = self.data().write(os.path.join(KEPT, "much.html"))
        opened = time.monotonic()
        page = self.open(path)
        page.drawn()
        state = page.state()
        print(f"\n{state['nodes']} nodes, {os.path.getsize(path) >> 10} KiB: opened in "
              f"{1000 * (time.monotonic() - opened):.0f} ms, of which until the first picture "
              f"{state['timings']['firstDraw']:.0f} ms (reading {state['timings']['read']:.0f} ms, the tree "
              f"{state['timings']['build']:.0f} ms, drawing {state['drawTime']:.0f} ms)", end="")
        self.assertLess(state["timings"]["firstDraw"], 30000)
        total = sum(1 + i * 7919 % 1000003 for i in range(self.STACKS))
        self.assertEqual(state["total"], total)
        # Only what has room is drawn, and that in a time of its own.
        self.assertLess(state["drawn"], 1400 * 2 * state["levels"])
        self.timed(page, "zoom", lambda: page.click_frame("frame_2"))
        print(f" (drawing {page.state()['drawTime']:.0f} ms)", end="")
        self.timed(page, "back", lambda: page.key("Backspace"))
        self.timed(page, "pointer", lambda: page.point_at("frame_3"))
        self.timed(page, "search", lambda: (page.key("/"), page.type("leaf_77")))
        wanted = sum(1 + i * 7919 % 1000003 for i in range(self.STACKS) if any(
            f"leaf_{(i * 7 + depth) % 4999}".startswith("leaf_77") for depth in range(3)))
        self.assertEqual(page.state()["search"]["total"], wanted)
        page.key("Escape")
        self.timed(page, "no search", lambda: page.key("Escape"))
        self.timed(page, "other value", lambda: page.key("v"))
        self.timed(page, "group by label", lambda: page.choose("#group", "request"))
        self.assertEqual(page.boxes("request: r42")[0]["total"], self.STACKS // 100)
        self.timed(page, "one thread", lambda: page.choose("#thread", "worker (5)"))
        page.choose("#group", "none")
        page.choose("#thread", "all")
        page.screenshot(os.path.join(KEPT, "much.png"))


class Screens(Pages):
    """Other screens and looks; what a picture shows is for people to judge."""

    def test_screens(self):
        path = Much.data(type("Few", (), {"STACKS": 300})).write(os.path.join(KEPT, "screens.html"))
        for name, options in (("light", {}), ("dark", {"dark": True}), ("dense", {"ratio": 2, "width": 1000}),
                              ("small", {"width": 420, "height": 700})):
            page = self.open(path, **options)
            state = page.state()
            self.assertEqual(state["dark"], name == "dark")
            ratio = options.get("ratio", 1)
            canvas = page.evaluate("(() => { const all = document.querySelector('#frames');"
                                   " return [all.width, all.getBoundingClientRect().width]; })()")
            self.assertAlmostEqual(canvas[0], canvas[1] * ratio, delta=1)
            # Nothing is wider than the screen, each control is inside it.
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), options.get("width", 1400))
            outside = page.evaluate(
                "[...document.querySelectorAll('header button, #bar button, #bar select, #search')].filter(each =>"
                " each.checkVisibility()).filter(each => { const box = each.getBoundingClientRect();"
                " return box.left < 0 || box.right > innerWidth || box.width < 10; }).map(each => each.id)")
            self.assertEqual(outside, [])
            page.screenshot(os.path.join(KEPT, f"screen_{name}.png"))
            # Another size of the window.
            page.call("Emulation.setDeviceMetricsOverride", width=700, height=500, deviceScaleFactor=1, mobile=False)
            page.until("document.querySelector('#frames').width === document.querySelector('#scroller').clientWidth")
            self.assertEqual(page.boxes("all")[0]["width"],
                             page.evaluate("document.querySelector('#scroller').clientWidth"))

    def test_no_size_shows_an_empty_picture(self):
        """An observer that is called behind the page's own, before the browser shows what there is."""
        page = self.open(Much.data(type("Few", (), {"STACKS": 300})))
        page.evaluate(
            "window.seen = []; new ResizeObserver(() => { const copy = new OffscreenCanvas(1, 1).getContext('2d');"
            " copy.drawImage(document.querySelector('#frames'), -100, -10);"
            " seen.push([innerWidth, copy.getImageData(0, 0, 1, 1).data[3]]);"
            " }).observe(document.querySelector('#scroller'));")
        for width in (1200, 900, 1300):
            page.call("Emulation.setDeviceMetricsOverride", width=width, height=500, deviceScaleFactor=1, mobile=False)
            page.until(f"seen.some(each => each[0] === {width})")
        self.assertEqual({opaque for _, opaque in page.evaluate("seen")}, {255})

    def test_themes_have_contrast(self):
        """WCAG's 4.5 for text, on each frame's colour too."""
        page = self.open(Much.data(type("Few", (), {"STACKS": 300})))
        for _ in range(2):
            page.drawn()
            pairs = page.evaluate(CONTRAST)
            for what, ratio in pairs:
                self.assertGreaterEqual(ratio, 4.5, what)
            self.assertGreater(len(pairs), 10)
            page.key("d")


CONTRAST = """(() => {
    const light = (text) => {
        const canvas = new OffscreenCanvas(1, 1).getContext('2d');
        canvas.fillStyle = text;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((each) => {
            const part = each / 255;
            return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name);
    const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
    const pairs = [['--text', '--bg'], ['--text', '--panel'], ['--muted', '--bg'], ['--muted', '--panel'],
        ['--muted', '--bar'], ['--accent', '--bg'], ['--accent', '--accent-soft'], ['--text', '--bar'],
        ['--negative', '--bg']].map(([a, b]) => [a + ' on ' + b, ratio(colour(a), colour(b))]);
    const frames = new Set([...document.querySelectorAll('i')].map((each) => each.style.backgroundColor));
    return [...pairs, ...[...frames].map((each) => [each, ratio(each, colour('--frame-text'))])];
})()"""
