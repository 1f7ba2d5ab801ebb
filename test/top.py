#!/usr/bin/env python3
"""The functions with the most of one value, over profiles: top.py VALUE [options] FILE...

VALUE is a sample type's name as in the file (cpu, alloc_space, ...). `flat` is what the function
did itself, `cum` what it and those that it called did; recursion counts once. Functions that
--hide matches leave the stacks, and what they did is their callers' (an app's own wrapper of
malloc, say). Reads .pb.gz, .pb, and .pb.zst (through the program zstd); needs only python3."""

import argparse
import gzip
import re
import signal
import subprocess
import sys
from collections import Counter


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return subprocess.run(["zstd", "-dc"], input=data, check=True, capture_output=True).stdout
    return data


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def message(data):
    """{field number: [values]}: integers as they are, everything else as bytes."""
    fields, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:  # 1: 64 bits, 5: 32 bits; pprof has none
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def integers(values):
    """A repeated integer field, packed or not."""
    for value in values:
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            number, at = varint(value, at)
            yield number


def add_profile(path, wanted, hide, flat, cum):
    """Adds one file's samples; returns the unit. Field numbers: test/profile.proto."""
    profile = message(read(path))
    texts = [text.decode() for text in profile[6]]
    types = [message(t) for t in profile[1]]
    names = [texts[t[1][0]] for t in types]
    if wanted not in names:
        raise SystemExit(f"{path} has no {wanted}, but {', '.join(names)}")
    index = names.index(wanted)

    functions = {}
    for data in profile.get(5, []):
        function = message(data)
        functions[function[1][0]] = texts[function.get(2, [0])[0]]
    locations = {}
    for data in profile.get(4, []):
        location = message(data)
        lines = [message(line) for line in location.get(4, [])]
        locations[location[1][0]] = [functions[line[1][0]] for line in lines] or [
            f"{location.get(3, [0])[0]:#x}"
        ]
    for data in profile.get(2, []):
        sample = message(data)
        value = list(integers(sample[2]))[index]
        value -= (value >> 63) << 64  # what shrank is negative
        stack = [name for id in integers(sample.get(1, [])) for name in locations[id]]
        stack = [name for name in stack if not (hide and hide.search(name))]
        if stack:
            flat[stack[0]] += value
        for name in set(stack):
            cum[name] += value
    return texts[types[index][2][0]]


def show(value, unit):
    if unit == "nanoseconds":
        return f"{value / 1e9:.2f}s"
    if unit == "bytes":
        return f"{value / 2**20:.1f}MiB"
    return str(value)


def main():
    parser = argparse.ArgumentParser(description="functions with the most of one value")
    parser.add_argument("value")
    parser.add_argument("-n", type=int, default=15, help="how many functions")
    parser.add_argument("--hide", type=re.compile, metavar="REGEX", help="functions to leave out")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()

    flat, cum, unit = Counter(), Counter(), ""
    for path in arguments.files:
        try:
            unit = add_profile(path, arguments.value, arguments.hide, flat, cum)
        except OSError as error:
            sys.exit(f"{path}: {error.strerror or error}")
        except (AttributeError, EOFError, KeyError, IndexError, TypeError, ValueError):
            sys.exit(f"{path}: not a profile")
    total = sum(flat.values()) or 1
    print(f"{arguments.value}: {show(total, unit)} in {len(arguments.files)} file(s)")
    print(f"{'flat':>10} {'flat%':>6} {'cum':>10} {'cum%':>6}  function")
    for name, value in sorted(flat.items(), key=lambda item: (-item[1], item[0]))[: arguments.n]:
        print(
            f"{show(value, unit):>10} {100 * value / total:5.1f}% "
            f"{show(cum[name], unit):>10} {100 * cum[name] / total:5.1f}%  {name}"
        )


if __name__ == "__main__":
    # As other tools end when their reader has seen enough.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
