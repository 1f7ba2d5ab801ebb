"""Pages of programs that ran under libagent.so: what a page shows is what the program says of itself,
and what the pprof file of the same window has. make test-browser."""

import collections
import os
import shutil

from page_case import KEPT, Programs, top


class ProgramPages(Programs):
    def page_of(self, family):
        """Kept, so that people can open it."""
        kept = os.path.join(KEPT, f"{self.id()}.{family}.html")
        os.makedirs(KEPT, exist_ok=True)
        shutil.copy(self.file(family, "html"), kept)
        self.assertLess(os.path.getsize(kept), 1000000)
        return self.open(kept)

    def expect_sums_of_pprof(self, page, family):
        """Each function's self and total, of each of the family's values."""
        for _ in page.evaluate("[...document.querySelector('#types').children]"):
            kind = page.state()["type"]["name"]
            flat, cum = collections.Counter(), collections.Counter()
            top.add_profile(self.file(family, "pb.gz"), kind, None, flat, cum)
            rows = page.evaluate("libagentPage.table()")
            self.assertLess(len(rows), 300)
            # A name may be in several modules (clock_gettime), which are several functions of the page; one
            # that calls the other is in both totals.
            selves, names = collections.Counter(), collections.Counter(row["name"] for row in rows)
            for row in rows:
                selves[row["name"]] += row["self"]
                if names[row["name"]] == 1:
                    self.assertEqual(row["total"], cum[row["name"]], (kind, row["name"]))
            self.assertEqual({name: value for name, value in selves.items() if value},
                             {name: value for name, value in flat.items() if value}, kind)
            self.assertEqual(page.state()["total"] + page.state()["shrunk"], sum(flat.values()))
            page.key("v")

    def test_shares_of_functions(self):
        """f and g take turns, 30 to 70. Phases of 100 ms: 80 borders, at each of which a sample every 8 to
        12 ms errs by less than that: 0.8 points of standard error; the bound is 7 of them."""
        truth = self.profile("shares", "100000", "4", PROFILES="cpu")
        share = truth["f"] / (truth["f"] + truth["g"])
        page = self.page_of("cpu")
        total = page.state()["total"]
        self.assertAlmostEqual(page.boxes("f")[0]["total"] / total, share, delta=0.056)
        page.point_at("f")
        told = page.text("#status").split(" % of all")[0].split()[-1]
        self.assertAlmostEqual(float(told), 100 * share, delta=5.6)
        page.key("/")
        page.type('"g"')
        self.assertAlmostEqual(float(page.text("#matched").split()[0]), 100 * (1 - share), delta=5.6)
        page.key("Escape")
        page.key("Escape")
        self.expect_sums_of_pprof(page, "cpu")
        page.click_frame("f")
        self.assertEqual(page.state()["zoom"]["name"], "f")

    def test_labels_of_a_program(self):
        """Each function runs under its own label: it is nowhere else."""
        self.profile("labels", "", PROFILES="cpu,alloc", ALLOC_INTERVAL="1")
        for family in ("cpu", "heap"):
            page = self.page_of(family)
            self.expect_sums_of_pprof(page, family)
            if family == "heap":
                while page.state()["type"]["name"] != "alloc_objects":
                    page.key("v")
            page.choose("#group", "work")
            for name, label in (("f", "work: f"), ("g", "work: g"), ("h", "work: h"), ("u", "(no work)")):
                page.click_frame(label)
                inside = sum(box["total"] for box in page.boxes(name))
                page.key("0")
                self.assertEqual(sum(box["total"] for box in page.boxes(name)), inside, (family, name))
                self.assertGreater(inside, 0, (family, name))
                if family == "heap" and name in "fg":  # each allocation is sampled: 5 times 8
                    self.assertEqual(inside, 40)
            page.choose("#group", "number")
            self.assertGreater(page.boxes("number: -7")[0]["total"], 0)

    def test_growth_of_a_program(self):
        """100 blocks of 1,000 bytes, the mark, 40 of them freed and 60 more made; each is sampled."""
        self.profile("heap_growth", "mark", ALLOC_INTERVAL="1")
        page = self.page_of("heap-growth")
        self.expect_sums_of_pprof(page, "heap-growth")
        self.assertEqual(page.state()["type"]["name"], "inuse_space")
        self.assertEqual(page.boxes("site_after")[0]["total"], 60000)
        self.assertEqual(page.boxes("site_before"), [])
        self.expect_table(page, [["58.6 KiB", "58.6 KiB", "site_after"]])
        shrunk = [row for row in page.evaluate("libagentPage.table()") if row["name"] == "site_before"]
        self.assertEqual(shrunk, [{"name": "site_before", "self": -40000, "total": -40000}])
        self.assertIn("-39.1 KiB", page.text("#functions"))

    def test_lines_of_a_program(self):
        """outer, middle and inner are one function's code: inlined into one another."""
        self.profile("lines", PROFILES="cpu", SYMBOLS="lines")
        page = self.page_of("cpu")
        for name, is_inlined in (("outer", False), ("middle", True), ("inner", True)):
            page.point_at(name)
            place = page.text("#tip .place")
            self.assertIn("prog_lines.c", place)
            self.assertEqual("inlined" in place, is_inlined, name)
        self.assertGreater(page.boxes("inner")[0]["total"], 0.9 * page.state()["total"])
        page.click_on("#lines")
        self.assertGreater(page.boxes("inner")[0]["total"], 0)
