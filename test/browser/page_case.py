"""What the tests of pages have in common: a browser, pages that have to be content to the end, and programs
that run under libagent.so."""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from browser import Browser, Page

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "test"))
import top  # noqa: E402,F401: the reader of profiles that people use
KEPT = os.path.join(ROOT, "build", "browser")  # pages and screenshots, for people to look at
MS = 1000000


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def open(self, data, **options):
        path = data if isinstance(data, str) else data.write(os.path.join(KEPT, self.id() + ".html"))
        page = Page(self.browser, path, **options)
        self.addCleanup(self.expect_peace, page)
        return page

    def expect_peace(self, page):
        """Whatever a test did, the page was content, and asked for nothing but itself."""
        complaints, requests = page.complaints(), page.requests()
        page.close()
        self.assertEqual(complaints, [])
        self.assertEqual(requests, [page.url])

    def expect_table(self, page, rows):
        """The first rows as they are read: self, total, function."""
        seen = page.evaluate("[...document.querySelectorAll('#function-rows tr')].map(row => "
                             "[...row.cells].map(cell => cell.firstChild.nodeType === Node.TEXT_NODE ? "
                             "cell.firstChild.data : cell.querySelector('bdi').textContent))")
        self.assertEqual(seen[:len(rows)], rows)


class Programs(Pages):
    def profile(self, program, *arguments, **options):
        """Runs it to its end; its output's numbers by name."""
        self.folder = tempfile.mkdtemp(prefix="libagent-browser-")
        self.addCleanup(shutil.rmtree, self.folder)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LIBAGENT_")}
        environment |= {"LD_PRELOAD": os.environ["LIBAGENT_SO"], "LIBAGENT_OUTPUT": self.folder,
                        "LIBAGENT_FORMAT": "pprof,html", "LIBAGENT_FREQUENCY": "101",
                        **{f"LIBAGENT_{name}": value for name, value in options.items()}}
        run = subprocess.run([os.path.join(os.environ["PROGRAMS"], f"prog_{program}"), *arguments],
                             env=environment, stdout=subprocess.PIPE, check=True, timeout=300, text=True)
        words = [line.split() for line in run.stdout.splitlines()]
        return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}

    def file(self, family, ending):
        paths = glob.glob(f"{self.folder}/*.0000.{family}.{ending}")
        self.assertEqual(len(paths), 1, os.listdir(self.folder))
        return paths[0]
