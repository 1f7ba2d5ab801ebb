#!/usr/bin/env python3
"""Holds the option table of the README against what LIBAGENT_HELP=1 prints.

    readme_options.py README.md LIBAGENT_SO     status 1 when a row is missing, wrong or too many
    readme_options.py --print LIBAGENT_SO       the table as it has to stand in the README"""

import os
import re
import subprocess
import sys

HEAD = ["| Option | Default | Accepted | What it does |", "|---|---|---|---|"]


def help_text(agent):
    environment = {"PATH": os.environ["PATH"], "LIBAGENT_HELP": "1"}
    environment["LD_PRELOAD"] = os.path.abspath(agent)
    done = subprocess.run(["/bin/true"], env=environment, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def rows_of(text):
    # NAME=value in force, then a line "    what it does (accepted; default D)"
    pattern = r"^(LIBAGENT_\w+)=.*\n    (.*) \((.*); default (.*)\)$"
    for name, what, accepted, default in re.findall(pattern, text, re.M):
        cells = [f"`{name}`", f"`{default}`" if default else "", accepted, what]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main():
    readme, agent = sys.argv[1], sys.argv[2]
    rows = list(rows_of(help_text(agent)))
    if not rows:
        print("LIBAGENT_HELP=1 printed no option")
        return 1
    if readme == "--print":
        print("\n".join(HEAD + rows))
        return 0
    with open(readme, encoding="utf-8") as f:
        present = [line.rstrip() for line in f if line.startswith("| `LIBAGENT_")]
    for row in rows:
        if row not in present:
            print(f"{readme} lacks: {row}")
    for row in present:
        if row not in rows:
            print(f"{readme} has, but LIBAGENT_HELP=1 does not: {row}")
    return 0 if sorted(rows) == sorted(present) else 1


sys.exit(main())
