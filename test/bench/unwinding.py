"""What a walk costs, ours beside libunwind's: in a loop (bench_unwind), and in the midst of real
programs (in_place)."""

import os
import subprocess

from configurations import Configuration
from programs import PYTHON
from table import Limit, alternate

ROUNDS, IN_PLACE_ROUNDS = 7, 3
OURS, THEIRS = Configuration("ours"), Configuration("libunwind")
LATER = Configuration("ours, the second walk")

# Of bench_unwind: title, unit, limit of ours
LOOPS = {
    "warm50": ("a frame, warm, depth 50", "ns", 10),
    "warm200": ("a frame, warm, depth 200", "ns", 10),
    "miss": ("a frame whose rule is not in the cache", "ns", 100),
    "first": ("a frame of the first walk of a process, depth 50, page faults and all", "ns", None),
    "touched": ("a frame of the first walk of a process, depth 50, tables in memory", "ns", 200),
    "thread": ("a frame of a thread's first walk, depth 50", "ns", None),
    "start": ("the start, with 6 objects", "us", 300),
    "memory": ("memory after it all", "KiB", 256),
}

CPP = "#include <bits/stdc++.h>\nstd::map<std::string, std::vector<std::regex>> all;\n" + "".join(
    f"std::string f{i}(int n) {{ std::set<std::string> s; while (n--) s.insert(std::to_string(n));"
    f" std::regex r(*s.begin()); return std::regex_replace(*s.rbegin(), r, \"{i}\"); }}\n"
    for i in range(4))

# A second or two each
IN_PLACE = {
    "python3": ["python3", "-c", PYTHON],
    "clang": ["clang", "-O2", "-std=c++17", "-c", "-o", "/dev/null", "in_place.cc"],
    "cc1plus": ["g++", "-O2", "-c", "-o", "/dev/null", "in_place.cc"],
}


def least(most):
    return {"ours": Limit("value", most, None)} if most else {}


def loops(program):
    """{key: (ours, libunwind's or None)}; `touched` needs a process of its own."""
    figures = {}
    for arguments in ([], ["touched"]):
        printed = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True,
                                 check=True).stdout
        for line in printed.splitlines():
            key, *values = line.split()
            figures[key] = [float(value) for value in values]
    return figures


def in_place(preload, program, command):
    """{name: nanoseconds a frame} in that process of the command which is the program."""
    if os.path.exists("in_place.txt"):
        os.remove("in_place.txt")
    environment = OURS.environment(BENCH_OUTPUT=os.path.abspath("in_place.txt"),
                                            LD_PRELOAD=preload)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    with open("in_place.txt") as file:
        rows = [line.split() for line in file]
    figures = {}
    for name in ("ours", "libunwind"):
        samples, ns = max((int(samples), float(ns)) for comm, who, ns, samples in rows
                          if who == name and comm.startswith(program))
        if samples < 300:
            raise SystemExit(f"{program}: {samples} samples in place")
        figures[name] = ns
    return figures


def bench_unwinding(report, folder, chosen):
    del chosen
    program = os.path.join(folder, "bench_unwind")
    rounds = [loops(program) for _ in range(ROUNDS)]
    for key, (title, unit, most) in LOOPS.items():
        values = [r[key] for r in rounds]
        figures = {"ours": [v[0] for v in values]}
        shown, bases = [OURS], ()
        if len(values[0]) > 1:
            other = LATER if key == "thread" else THEIRS
            figures[other.name] = [v[1] for v in values]
            shown, bases = [OURS, other], (other.name,)
        report.table(title, unit, shown, figures, least(most), bases)
    with open("in_place.cc", "w") as file:
        file.write(CPP)
    preload = os.path.join(folder, "in_place.so")
    for name, command in IN_PLACE.items():
        runs = [in_place(preload, name, command) for _ in range(IN_PLACE_ROUNDS)]
        figures = {who: [run[who] for run in runs] for who in ("ours", "libunwind")}
        report.table(f"a frame in {name}, sampled at 2 kHz", "ns", [OURS, THEIRS], figures,
                     least(200), ("libunwind",))
