"""What is compared: each configuration is a preloaded object and some environment."""

import glob
import os
import subprocess

# What of the caller's environment would change a measurement.
FOREIGN = ("LD_", "LIBAGENT_", "MALLOC_", "TCMALLOC_", "CPUPROFILE", "HEAP", "DUMP_HEAPTRACK",
           "GLIBC_TUNABLES", "PYTHON")


# The folder of libagent's profiles
PROFILES = "profiles"


class Configuration:
    """`over`: the configuration of the same allocator without a profiler. `missing`: why it cannot
    be measured, or None."""

    def __init__(self, name, preload="", environment=None, over=None, missing=None):
        self.name = name
        self.preload = preload
        self.extra = environment or {}
        self.over = over
        self.missing = missing

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        kept.update(self.extra)
        kept.update(more)
        if self.preload:
            kept["LD_PRELOAD"] = kept["BENCH_PRELOAD"] = self.preload
        return kept

    def with_environment(self, name, **more):
        return Configuration(name, self.preload, {**self.extra, **more}, self.over, self.missing)


def named(configurations, name):
    return next(c for c in configurations if c.name == name)


def library(pattern):
    for place in ("/usr/lib/*-linux-gnu/", "/usr/lib/"):
        found = sorted(glob.glob(place + pattern))
        if found:
            return found[0]
    return None


def peer(name, pattern, environment=None, over=None):
    found = library(pattern)
    missing = None if found else f"{os.path.basename(pattern)} is not installed (make bench-deps)"
    return Configuration(name, found or "", environment, over, missing)


def refuse_without_profiler(jemalloc):
    """jemalloc can be built without its profiler; it then warns of the option and runs on."""
    if jemalloc.missing:
        return
    said = subprocess.run(["/bin/true"], env=jemalloc.environment(), capture_output=True, text=True)
    if said.stderr:
        jemalloc.missing = "this jemalloc is built without prof: " + said.stderr.split("\n")[0]


def all_configurations(folder, agent, output):
    floor = os.path.join(os.path.abspath(folder), "floor_shim.so")
    jemalloc_prof = peer("jemalloc prof", "libjemalloc.so.2",
                         {"MALLOC_CONF": "prof:true,lg_prof_sample:19"}, "jemalloc")
    refuse_without_profiler(jemalloc_prof)
    return [
        Configuration("none"),
        Configuration("none again"),
        Configuration("floor", floor),
        Configuration("libagent", agent, {"LIBAGENT_OUTPUT": os.path.join(output, PROFILES)}),
        Configuration("libagent, not selected", agent, {"LIBAGENT_PROCESSES": "no-such-program"}),
        peer("tcmalloc", "libtcmalloc.so.4"),
        peer("tcmalloc sampling", "libtcmalloc.so.4", {"TCMALLOC_SAMPLE_PARAMETER": "524288"},
             "tcmalloc"),
        peer("libprofiler", "libprofiler.so.0",
             {"CPUPROFILE": os.path.join(output, "cpuprofile"), "CPUPROFILE_FREQUENCY": "100"}),
        peer("jemalloc", "libjemalloc.so.2"),
        jemalloc_prof,
        peer("heaptrack", "heaptrack/libheaptrack_preload.so",
             {"DUMP_HEAPTRACK_OUTPUT": os.path.join(output, "heaptrack.$$")}),
    ]
