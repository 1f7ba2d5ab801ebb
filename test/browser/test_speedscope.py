"""Collapsed profiles as speedscope reads them, which others make: each function's self and total is what the
pprof file of the same window has. make test-browser."""

import base64
import collections
import json
import os

from browser import Page
from page_case import KEPT, ROOT, Programs, top

SPEEDSCOPE = os.path.join(ROOT, "build", "browser", "node_modules", "speedscope", "dist", "release", "index.html")


class Speedscope(Programs):
    def table_of(self, family):
        """Its table of functions: {name: (self, total)}. The file is given as speedscope's own command does."""
        path = self.file(family, "collapsed")
        with open(path, "rb") as f:
            arguments = [os.path.basename(path), base64.b64encode(f.read()).decode()]
        script = os.path.join(self.folder, f"{family}.js")
        with open(script, "w", encoding="ascii") as f:
            f.write("speedscope.loadFileFromBase64(" + ", ".join(map(json.dumps, arguments)) + ")")
        # So high that the table shows all rows.
        page = Page(self.browser, f"{SPEEDSCOPE}#view=sandwich&localProfilePath={script}", height=4000)
        self.addCleanup(page.close)
        page.until("document.querySelectorAll('td').length > 3")
        page.screenshot(os.path.join(KEPT, f"{self.id()}.{family}.png"))
        rows = page.evaluate("[...document.querySelectorAll('tr')].map(row => [...row.cells]"
                             ".map(cell => cell.textContent)).filter(cells => cells.length === 3)")
        self.assertIn("Importing as collapsed stack format", " ".join(page.complaints()))
        self.assertEqual(page.events("Runtime.exceptionThrown"), [])
        self.assertEqual([row for row in rows if row[0] == "Total"], rows[:1])
        table = {}
        for total, own, name in rows[1:]:
            self.assertNotIn(name, table)
            table[name] = tuple(int(text.split(" (")[0].replace(",", "")) for text in (own, total))
        return table

    def expect_sums_of_pprof(self, family, kind):
        flat, cum = collections.Counter(), collections.Counter()
        top.add_profile(self.file(family, "pb.gz"), kind, None, flat, cum)
        table = self.table_of(family)
        self.assertEqual(table, {name.replace(";", ":"): (flat[name], value) for name, value in cum.items() if value})
        return table

    def test_time(self):
        self.profile("shares", "100000", "4", PROFILES="cpu,wall", FORMAT="pprof,collapsed")
        for family, kind in (("cpu", "cpu"), ("wall", "wall")):
            table = self.expect_sums_of_pprof(family, kind)
            self.assertGreater(table["f"][1], 100000000)
            self.assertGreater(table["g"][1], table["f"][1])

    def test_live_heap(self):
        """60 blocks of 1,000 bytes of the first 100, and 60 more; each is sampled."""
        self.profile("heap_growth", "mark", ALLOC_INTERVAL="1", FORMAT="pprof,collapsed")
        table = self.expect_sums_of_pprof("heap", "inuse_space")
        self.assertEqual([table[name][1] for name in ("site_before", "site_after")], [60000, 60000])
