#!/usr/bin/env python3
"""make bench: run.py BENCH_FOLDER LIBAGENT_SO.

Runs each measurement under each configuration in turn, so that a machine that grows slower or
faster does so for all of them alike, and prints medians: nanoseconds a call, and the ratio to no
preload. `none again` is no preload a second time: its ratio is the noise. What is not installed
prints NOT MEASURED, and the status is then 2."""

import glob
import os
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 9
# As bench_calls.c names them.
WHAT = ("pair1", "pair2", "ring1k", "ring100k", "thread", "exec")


def library(name):
    found = sorted(glob.glob(f"/usr/lib/*-linux-gnu/{name}"))
    return found[0] if found else None


def configurations(folder, agent, output):
    """(name, preloaded file or None where there is none to preload, environment)"""
    tcmalloc = library("libtcmalloc.so.4")
    jemalloc = library("libjemalloc.so.2")
    return [
        ("none", "", {}),
        ("none again", "", {}),
        ("floor", os.path.join(folder, "floor_shim.so"), {}),
        ("libagent", agent, {"LIBAGENT_OUTPUT": output}),
        ("libagent, not selected", agent, {"LIBAGENT_PROCESSES": "no-such-program"}),
        ("jemalloc", jemalloc, {}),
        ("jemalloc prof", jemalloc, {"MALLOC_CONF": "prof:true,lg_prof_sample:19"}),
        ("tcmalloc", tcmalloc, {}),
        ("tcmalloc sampling", tcmalloc, {"TCMALLOC_SAMPLE_PARAMETER": "524288"}),
    ]


def run_once(folder, what, preload, extra):
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    environment.update(extra)
    if preload:
        environment["LD_PRELOAD"] = preload
    command = [os.path.join(folder, "bench_calls"), what]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main():
    folder, agent = sys.argv[1], os.path.abspath(sys.argv[2])
    missing = False
    with tempfile.TemporaryDirectory() as output:
        chosen = configurations(os.path.abspath(folder), agent, output)
        print(f"nanoseconds a call, median of {ROUNDS}, and the ratio to no preload")
        print(f"{'':24}" + "".join(f"{what:>18}" for what in WHAT), flush=True)
        times = {}
        for what in WHAT:
            for _ in range(ROUNDS):
                for name, preload, extra in chosen:
                    if preload is not None:
                        value = run_once(folder, what, preload, extra)
                        times.setdefault((name, what), []).append(value)
        for name, preload, _ in chosen:
            if preload is None:
                missing = True
                print(f"{name:24}      NOT MEASURED")
                continue
            row = ""
            for what in WHAT:
                value = statistics.median(times[name, what])
                ratio = value / statistics.median(times["none", what])
                row += f"{value:11.1f} {ratio:6.3f}"
            print(f"{name:24}{row}")
    return 2 if missing else 0


sys.exit(main())
