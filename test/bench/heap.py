"""The live heap: what it adds to malloc and free, how long a malloc takes while a profile is written,
what a record costs, by how many there are. (Whether it names the right sites: heap_sites.py.)"""

import os
import subprocess

from calls import output_of
from configurations import Configuration, named
from table import Limit, Verdict, alternate

ROUNDS = 7
NO_FLUSH = "24h"


def bench_ring(report, folder, chosen):
    """The default interval, and a small one, where one in some hundred blocks has a record."""
    program = os.path.join(folder, "bench_calls")
    floor, ours = named(chosen, "floor"), named(chosen, "libagent")
    rows = [floor, ours, ours.with_environment("libagent, no heap", LIBAGENT_PROFILES="cpu,alloc")]
    for profiles in ("alloc,heap", "alloc"):
        rows.append(ours.with_environment(f"16 KiB: {profiles}", LIBAGENT_ALLOC_INTERVAL="16KiB",
                                          LIBAGENT_PROFILES=profiles))
    figures = alternate(rows, ROUNDS, lambda c: float(output_of(c, program, "ring100k")))
    report.table("a ring of 100,000 live blocks with the live heap: CPU for a free and a malloc", "ns",
                 rows, figures, {"libagent": Limit("ratio", 1.10, "floor")}, ("floor",))


LIVE, SECONDS = 1000000, 3
LATENCY_ROUNDS = 3
COLUMNS = ("p50", "p99", "p99.9", "p99.99", "longest")
FLUSHED = "libagent, in flushes"


def latencies_us(program, configuration, clock):
    arguments = [str(LIVE), str(SECONDS), clock] + (["flush"] if configuration.name == FLUSHED else [])
    flushes, *values = (int(value) for value in output_of(configuration, program, *arguments).split())
    if configuration.name == FLUSHED and flushes < 3:
        raise SystemExit(f"{FLUSHED}: only {flushes} while malloc was timed")
    return [value / 1e3 for value in values]


def bench_latency(report, folder, chosen):
    """All of a million blocks are recorded, and each malloc that is timed is a sample; with flushes one
    is under way at each. By the clock on the wall, and by the CPU clock: what is in the first alone
    was the scheduler's, who had given the processor to another thread."""
    program = os.path.join(folder, "bench_latency")
    ours = named(chosen, "libagent").with_environment(
        "libagent", LIBAGENT_ALLOC_INTERVAL="1", LIBAGENT_MEMORY="512MiB", LIBAGENT_PROFILES="heap",
        LIBAGENT_PERIOD=NO_FLUSH)
    rows = [Configuration("none"), ours, ours.with_environment(FLUSHED)]
    for clock in ("wall", "cpu"):
        all_figures = alternate(rows, LATENCY_ROUNDS, lambda c: latencies_us(program, c, clock))
        for index, column in enumerate(COLUMNS):
            figures = {name: [v[index] for v in values] for name, values in all_figures.items()}
            limits = {FLUSHED: Limit("value", 1000, "none")} if column == "p99.9" else {}
            report.table(f"malloc beside {LIVE:,} live records, {column} by the {clock} clock: each one "
                         "sampled", "us", rows, figures, limits, ("none",))


RECORDS = (10000, 100000, 1000000, 10000000)
# A table that is mostly empty has more than its share of slots: said of a million records.
LIMITS = {1000000: (("snapshot, CPU ms", 4, 250), ("bytes a record", 5, 64))}


def bench_records(report, folder, _):
    program = os.path.join(folder, "bench_heap")
    print("\nthe live heap's tables by records (1,000 stacks of 25 frames): CPU\n"
          f"{'records':>10} {'add, ns':>9} {'free, ns':>9} {'miss, ns':>9} {'snapshot, ms':>13} "
          f"{'bytes a record':>15}")
    for records in RECORDS:
        runs = []
        for _ in range(3):
            done = subprocess.run([program, str(records)], capture_output=True, text=True, check=True)
            runs.append([float(value) for value in done.stdout.split()])
        best = [sorted(values)[1] for values in zip(*runs)]
        print(f"{records:>10,} {best[1]:>9.1f} {best[2]:>9.1f} {best[3]:>9.1f} {best[4]:>13.2f} "
              f"{best[5]:>15.1f}", flush=True)
        for name, index, most in LIMITS.get(records, ()):
            report.verdicts.append((f"{records:,} live records, {name}",
                                    Verdict(Limit("value", most, ""),
                                            [run[index] for run in runs], "")))
