#!/usr/bin/env python3
"""make bench: run.py BENCH_FOLDER LIBAGENT_SO [TOPIC]...

What libagent costs, beside no preload (twice: the difference is the noise), a preload that only
forwards (the floor), and other profilers; one table a measurement, the limits and verdicts again
at the end. The status is 2 when something is not installed (NOT MEASURED), 1 when a limit is
missed, else 0. table.py says how figures are compared."""

import glob
import os
import signal
import sys
import tempfile

import calls
import heap
import heap_sites
import programs
import resident
import samples
import unwinding
from configurations import PROFILES, all_configurations
from table import Report

TOPICS = {what: (lambda report, folder, chosen, what=what:
                 calls.bench_call(report, folder, chosen, what)) for what in calls.CALLS}
TOPICS["single"] = calls.bench_single
TOPICS["redis"] = programs.bench_redis
TOPICS["sqlite"] = programs.bench_sqlite
TOPICS["python"] = programs.bench_python
TOPICS["samples"] = samples.bench_samples
TOPICS["memory"] = resident.bench_memory
TOPICS["heapring"] = heap.bench_ring
TOPICS["latency"] = heap.bench_latency
TOPICS["records"] = heap.bench_records
TOPICS["sites"] = heap_sites.bench_sites
TOPICS["unwind"] = unwinding.bench_unwinding


def main():
    folder, agent = (os.path.abspath(path) for path in sys.argv[1:3])
    topics = sys.argv[3:] or list(TOPICS)
    unknown = [topic for topic in topics if topic not in TOPICS]
    if unknown:
        raise SystemExit(f"no topic {unknown[0]}; there are: {' '.join(TOPICS)}")
    # Ended from outside, it still ends its servers and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"The machine is busy (load average {busy:.1f}): small differences will not be told.")
    with tempfile.TemporaryDirectory() as output:
        os.chdir(output)  # children under heaptrack leave files where they run
        chosen = all_configurations(folder, agent, output)
        for topic in topics:
            TOPICS[topic](report, folder, chosen)
            # 20 MB from each run of heaptrack; libagent looks through its folder at each write.
            for file in glob.glob("heaptrack.*") + glob.glob(f"{PROFILES}/*"):
                os.remove(file)
    return report.summary()


if __name__ == "__main__":
    sys.exit(main())
