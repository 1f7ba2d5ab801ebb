"""The cost of single calls, by bench_calls and bench_single."""

import os
import subprocess

from table import Limit, alternate

ROUNDS = 9

# Topic: title, unit, nanoseconds in one of it, limits. Without a preload malloc and free take 7 ns
# here, a thread 11 to 40 us, exec 0.6 ms.
CALLS = {
    "pair1": ("malloc and free of 16 to 512 B, 1 thread: CPU", "ns", 1,
              {"libagent": Limit("difference", 1.2, "floor")}),
    "pair2": ("malloc and free of 16 to 512 B, 2 threads: CPU", "ns", 1,
              {"libagent": Limit("difference", 1.2, "floor")}),
    "ring1k": ("a ring of 1,000 live blocks: CPU for a free and a malloc", "ns", 1,
               {"libagent": Limit("difference", 1.2, "floor")}),
    "ring100k": ("a ring of 100,000 live blocks: CPU for a free and a malloc", "ns", 1,
                 {"libagent": Limit("ratio", 1.10, "floor")}),
    "thread": ("a thread created and joined", "us", 1e3,
               {"libagent": Limit("ratio", 1.25, "none")}),
    "exec": ("exec of /bin/true, until it has ended", "ms", 1e6,
             {"libagent": Limit("difference", 0.5, "none"),
              "libagent, not selected": Limit("difference", 0.1, "none")}),
    "dlopen": ("dlopen and dlclose of libm", "us", 1e3,
               {"libagent": Limit("difference", 60, "none")}),
    "labels": ("a label set, beside two others: CPU", "ns", 1,
               {"libagent": Limit("difference", 50, "none")}),
}


def output_of(configuration, *command):
    done = subprocess.run(command, env=configuration.environment(), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{configuration.name}: {' '.join(command)}: status {done.returncode}\n"
                         f"{done.stderr}")
    return done.stdout


def bench_call(report, folder, chosen, what):
    title, unit, one, limits = CALLS[what]
    program = os.path.join(folder, "bench_calls")
    figures = alternate(chosen, ROUNDS, lambda c: float(output_of(c, program, what)) / one)
    report.table(title, unit, chosen, figures, limits)


SINGLE = ("putc", "shared_ptr copied", "malloc(3000) and free",
          "malloc(65536) and free")


def bench_single_tables(report, program, chosen, before, limits, title):
    """`before`: {name: the program's arguments}."""

    def measure(c):
        *values, threads = output_of(c, program, *before[c.name]).split()
        # heaptrack has a thread from the start; all others must be what the table's title says.
        if c.name != "heaptrack" and (threads == "1") != (before[c.name] == ["0"]):
            raise SystemExit(f"{c.name}: {threads} threads in {title}")
        return [float(value) for value in values]

    all_figures = alternate(chosen, ROUNDS, measure)
    for index, call in enumerate(SINGLE):
        figures = {name: [v[index] for v in values] for name, values in all_figures.items()}
        report.table(f"{call}, {title}: CPU", "ns", chosen, figures, limits)


def bench_single(report, folder, chosen):
    program = os.path.join(folder, "bench_single")
    ours = next(c for c in chosen if c.name == "libagent")
    # Each 3000 B are 1/175 of an allocation sample, which is more than the hook itself.
    unsampled = ours.with_environment("libagent, no samples", LIBAGENT_ALLOC_INTERVAL="1024GiB")
    limit = Limit("ratio", 1.05, "floor")
    shown = [c for c in chosen if c.name != "libagent, not selected"] + [unsampled]
    bench_single_tables(report, program, shown, {c.name: ["0"] for c in shown},
                        {"libagent": limit, unsampled.name: limit}, "one thread in the process")

    # With a thread of the agent's, as after the first period; it is there within 1.5 s of CPU.
    plain = [c for c in chosen if c.name in ("none", "floor")]
    idle = plain[0].with_environment("none, idle thread")
    period = [c.with_environment(c.name, LIBAGENT_PERIOD="1s") for c in (ours, unsampled)]
    arguments = {c.name: ["0"] for c in plain}
    arguments.update({idle.name: ["0", "idle"], ours.name: ["1.5"], unsampled.name: ["1.5"]})
    bench_single_tables(report, program, plain + [idle] + period, arguments, {},
                        "after the first period")
