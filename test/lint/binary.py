#!/usr/bin/env python3
"""What the built libagent.so needs and gives: binary.py LIBAGENT_SO.

A preload that the loader cannot resolve kills every program of a container, so: libc is the only
library needed, no symbol version is newer than the oldest glibc in use, and every name that must
be found is on undefined.txt and defined by musl as well. Exports are exports.list, exactly."""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NEWEST_GLIBC = (2, 17)  # x86-64; aarch64 begins there
TLS_BYTES = 96  # static TLS is scarce for objects that come late
MUSL = ("/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1")

faults = []


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def lines_of(path):
    with open(path) as f:
        return [word for word in (line.split("#")[0].strip() for line in f) if word]


def check_dynamic(path):
    dynamic = output("readelf", "-dW", path)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    if needed != ["libc.so.6"]:
        faults.append(f"NEEDED is {needed}, not libc.so.6 alone")
    if "TEXTREL" in dynamic:
        faults.append("has text relocations")
    for flag in ("NOW", "NODELETE"):
        if not re.search(rf"FLAGS.*\b{flag}\b", dynamic):
            faults.append(f"is not linked with -z {flag.lower()}")
    if "IRELATIV" in output("readelf", "-rW", path):
        faults.append("has IFUNC relocations")


def check_segments(path):
    segments = output("readelf", "-lW", path)
    stack = re.search(r"GNU_STACK(?:\s+0x\w+){5}\s+(\S*)", segments)
    if not stack or "E" in stack.group(1):
        faults.append("wants an executable stack")
    tls = re.search(r"^\s+TLS\s+(?:0x\w+\s+){3}0x(\w+)\s+0x(\w+)", segments, re.M)
    if tls and int(tls.group(2), 16) > TLS_BYTES:
        faults.append(f"TLS is {int(tls.group(2), 16)} bytes, more than {TLS_BYTES}")
    if tls and int(tls.group(1), 16) != 0:
        faults.append("TLS has values to begin with, which agent/thread/raw_thread.c does not copy")
    if "Build ID" not in output("readelf", "-nW", path):
        faults.append("has no build id")


def check_symbols(path):
    strong, exported = set(), set()
    for row in output("readelf", "--dyn-syms", "-W", path).splitlines():
        fields = row.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit() or fields[4] == "LOCAL":
            continue
        kind, binding, section, full = fields[3], fields[4], fields[6], fields[7]
        name, _, version = full.partition("@")
        if kind == "IFUNC":
            faults.append(f"{name} is an IFUNC")
        if section != "UND":
            exported.add(name)
            continue
        glibc = re.match(r"@?GLIBC_([\d.]+)", version)
        if glibc and tuple(map(int, glibc.group(1).split("."))) > NEWEST_GLIBC:
            faults.append(f"{full} is newer than glibc {'.'.join(map(str, NEWEST_GLIBC))}")
        if binding != "WEAK":
            strong.add(name)
    check_strong(strong)
    check_exports(exported)


def check_strong(strong):
    allowed = set(lines_of(os.path.join(HERE, "undefined.txt")))
    for name in sorted(strong - allowed):
        faults.append(f"needs {name}, which test/lint/undefined.txt does not list")
    musl = next(path for path in MUSL if os.path.exists(path))
    defined = output("nm", "-D", "--defined-only", "-f", "posix", musl)
    defined = {row.split()[0] for row in defined.splitlines()}
    for name in sorted(strong - defined):
        faults.append(f"needs {name}, which musl does not define")


def check_exports(exported):
    listed = lines_of(os.path.join(ROOT, "shim", "exports.list"))
    patterns = [re.compile(re.escape(word).replace(r"\*", ".*")) for word in listed]
    for name in sorted(exported):
        if not any(pattern.fullmatch(name) for pattern in patterns):
            faults.append(f"exports {name}, which shim/exports.list does not list")
    for word, pattern in zip(listed, patterns):
        if not any(pattern.fullmatch(name) for name in exported):
            faults.append(f"does not export {word} of shim/exports.list")


def main():
    path = sys.argv[1]
    check_dynamic(path)
    check_segments(path)
    check_symbols(path)
    for text in faults:
        print(f"{path}: {text}")
    return 1 if faults else 0


sys.exit(main())
