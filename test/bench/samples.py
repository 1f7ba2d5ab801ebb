"""What one sample costs at a depth of 50, by bench_samples, which says how; and whether the agent's
own account of what it costs is true."""

import glob
import os
import statistics
import sys
import tempfile
from collections import Counter

from calls import output_of
from configurations import Configuration, named
from programs import PYTHON_COMMAND, PYTHON_SETTINGS, child_cpu_ms
from table import Limit, Verdict, alternate

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from top import add_profile  # noqa: E402

ROUNDS = 11
PAIRS = 7
# So that what the agent does is far above the noise of python3's runs.
DENSE = {"LIBAGENT_ALLOC_INTERVAL": "512", "LIBAGENT_FREQUENCY": "1000", "LIBAGENT_PERIOD": "1s"}


def descent_us(configuration, program, what):
    ns, descents = output_of(configuration, program, what).split()
    return float(ns) / 1e3, int(descents)


def figure_of_profile(folder, name):
    """One of the agent's own figures, from the comments of an uncompressed profile."""
    with open(glob.glob(f"{folder}/*.cpu.pb")[0], "rb") as file:
        profile = file.read()
    text = b"libagent: " + name.encode() + b": "
    start = profile.index(text)
    return int(profile[start + len(text):start + profile[start - 1]])  # the length stands before


def check_recorded(report, program, configuration, what, figures, without):
    """That what was measured were samples: the profile has one for each descent. And that the
    agent tells what they cost: within a quarter of what the process took more than `without`."""
    name, time = figures
    with tempfile.TemporaryDirectory() as folder:
        kept = configuration.with_environment(configuration.name, LIBAGENT_OUTPUT=folder,
                                              LIBAGENT_COMPRESSION="none")
        taken, descents = descent_us(kept, program, what)
        recorded = figure_of_profile(folder, name)
        spent = figure_of_profile(folder, time)
    if recorded < descents:
        raise SystemExit(f"{descents} descents, but {name}: {recorded}")
    more = taken - min(descent_us(*without)[0] for _ in range(3))
    told = spent / recorded / 1e3
    print(f"{recorded} {name} in {descents} descents, {told:.2f} us each by the agent's own account")
    report.verdicts.append((f"{name}, as the agent tells their cost, {told:.2f} us",
                            Verdict(Limit("ratio", 0.25, "the measured one, apart from 1"),
                                    [abs(told / more - 1)] * 2, "")))


def overhead_told_ms(folder):
    flat = Counter()
    for path in glob.glob(f"{folder}/*.cpu.pb.gz"):
        add_profile(path, "cpu", None, flat, Counter())
    return flat["libagent overhead"] / 1e6


def check_process(report, chosen):
    """That the agent's samples of itself, handlers, hooks and threads, sum up to what a whole process
    has more in its rusage than without it: within a quarter."""
    none, ours = named(chosen, "none"), named(chosen, "libagent")
    more, told = [], []
    for _ in range(PAIRS):
        with tempfile.TemporaryDirectory() as folder:
            without = child_cpu_ms(none, "", PYTHON_COMMAND, **PYTHON_SETTINGS)
            taken = child_cpu_ms(ours, "", PYTHON_COMMAND, LIBAGENT_OUTPUT=folder, **DENSE,
                                 **PYTHON_SETTINGS)
            more.append(taken - without)
            told.append(overhead_told_ms(folder))
    print(f"python3: rusage {statistics.median(more):.0f} ms more than without libagent, of which it "
          f"tells {statistics.median(told):.0f} ms")
    report.verdicts.append(("libagent overhead, as the profiles of python3 tell it",
                            Verdict(Limit("ratio", 0.25, "the difference in rusage, apart from 1"),
                                    [abs(t / m - 1) for t, m in zip(told, more)], "")))


def measured(report, program, title, rows, limits, bases=()):
    """rows: (configuration, argument of bench_samples)."""
    argument = {c.name: what for c, what in rows}
    chosen = [c for c, _ in rows]
    figures = alternate(chosen, ROUNDS,
                        lambda c: descent_us(c, program, argument[c.name])[0])
    report.table(title, "us", chosen, figures, limits, bases)


def bench_samples(report, folder, chosen):
    program = os.path.join(folder, "bench_samples")
    empty = Configuration("empty handler")
    again = Configuration("empty handler again")
    ours = named(chosen, "libagent")
    handlers = [(empty, "empty"), (again, "empty"), (ours, "timer"),
                (named(chosen, "libprofiler"), "signal")]
    measured(report, program, "a CPU sample 50 functions deep: CPU, with the signal's way",
             handlers, {"libagent": Limit("difference", 3, empty.name)}, (empty.name,))
    check_recorded(report, program, ours, "timer", ("cpu samples", "nanoseconds in sampling handlers"),
                   (ours, program, "nothing"))

    # Every malloc of 1 KiB is a sample at the small interval (but for one in e^64), none at the
    # large one.
    pairs = []
    for c, most, least in (
            (ours, {"LIBAGENT_ALLOC_INTERVAL": "16"}, {"LIBAGENT_ALLOC_INTERVAL": "1024GiB"}),
            (named(chosen, "tcmalloc sampling"), {"TCMALLOC_SAMPLE_PARAMETER": "16"},
             {"TCMALLOC_SAMPLE_PARAMETER": "0"}),
            (named(chosen, "jemalloc prof"), {"MALLOC_CONF": "prof:true,lg_prof_sample:4"},
             {"MALLOC_CONF": "prof:true,lg_prof_sample:40"})):
        without = c.with_environment(f"{c.name}: none", **least)
        every = c.with_environment(f"{c.name}: each", **most)
        every.over = without.name
        pairs += [(without, "malloc"), (every, "malloc")]
    measured(report, program, "an allocation sample 50 functions deep: CPU, with malloc and free",
             pairs, {"libagent: each": Limit("difference", 3, "libagent: none")})
    each, none = (named([c for c, _ in pairs], f"libagent: {name}") for name in ("each", "none"))
    check_recorded(report, program, each, "malloc",
                   ("allocation samples", "nanoseconds in allocation hooks"), (none, program, "malloc"))
    check_process(report, chosen)
