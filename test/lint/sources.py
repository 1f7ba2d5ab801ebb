#!/usr/bin/env python3
"""Rules on the source files: include levels (levels.txt), unique base names, what a header's
opening comment says, include guards, length, and calls that the product must not make
(calls.txt). Prints each breach; status 1 when there is one."""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PRODUCT = ("agent", "shim", "uploader")
MAX_LINES = 500

faults = []


def fault(path, line, text):
    faults.append(f"{path}:{line}: {text}")


def read_table(name):
    """Rows `key: words` of a text file with # comments."""
    table = {}
    with open(os.path.join(HERE, name)) as f:
        for row in f:
            row = row.split("#")[0].strip()
            if row:
                key, _, words = row.partition(":")
                table[key.strip()] = words.split()
    return table


def source_files():
    for top in PRODUCT + ("test",):
        for folder, folders, names in os.walk(os.path.join(ROOT, top)):
            folders.sort()
            for name in sorted(names):
                if not name.endswith((".pyc", ".png")):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def without_comments_and_strings(text):
    """The code alone, with the line numbers kept."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda m: " " + "\n" * m.group().count("\n"), text, flags=re.S)


def check_levels(path, text, levels):
    folder = os.path.dirname(path)
    if folder not in levels:
        fault(path, 1, f"test/lint/levels.txt has no row for {folder}")
        return
    allowed = levels[folder] + [folder]
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if not match or "*" in allowed:
            continue
        target = match.group(1)
        if target not in allowed and os.path.dirname(target) not in allowed:
            fault(path, number, f"{folder} may not include {target}")


def check_header(path, text):
    opening = re.match(r"/\*.*?\*/", text, re.S)
    if not opening:
        fault(path, 1, "a header opens with a comment")
        return
    # The test's own headers have no contexts: they run in ordinary code.
    if path.startswith(PRODUCT):
        for word in ("Owns", "Context", "Locks"):
            if not re.search(rf"\b{word}:", opening.group()):
                fault(path, 1, f"the opening comment has no '{word}:'")
    guard = re.search(r"^#ifndef (\w+)\n#define (\w+)$", text, re.M)
    if not guard or guard.group(1) != guard.group(2):
        fault(path, 1, "no include guard")


def check_calls(path, text, calls):
    allowed = set()
    for key, names in calls.items():
        if path == key or (key.endswith("/") and path.startswith(key)):
            allowed.update(names)
    banned = re.compile(r"(?<![\w.>])(" + "|".join(calls["banned"]) + r")\s*\(")
    for number, line in enumerate(without_comments_and_strings(text).splitlines(), 1):
        if line[:1].strip():
            continue  # column 1: a declaration or definition, such as the shim's own malloc
        for match in banned.finditer(line):
            if match.group(1) not in allowed:
                fault(path, number, f"{match.group(1)} is not for the product (test/lint/calls.txt)")


def main():
    levels, calls = read_table("levels.txt"), read_table("calls.txt")
    seen = {}
    for path in source_files():
        name = os.path.basename(path)
        if name in seen and name[0] != "." and name != "README.md":  # named by who reads them
            fault(path, 1, f"has the base name of {seen[name]}")
        seen[name] = path
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            text = f.read()
        if text.count("\n") > MAX_LINES:
            fault(path, MAX_LINES, f"more than {MAX_LINES} lines: it is two files")
        if not path.endswith((".c", ".h", ".cc", ".S")):
            continue
        check_levels(path, text, levels)
        if path.endswith(".h"):
            check_header(path, text)
        if path.startswith(PRODUCT):
            check_calls(path, text, calls)
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


sys.exit(main())
