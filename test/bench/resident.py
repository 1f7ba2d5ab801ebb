"""Memory, by bench_memory: of an idle process, and for each thread that only waits."""

import os
import re
import subprocess

from configurations import named
from table import Limit, alternate

ROUNDS = 7
THREADS = 200
# More CPU time than the period that such a process has here, so that its first profile is written.
BUSY_S, PERIOD = 1.5, "1s"


def memory_kib(program, configuration, threads=0, busy_s=0.0):
    """(resident, private) of the waiting process; after BUSY_S it has a thread of the agent's."""
    with subprocess.Popen([program, str(threads), str(busy_s)], env=configuration.environment(),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        pid = process.stdout.readline().strip()
        if not pid:
            raise SystemExit(f"{configuration.name}: bench_memory failed")
        with open(f"/proc/{pid}/smaps_rollup") as file:
            kib = {name: int(value)
                   for name, value in re.findall(r"^(\w+): +(\d+) kB", file.read(), re.M)}
        if busy_s and len(os.listdir(f"/proc/{pid}/task")) == 1:
            raise SystemExit(f"{configuration.name}: no thread of the agent's after its period")
    return kib["Rss"], kib["Private_Dirty"] + kib["Private_Clean"]


def bench_idle(report, program, chosen):
    later = named(chosen, "libagent").with_environment("libagent, later", LIBAGENT_PERIOD=PERIOD)
    shown = chosen + [later]
    both = alternate(shown, ROUNDS,
                     lambda c: memory_kib(program, c, busy_s=BUSY_S if c is later else 0.0))
    limit = Limit("difference", 3072, "none")
    for index, kind in enumerate(("resident", "private")):
        figures = {name: [pair[index] for pair in pairs] for name, pairs in both.items()}
        report.table(f"{kind} memory of an idle process: `later` is after its first profile", "KiB",
                     shown, figures, {"libagent": limit, later.name: limit})


def bench_threads(report, program, chosen):
    def kib_a_thread(c):
        return (memory_kib(program, c, THREADS)[0] - memory_kib(program, c)[0]) / THREADS

    figures = alternate(chosen, ROUNDS, kib_a_thread)
    report.table("resident memory of a thread that was never sampled", "KiB", chosen, figures,
                 {"libagent": Limit("difference", 8, "none")})


def bench_memory(report, folder, chosen):
    program = os.path.join(folder, "bench_memory")
    bench_idle(report, program, chosen)
    bench_threads(report, program, chosen)
