"""The page of an html profile, in headless Chromium: make test-browser.

What a test knows of a profile it made itself (page_maker.py). A page's state is read through
window.libagentPage, and beside it from what a reader sees."""

from page_case import MS, Pages
from page_maker import Data


def shares():
    """f 300 ms, g 700 ms; g in two threads, part of it in h; two requests, some rows without."""
    data = Data()
    base = ["_start", ("__libc_start_main", "libc.so.6"), "main"]
    data.add([*base, "f"], 30, 300 * MS, labels=[("request", "checkout"), ("n", 1)])
    data.add([*base, "g"], 10, 100 * MS, labels=[("request", "search")])
    data.add([*base, "g", "h"], 20, 200 * MS, labels=[("request", "checkout"), ("n", 2)])
    data.add(["start_thread", "g"], 40, 400 * MS, thread=("worker", 2))
    return data


class Truth(Pages):
    def test_shares(self):
        page = self.open(shares())
        state = page.state()
        self.assertEqual(state["total"], 1000 * MS)
        self.assertEqual(state["type"], {"name": "cpu", "unit": "nanoseconds"})
        self.assertEqual(sorted(box["total"] for box in page.boxes("g")), [300 * MS, 400 * MS])
        self.assertEqual([box["self"] for box in page.boxes("h")], [200 * MS])
        self.expect_table(page, [["500 ms", "700 ms", "g"], ["300 ms", "300 ms", "f"], ["200 ms", "200 ms", "h"],
                                 ["0", "600 ms", "__libc_start_main"]])
        self.assertEqual(page.text("#program"), "example")
        self.assertIn("cpu 1.00 s", page.text("#summary"))
        # A frame's width is its share.
        canvas = page.evaluate("document.querySelector('#frames').getBoundingClientRect().width")
        self.assertAlmostEqual(page.boxes("f")[0]["width"] / canvas, 0.3, places=3)

    def test_status_and_tip_tell_of_the_frame_under_the_pointer(self):
        page = self.open(shares())
        page.point_at("h")
        for place in ("#status", "#tip"):
            text = page.text(place)
            for part in ("h", "example", "200 ms", "20.0 % of all", "self 200 ms"):
                self.assertIn(part, text)
        self.assertNotIn("of zoom", page.text("#status"))
        page.click_frame("main")
        page.point_at("h")
        self.assertIn("33.3 % of zoom", page.text("#status"))
        page.mouse("mouseMoved", 5, 5)
        page.drawn()
        self.assertFalse(page.evaluate("document.querySelector('#tip').checkVisibility()"))

    def test_what_is_drawn_is_what_is_told(self):
        """The picture itself: a frame's pixels have its module's colour, beside it is another."""
        data = Data()
        data.add(["main"], 1, 250 * MS)
        data.add([("read", "libc.so.6")], 1, 750 * MS)
        page = self.open(data)
        difference = {}
        for name in ("main", "read"):
            drawn = self.colour_in(page, name)
            for other in ("main", "read"):
                told = page.evaluate(
                    "[...document.querySelectorAll('#function-rows tr')].find(row => row.innerText.includes("
                    f"'{other}')).querySelector('i').style.backgroundColor.match(/\\d+/g).map(Number)")
                difference[name, other] = max(abs(a - b) for a, b in zip(drawn, told))
        # Functions of a module differ by some steps in lightness.
        for name, other in (("main", "read"), ("read", "main")):
            self.assertLess(difference[name, name], 12, difference)
            self.assertGreater(difference[name, other], 40, difference)

    def colour_in(self, page, name):
        """Near the right end of a frame, where no text is."""
        box = page.boxes(name)[0]
        return page.evaluate(
            "(() => { const canvas = document.querySelector('#frames'), at = canvas.getBoundingClientRect();"
            " const copy = new OffscreenCanvas(1, 1).getContext('2d');"
            f" copy.drawImage(canvas, at.x - {box['x'] + box['width'] - 6}, at.y - {box['y'] + 8});"
            " return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3); })()")

    def test_types(self):
        page = self.open(shares())
        page.click_on("#types button:first-child")
        self.assertEqual(page.state()["type"]["name"], "samples")
        self.assertEqual(page.state()["total"], 100)
        self.expect_table(page, [["50", "70", "g"], ["30", "30", "f"]])
        page.key("v")
        self.assertEqual(page.state()["total"], 1000 * MS)

    def test_recursion_counts_once(self):
        data = Data()
        data.add(["main", "r", "r", "r"], 3, 30 * MS)
        data.add(["main", "r", "x", "r"], 1, 10 * MS)
        page = self.open(data)
        self.expect_table(page, [["40.0 ms", "40.0 ms", "r"]])

    def test_units(self):
        data = Data("heap", [("alloc_objects", "count"), ("alloc_space", "bytes")])
        data.add(["main", "big"], 12345678, 3 << 30)
        data.add(["main", "small"], 1, 1536)
        data.add(["main", "tiny"], 1, 17)
        page = self.open(data)
        self.expect_table(page, [["3.00 GiB", "3.00 GiB", "big"], ["1.50 KiB", "1.50 KiB", "small"],
                                 ["17 B", "17 B", "tiny"]])
        page.key("v")
        self.expect_table(page, [["12,345,678", "12,345,678", "big"]])

    def test_growth_is_drawn_and_what_shrank_is_told(self):
        data = Data("heap-growth", [("inuse_objects", "count"), ("inuse_space", "bytes")])
        data.add(["main", "leaks"], 100, 4096 << 10)
        data.add(["main", "shrinks"], -10, -(1024 << 10))
        data.add(["main", "shrinks", "grows_below"], 10, 512 << 10)
        page = self.open(data)
        self.assertEqual(page.state()["total"], 4608 << 10)
        self.assertEqual(page.boxes("shrinks")[0]["total"], 512 << 10)
        self.expect_table(page, [["4.00 MiB", "4.00 MiB", "leaks"], ["512 KiB", "512 KiB", "grows_below"],
                                 ["0", "3.50 MiB", "main"], ["-1.00 MiB", "-512 KiB", "shrinks"]])
        self.assertIn("growth of 4.50 MiB is drawn; -1.00 MiB, what shrank", page.text("#summary"))

    def test_nothing(self):
        empty = self.open(Data())
        self.assertEqual(empty.text("#empty"), "Nothing was recorded in this window.")
        for key in ("Enter", "ArrowUp", "f", "t", "v", "0", "n"):
            empty.key(key)
        shrunk = Data("heap-growth", [("inuse_space", "bytes")], default=0)
        shrunk.add(["main"], -5)
        self.assertIn("Nothing grew", self.open(shrunk).text("#empty"))
        some = Data()
        some.add(["main"], 1, 0)
        page = self.open(some)
        self.assertIn("There is no cpu here", page.text("#empty"))
        page.key("v")
        self.assertEqual(page.text("#empty"), "")

    def test_lines(self):
        """The same function at two lines is one frame, and two where lines are asked for."""
        data = Data()
        data.add(["main", ("work", "example", "src/work.c", 10, False)], 1, 10 * MS)
        data.add(["main", ("work", "example", "src/work.c", 20, False),
                  ("add", "example", "src/add.h", 5, True)], 1, 30 * MS)
        page = self.open(data)
        self.assertEqual([box["total"] for box in page.boxes("work")], [40 * MS])
        page.point_at("work")
        self.assertIn("src/work.c", page.text("#tip"))
        page.point_at("add")
        self.assertIn("src/add.h:5 \u00b7 inlined", page.text("#tip"))
        page.click_on("#lines")
        self.assertEqual([box["total"] for box in page.boxes("work")], [30 * MS, 10 * MS])
        page.point_at("work")
        self.assertIn("src/work.c:20", page.text("#tip"))


class Choices(Pages):
    def test_thread(self):
        page = self.open(shares())
        page.choose("#thread", "worker (2)")
        self.assertEqual(page.state()["total"], 400 * MS)
        self.assertEqual(page.boxes("main"), [])
        self.assertIn("40.0 % of 1.00 s", page.text("#summary"))
        page.choose("#thread", "all")
        self.assertEqual(page.state()["total"], 1000 * MS)

    def test_threads_of_one_name(self):
        data = Data()
        for tid, value in ((11, 10), (12, 20), (13, 40)):
            data.add(["run"], 1, value * MS, thread=("pool" if tid < 13 else "other", tid))
        page = self.open(data)
        page.choose("#thread", "pool (2 threads)")
        self.assertEqual(page.state()["total"], 30 * MS)
        page.choose("#thread", "pool (11)")
        self.assertEqual(page.state()["total"], 10 * MS)
        page.choose("#thread", "all")
        page.choose("#group", "thread name")
        self.assertEqual([page.boxes(name)[0]["total"] for name in ("pool", "other")], [30 * MS, 40 * MS])
        page.choose("#group", "thread")
        self.assertEqual([page.boxes(name)[0]["total"] for name in ("pool (11)", "pool (12)", "other (13)")],
                         [10 * MS, 20 * MS, 40 * MS])

    def test_labels(self):
        page = self.open(shares())
        page.choose("#group", "request")
        self.assertEqual({name: page.boxes(name)[0]["total"] for name in
                          ("request: checkout", "request: search", "(no request)")},
                         {"request: checkout": 500 * MS, "request: search": 100 * MS, "(no request)": 400 * MS})
        self.assertEqual(sorted(box["total"] for box in page.boxes("main")), [100 * MS, 500 * MS])
        page.choose("#group", "n")
        self.assertEqual(page.boxes("n: 2")[0]["total"], 200 * MS)
        self.assertEqual(page.boxes("(no n)")[0]["total"], 500 * MS)
        # Both at once.
        page.choose("#thread", "main (1)")
        self.assertEqual(page.boxes("(no n)")[0]["total"], 100 * MS)

    def test_a_zoom_stays_where_the_value_changes(self):
        page = self.open(shares())
        page.click_frame("h")
        page.key("v")
        state = page.state()
        self.assertEqual((state["zoom"]["name"], state["zoom"]["total"]), ("h", 20))
        page.choose("#thread", "worker (2)")
        self.assertEqual(page.state()["zoom"]["name"], "all")


class Search(Pages):
    def search(self, page, text):
        page.key("/")
        page.evaluate("document.querySelector('#search').select()")
        page.type(text) if text else page.key("Backspace")
        search = page.state()["search"]
        page.key("Escape")
        return search, page.text("#matched")

    def test_share(self):
        page = self.open(shares())
        found, text = self.search(page, "G")
        self.assertEqual((found["total"], found["frames"]), (700 * MS, 2))
        self.assertEqual(text, "70.0 %")
        # What is below a match counts with it, once.
        self.assertEqual(self.search(page, "/^[gh]$/")[1], "70.0 %")
        self.assertEqual(self.search(page, '"g"')[1], "70.0 %")
        self.assertEqual(self.search(page, "/^[fh]$/")[1], "50.0 %")
        self.assertEqual(self.search(page, "/^\\_start$/")[1], "60.0 %")  # an escape without need
        self.assertEqual(self.search(page, "module:libc")[1], "60.0 %")
        self.assertEqual(self.search(page, "nobody")[1], "not found")
        self.assertEqual(self.search(page, "/(/")[1], "not a regular expression")
        self.assertIsNone(self.search(page, "")[0])

    def test_share_of_zoom(self):
        page = self.open(shares())
        self.search(page, '"h"')
        page.click_frame("main")
        self.assertEqual(page.text("#matched"), "20.0 % \u00b7 33.3 % of zoom")
        page.click_frame("h")
        self.assertEqual(page.text("#matched"), "20.0 % \u00b7 100 % of zoom")
        # The other half of it is elsewhere.
        page.key("0")
        self.search(page, '"g"')
        page.click_frame("main")
        self.assertEqual(page.text("#matched"), "70.0 % \u00b7 50.0 % of zoom")

    def test_table_is_searched_and_a_click_in_it_marks(self):
        page = self.open(shares())
        self.search(page, "main")
        self.expect_table(page, [["0", "600 ms", "__libc_start_main"], ["0", "600 ms", "main"]])
        self.assertEqual(len(page.evaluate("libagentPage.table()")), 2)
        page.key("Escape")
        self.assertIsNone(page.state()["search"])
        page.click_on("#function-rows tr:nth-child(2) td.name")  # f
        self.assertEqual(page.text("#matched"), "30.0 %")
        self.assertEqual(page.evaluate("document.querySelector('#search').value"), '"f"')
        self.assertEqual(page.evaluate("document.querySelectorAll('#function-rows tr.found').length"), 1)
        self.assertGreater(len(page.evaluate("libagentPage.table()")), 2)
        page.click_on("#function-rows tr:nth-child(3) td.name", clicks=2)  # h
        self.assertEqual(page.state()["zoom"]["name"], "h")

    def test_module_chip(self):
        page = self.open(shares())
        page.click_on("#legend button")
        self.assertEqual(page.text("#matched"), "100 %")
        self.assertEqual(page.evaluate("document.querySelector('#search').value"), "module:example")

    def test_sorting(self):
        page = self.open(shares())
        page.click_on("#by-total")
        self.expect_table(page, [["500 ms", "700 ms", "g"]])
        page.click_on("#by-total")
        self.expect_table(page, [["200 ms", "200 ms", "h"]])
        page.click_on("#by-name")
        self.expect_table(page, [["0", "600 ms", "__libc_start_main"]])
        self.assertEqual(page.evaluate("document.querySelector('th.name').ariaSort"), "ascending")


class Hands(Pages):
    def test_zoom_by_mouse(self):
        page = self.open(shares())
        canvas = page.evaluate("document.querySelector('#frames').getBoundingClientRect().width")
        self.assertTrue(page.evaluate("document.querySelector('#reset').disabled"))
        page.click_frame("start_thread")
        page.click_frame("g")
        state = page.state()
        self.assertEqual((state["zoom"]["name"], state["zoom"]["total"]), ("g", 400 * MS))
        self.assertEqual(page.boxes("g")[0]["width"], canvas)
        self.assertEqual(page.boxes("f"), [])
        # The way back stays above; a click there zooms out.
        page.click_frame("all")
        self.assertEqual(page.state()["zoom"]["name"], "all")
        page.click_on("#back")
        page.click_on("#back")
        self.assertEqual(page.state()["zoom"]["name"], "start_thread")
        page.click_on("#reset")
        self.assertEqual(page.state()["zoom"]["total"], 1000 * MS)
        self.assertAlmostEqual(page.boxes("f")[0]["width"] / canvas, 0.3, places=3)

    def test_flame_or_icicle(self):
        page = self.open(shares())
        self.assertLess(page.boxes("all")[0]["y"], page.boxes("main")[0]["y"])
        page.click_on("#flame")
        self.assertTrue(page.state()["flame"])
        self.assertGreater(page.boxes("all")[0]["y"], page.boxes("main")[0]["y"])
        page.click_frame("h")  # where it is seen, it is hit
        self.assertEqual(page.state()["zoom"]["name"], "h")
        page.key("f")
        self.assertFalse(page.state()["flame"])

    def test_keys(self):
        page = self.open(shares())
        page.evaluate("document.querySelector('#frames').focus()")
        for key, name in (("ArrowDown", "_start"), ("ArrowRight", "start_thread"), ("ArrowRight", "start_thread"),
                          ("ArrowLeft", "_start"), ("ArrowDown", "__libc_start_main"), ("ArrowDown", "main"),
                          ("ArrowDown", "f"), ("ArrowUp", "main")):
            page.key(key)
            self.assertEqual(page.state()["focus"], name, key)
            self.assertIn(name, page.text("#status"))
        page.key("Enter")
        self.assertEqual(page.state()["zoom"]["name"], "main")
        page.key("ArrowDown")
        page.key("Enter")
        self.assertEqual(page.state()["zoom"]["total"], 300 * MS)
        page.key("Backspace")
        self.assertEqual(page.state()["zoom"]["name"], "main")
        page.key("0")
        self.assertEqual(page.state()["zoom"]["name"], "all")
        page.key("Escape")
        self.assertEqual(page.state()["zoom"]["name"], "main")
        page.key("f")
        page.key("ArrowUp")
        self.assertEqual(page.state()["focus"], page.boxes("f")[0]["name"])
        self.assertTrue(page.state()["table"])
        page.key("t")
        self.assertFalse(page.state()["table"])
        self.assertFalse(page.evaluate("document.querySelector('#functions').checkVisibility()"))
        page.key("d")
        self.assertTrue(page.state()["dark"])
        page.key("?")
        self.assertTrue(page.evaluate("document.querySelector('#help').open"))
        page.key("f")
        self.assertTrue(page.state()["flame"], "a key behind the help")
        page.key("Escape")
        self.assertFalse(page.evaluate("document.querySelector('#help').open"))

    def test_search_keys(self):
        page = self.open(shares())
        page.key("/")
        for letter in ("g", "0"):  # a digit that is typed is no key
            page.key(letter)
        self.assertEqual(page.text("#matched"), "not found")
        page.key("Backspace")
        self.assertEqual(page.text("#matched"), "70.0 %")
        page.key("Enter")
        first = page.state()["focus"], page.text("#status")
        page.key("n")
        self.assertEqual((first[0], page.state()["focus"]), ("g", "g"))
        self.assertNotEqual(page.text("#status"), first[1])
        page.key("p")
        self.assertEqual(page.text("#status"), first[1])
        page.key("Escape")
        self.assertIsNone(page.state()["search"])

    def test_table_keys(self):
        page = self.open(shares())
        page.evaluate("document.querySelector('#function-rows tr').focus()")
        page.key("ArrowDown")
        page.key(" ")
        self.assertEqual(page.evaluate("document.querySelector('#search').value"), '"f"')
        page.key("Enter")
        self.assertEqual(page.state()["zoom"]["name"], "f")

    def test_every_control_has_a_name_and_is_reached(self):
        page = self.open(shares())
        names = set()
        for _ in range(40):
            page.key("Tab")
            names.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        self.assertGreaterEqual(names, {"frames", "search", "thread", "group", "theme", "flame", "icicle",
                                        "table-button", "help-button", "by-self", "TR"})
        tree = page.call("Accessibility.getFullAXTree")["nodes"]
        nameless = [node["role"]["value"] for node in tree if not node.get("ignored") and
                    node["role"]["value"] in ("button", "combobox", "searchbox", "application", "checkbox")
                    and not node.get("name", {}).get("value")]
        self.assertEqual(nameless, [])
