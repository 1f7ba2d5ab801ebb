"""Whether the live heap has the same ten largest sites as jemalloc's and gperftools' heap profiles of
the same run: libagent.so lies over their allocator, and both profiles are written at one moment. A
site is the address that an allocation returns to, outside allocators and libagent."""

import glob
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter

from configurations import Configuration, named
from programs import Redis
from table import Limit, Verdict

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from top import integers, message, read  # noqa: E402

TOP = 10
INTERVAL = 128
# So that what sampling does is 18 %.
SAMPLES = 30
ALLOCATORS = ("libagent", "libjemalloc", "libtcmalloc", "libstdc++")

# Objects of many kinds; both profiles are asked for by functions that their libraries export.
PYTHON = """
import ctypes, json
rows = [{"id": i, "name": "row %d" % i, "tags": [str(i * k) for k in range(5)]}
        for i in range(12000)]
text = json.dumps(rows)
again = json.loads(text)
words = {tag: row["name"].upper().encode() for row in rows for tag in row["tags"]}
both = [(float(row["id"]), {row["name"]}) for row in again]
here = ctypes.CDLL(None)
assert here.libagent_flush(60000) == 0
if hasattr(here, "mallctl"):
    assert here.mallctl(b"prof.dump", None, None, None, ctypes.c_size_t(0)) == 0
else:
    here.HeapProfilerDump(b"asked")
"""


def sites_of_libagent(path):
    profile = message(read(path))
    texts = [text.decode() for text in profile[6]]
    types = [texts[message(kind)[1][0]] for kind in profile[1]]
    value = types.index("inuse_space")
    mappings = {}
    for data in profile[3]:
        mapping = message(data)
        mappings[mapping[1][0]] = (texts[mapping.get(5, [0])[0]], mapping.get(2, [0])[0],
                                   mapping.get(4, [0])[0])
    places = {}
    for data in profile[4]:
        location = message(data)
        name, start, offset = mappings.get(location.get(2, [0])[0], ("", 0, 0))
        places[location[1][0]] = (name, location.get(3, [0])[0] - start + offset + 1)
    sites = Counter()
    for data in profile[2]:
        sample = message(data)
        amount = list(integers(sample[2]))[value]
        sites[site_of([places[i] for i in integers(sample.get(1, []))])] += amount
    return sites


def site_of(places):
    """The innermost place that is no allocator's."""
    for name, offset in places:
        if not os.path.basename(name).startswith(ALLOCATORS):
            return os.path.basename(name), offset
    return "", 0


def sites_of_peer(path, interval):
    """jemalloc's and gperftools' format: `@ ADDRESS...` before or behind the numbers, then the maps.
    jemalloc tells what it sampled (interval); gperftools all."""
    sites = Counter()
    with open(path) as file:
        text, _, maps = file.read().partition("MAPPED_LIBRARIES:")
    ranges = []
    for line in re.finditer(r"^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \d+ +(/\S+)", maps, re.M):
        start, end, offset = (int(line[i], 16) for i in (1, 2, 3))
        ranges.append((start, end, offset, line[4]))

    def place(address):
        for start, end, offset, name in ranges:
            if start < address <= end:
                return name, address - start + offset
        return "", address

    addresses = None
    for line in text.splitlines():
        numbers = re.search(r"(\d+): +(\d+) \[", line)
        if "@ 0x" in line:
            addresses = [int(word, 16) for word in line.partition("@")[2].split()]
        if not numbers or not addresses or (interval and not line.lstrip().startswith("t*")):
            continue
        objects, size = int(numbers[1]), int(numbers[2])
        if objects and interval:
            size /= -math.expm1(-size / objects / interval)
        sites[site_of([place(a) for a in addresses])] += size
    return sites


def largest(theirs):
    """Their ten largest, as far as these are more than SAMPLES of ours: in redis-server a few sites
    have all there is. What the loader allocates it does before any preload is there."""
    seen = [(site, size) for site, size in theirs.most_common() if not site[0].startswith("ld-linux")]
    return [(site, size) for site, size in seen[:TOP] if size >= SAMPLES * INTERVAL]


def agreeing(ours, top):
    """How many are among ours; or as large as our last of these but for what sampling does, and
    jemalloc, which tells the sizes of its classes, up to a quarter more than was asked for."""
    last = ours.most_common(len(top))[-1][1]
    return sum(ours[site] >= 0.75 * last for site, _ in top)


def run_python(configuration):
    environment = configuration.environment(PYTHONMALLOC="malloc", PYTHONHASHSEED="0")
    subprocess.run(["/usr/bin/python3", "-S", "-s", "-c", PYTHON], env=environment, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run_redis(configuration):
    """At its end redis-server leaves all as it is."""
    server = Redis(configuration)
    server.wait_until_it_answers()
    for command in ("set", "lpush", "sadd", "hset", "zadd"):
        subprocess.run(["redis-benchmark", "-s", server.path, "-t", command, "-q", "-n", "40000", "-r",
                        "20000", "-d", "200"], stdout=subprocess.DEVNULL, check=True)
    server.end()


PROGRAMS = {"python3": run_python, "redis-server": run_redis}


def beside(agent, peer, folder):
    """libagent over the peer's allocator, each with its profiles in `folder`."""
    extra = {"LIBAGENT_OUTPUT": folder, "LIBAGENT_PROFILES": "heap", "LIBAGENT_PERIOD": "0",
             "LIBAGENT_ALLOC_INTERVAL": str(INTERVAL), "LIBAGENT_MEMORY": "256MiB"}
    if "jemalloc" in peer.name:
        extra["MALLOC_CONF"] = (f"prof:true,prof_final:true,prof_prefix:{folder}/peer,"
                                f"lg_prof_sample:{INTERVAL.bit_length() - 1}")
    else:
        extra["HEAPPROFILE"] = f"{folder}/peer"
    return Configuration(peer.name, f"{agent.preload} {peer.preload}", extra)


def bench_sites(report, _, chosen):
    agent = named(chosen, "libagent")
    print(f"\nthe {TOP} largest sites of the live heap, beside another profiler's of the same run")
    for name in ("jemalloc prof", "tcmalloc"):
        peer = named(chosen, name)
        if peer.missing:
            report.missing[name] = peer.missing
            continue
        for program, run in PROGRAMS.items():
            with tempfile.TemporaryDirectory() as folder:
                run(beside(agent, peer, folder))
                found = sorted(glob.glob(f"{folder}/{program}*.heap.pb.gz"))
                if not found:
                    raise SystemExit(f"{program} beside {name}: no profile of ours")
                dumps = sorted(glob.glob(f"{folder}/peer*.heap"), key=os.path.getmtime)
                if not dumps:
                    raise SystemExit(f"{program} beside {name}: no profile of theirs")
                asked = 0 if program == "python3" else -1
                ours = sites_of_libagent(found[asked])
                theirs = sites_of_peer(dumps[asked], INTERVAL if "jemalloc" in name else 0)
            top = largest(theirs)
            same = agreeing(ours, top)
            print(f"{program} beside {name}: {same} of {len(top)}")
            for site, size in top:
                print(f"    {site[0]}+{site[1]:#x}: theirs {size / 1024:.0f} KiB, ours "
                      f"{ours[site] / 1024:.0f} KiB")
            report.verdicts.append((f"{program}, largest sites that {name} has and libagent not",
                                    Verdict(Limit("value", 0.5, ""), [len(top) - same] * 2, "")))
