"""What the tests of pages have in common: a browser, and pages that have to be content to the end."""

import os
import unittest

from browser import Browser, Page

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
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
