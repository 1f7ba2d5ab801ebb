"""redis under load, and backends that are up half of the time: soak.py SECONDS.

What has to hold, of each backend:
  1. at least 99.9 % of the windows arrive, and none twice;
  2. the CPU time that arrived, and that of windows that were counted as dropped or unknown, is the
     process's, as the kernel counts it, within 2 %;
  3. each window that did not arrive was counted as one of these.

nginx is in front of a receiver (node) of Pyroscope's and Parca's requests. They are down in turn:
without nginx nobody listens, without node nginx says 502. Datadog's receiver has nothing in front of it,
and is killed in the middle of requests, in turn when one has come whole and is not kept yet, and when it
is kept and not answered yet: nobody can tell these two from outside, so both have to be counted as
unknown, and are none of the 0.1 %. What is still in the spool at the end is sent by
libagent-uploader."""

import collections
import os
import signal
import subprocess
import sys
import threading
import time

import profile_rules
from profiled import UPLOADER, Profiled, clean_environment
from receivers import Nginx, Node, accepts, free_port, wait_until

# Of each the first half up, the second down.
CYCLE_SECONDS = 14
ARRIVED_LEAST, CPU_WITHIN = 0.999, 0.02
KINDS = ("pyroscope", "parca")
KILLED = "datadog"
# A receiver that is to be killed takes its time, twice: longer than it takes to see that.
HOLD_MS, UP_SECONDS, DOWN_SECONDS = 500, 8, 3
# A round of requests, then a rest: some tenths of a processor.
LOAD = """while :; do
    redis-benchmark -p "$0" -q -c 4 -n 3000 -t set,get,lpush,lrange_100 > /dev/null
    sleep 0.5
done"""


def load(port):
    return subprocess.Popen(["sh", "-c", LOAD, str(port)], start_new_session=True)


def stop_load(process):
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


class Killer:
    """Kills the receiver amid requests, and starts it again."""

    def __init__(self, node):
        self.node = node
        self.kills = collections.Counter()
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        for turn in range(1 << 30):
            if self.ends.wait(UP_SECONDS):
                return
            moment = ("come", "taken")[turn % 2]
            before = self.node.count(moment)
            while self.node.count(moment) == before:
                if self.ends.wait(0.01):
                    return
            self.node.kill()
            self.kills[moment] += 1
            self.ends.wait(DOWN_SECONDS)
            self.node.start()

    def close(self):
        self.ends.set()
        self.thread.join()


def drain(spool, url):
    """What the process left is sent by the sender beside it."""
    sender = subprocess.Popen([UPLOADER], env=dict(
        clean_environment(), LIBAGENT_SPOOL=str(spool), LIBAGENT_UPLOAD_URL=url))
    try:
        wait_until(lambda: not list(spool.glob("*.spool")), "the spool is not sent")
    finally:
        sender.terminate()
        sender.wait()


def run(seconds, node, nginx, url):
    """redis with its load, and the backends up and down; its run after its end."""
    port = free_port()
    redis = Profiled(["/usr/bin/redis-server", "--port", port, "--save", "", "--bind", "127.0.0.1"],
                     PERIOD="1s", PROFILES="cpu,alloc,heap", UPLOAD_URL=url, OUTPUT_LIMIT="4GiB",
                     SPOOL=f"{node.folder.path}/spool")
    wait_until(lambda: accepts(("127.0.0.1", port)), "redis does not listen")
    working = load(port)
    try:
        end = time.monotonic() + seconds
        for cycle in range(1 << 30):
            time.sleep(CYCLE_SECONDS / 2)
            if time.monotonic() > end:
                break
            down = (nginx, node)[cycle % 2]
            down.stop()
            time.sleep(CYCLE_SECONDS / 2)
            down.start()
    finally:
        stop_load(working)
        redis.process.terminate()
        redis.wait()
    assert redis.process.returncode == 0, redis.process.returncode
    return redis


def in_files(redis, kind):
    """The windows that a backend should get, by family and time: CPU time and sequence. What is live
    goes to Parca apart, as of the window's end."""
    windows = {}
    if kind == "datadog":
        return {("all", profile.time_nanos): (profile_rules.total(profile, "cpu"), sequence)
                for sequence, profile in redis.files("cpu").items()}
    for family in ("cpu", "heap"):
        for sequence, profile in redis.files(family).items():
            if kind == "parca" and family == "heap":
                windows["live", profile.time_nanos + profile.duration_nanos] = (0, sequence)
                if profile_rules.total(profile, "alloc_objects") == 0:  # a last window can be short
                    continue
            windows[family, profile.time_nanos] = (profile_rules.total(profile, "cpu"), sequence)
    return windows


def judge(kind, records, redis):
    """Prints what came of a backend's windows. False: something does not hold."""
    windows = in_files(redis, kind)
    copies = collections.Counter()
    cpu_ns = 0
    for record, profile in records:
        is_live = profile_rules.types_of(profile) == profile_rules.LIVE
        copies["live" if is_live else profile_rules.family_of(record), profile.time_nanos] += 1
        cpu_ns += profile_rules.total(profile, "cpu") + profile_rules.total(profile, "cpu-time")
    arrived = [window for window in windows if copies[window]]
    missing = {window: value for window, value in windows.items() if not copies[window]}
    ends = collections.defaultdict(set)
    for (family, sequence, backend), word in redis.ends():
        if backend == kind:
            ends[family, sequence].add(word)
    lost_ns = 0
    uncounted = []
    for (family, _), (window_ns, sequence) in missing.items():
        if ends["heap" if family == "live" else family, sequence] & {"dropped", "unknown"}:
            lost_ns += window_ns
        else:
            uncounted.append((family, sequence))
    unknown = sum("unknown" in words for words in ends.values())
    told = [window for window in missing if kind == KILLED and "unknown" in ends["all", missing[window][1]]]
    share = (len(arrived) + len(told)) / len(windows)
    apart = (cpu_ns + lost_ns) / redis.cpu_ns - 1
    spooled = sum("kept in the spool" in words for words in ends.values())
    twice = [window for window, count in copies.items() if count > 1]
    foreign = [window for window in copies if window not in windows]
    print(f"{kind}: {len(arrived)} of {len(windows)} windows arrived ({share:.2%}"
          f"{' with those of a killed receiver' if told else ''}), {len(twice)} twice, "
          f"{len(foreign)} of no file, {spooled} by the spool, {unknown} unknown, {len(missing)} lost "
          f"({len(uncounted)} of them not counted); CPU time: {cpu_ns / 1e9:.3f} s arrived, "
          f"{lost_ns / 1e9:.3f} s lost, {redis.cpu_ns / 1e9:.3f} s of the process ({apart:+.2%})")
    return (share >= ARRIVED_LEAST and not twice and not foreign and not uncounted and spooled
            and abs(apart) <= CPU_WITHIN)


def judge_killed(records, redis, kills):
    """Both kinds of killed requests are there, and are counted."""
    good = judge(KILLED, records, redis)
    unknown = sum(word == "unknown" for (_, _, kind), word in redis.ends() if kind == KILLED)
    print(f"{KILLED}: killed {kills['come']} times before a profile was kept, {kills['taken']} times after")
    return good and min(kills["come"], kills["taken"]) >= 1 and unknown >= sum(kills.values())


def main():
    seconds = float(sys.argv[1])
    node = Node()
    killed = Node(hold_ms=HOLD_MS)
    nginx = Nginx(upstream=f"http://127.0.0.1:{node.port}")
    url = ",".join(f"{kind}+http://127.0.0.1:{nginx.port}" for kind in KINDS)
    url += f",{KILLED}+http://127.0.0.1:{killed.port}"
    redis = None
    killer = Killer(killed)
    try:
        redis = run(seconds, node, nginx, url)
        killer.close()
        spool = node.folder.path / "spool"
        print(f"left in the spool: {len(list(spool.glob('*.spool')))}, "
              f"claimed by nobody who lives: {len(list(spool.glob('*.sending')))}")
        killed.answer_at_once()  # it took longer for a window than the next one did to come
        drain(spool, url)
        node.stop()
        good = [judge(kind, node.taken(kind), redis) for kind in KINDS]
        good.append(judge_killed(killed.taken(KILLED), redis, killer.kills))
        return 0 if all(good) else 1
    finally:
        killer.close()
        for each in (nginx, node, killed, redis):
            if each:
                each.close()


if __name__ == "__main__":
    sys.exit(main())
