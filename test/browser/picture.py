#!/usr/bin/env python3
"""The README's picture: redis-server under load, profiled by the demo, as its page shows it. picture.py PNG"""

import os
import re
import subprocess
import sys

from browser import Browser, Page

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
WIDTH, HEIGHT = 1200, 580


def main():
    demo = subprocess.run(["sh", "test/demo.sh"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    # The second window: the benchmark runs from its begin to its end.
    path = re.search(r"^/\S*\.0001\.cpu\.html$", demo, re.M)
    if not path:
        sys.exit(f"the demo names no page:\n{demo}")
    browser = Browser()
    try:
        page = Page(browser, path.group(), width=WIDTH, height=HEIGHT)
        page.point_at("writev")
        page.screenshot(os.path.abspath(sys.argv[1]))
    finally:
        browser.close()


main()
