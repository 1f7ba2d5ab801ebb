"""Whole programs: CPU time of redis-server for a request, of sqlite3 inserting rows, of python3
whose objects come from malloc. Each round has fresh processes, so that what its memory's layout
does to one is noise among the pairs and not a bias of one configuration."""

import os
import shutil
import socket
import subprocess
import time

from table import Limit, alternate, in_order, paired, standard_error

PEER_ROUNDS = 7
SHORT_ROUNDS = 15
OURS = ("none", "none again", "floor", "libagent")
# A difference of 1 % is to be told: rounds go on until the median's standard error is a quarter of
# that, or the time is up, on a machine too busy for it. How many there are depends on the spread
# alone, never on which way the median lies.
LEAST_ROUNDS, ENOUGH, MOST_S = 9, 0.0025, 90


def rounds_of(chosen, measure):
    """As table.alternate, where measure(configurations) gives {name: figure} of one round."""
    figures = {c.name: [] for c in chosen if not c.missing}
    end = time.monotonic() + MOST_S
    turn = 0
    while True:
        asked = [c for c in chosen if not c.missing and (turn < PEER_ROUNDS or c.name in OURS)]
        for name, figure in measure(in_order(asked, turn)).items():
            figures[name].append(figure)
        turn += 1
        ratios = paired(figures, "libagent", "floor", "ratio")
        if turn >= LEAST_ROUNDS and (standard_error(ratios) < ENOUGH or time.monotonic() > end):
            return figures


def process_cpu_s(pid):
    """All threads', also ended ones', to the nanosecond: the clock that clock_getcpuclockid names
    (CPUCLOCK_SCHED of process pid)."""
    return time.clock_gettime((~pid << 3) | 2)


def on_processor(number):
    """Server and client each have a processor, where there are two. Not by taskset, which would be
    the program that is profiled first."""
    cpus = sorted(os.sched_getaffinity(0))
    return lambda: os.sched_setaffinity(0, {cpus[number % len(cpus)]})


class Redis:
    def __init__(self, configuration):
        self.name = configuration.name
        self.path = os.path.abspath(configuration.name.replace(" ", "-") + ".socket")
        command = ["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "",
                   "--appendonly", "no", "--daemonize", "no"]
        self.server = subprocess.Popen(command, env=configuration.environment(),
                                       preexec_fn=on_processor(0), stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        self.cpu_s = 0

    def wait_until_it_answers(self):
        end = time.monotonic() + 20
        while time.monotonic() < end and self.server.poll() is None:
            with socket.socket(socket.AF_UNIX) as client:
                try:
                    client.connect(self.path)
                    client.sendall(b"PING\r\n")
                    if client.recv(7) == b"+PONG\r\n":
                        return
                except OSError:
                    time.sleep(0.005)
        raise SystemExit(f"{self.name}: redis-server does not answer")

    def load(self, requests):
        before = process_cpu_s(self.server.pid)
        subprocess.run(["redis-benchmark", "-s", self.path, "-P", "16", "-t", "set,get", "-q", "-n",
                        str(requests), "-r", "10000", "-d", "64"], preexec_fn=on_processor(1),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        self.cpu_s += process_cpu_s(self.server.pid) - before

    def end(self):
        self.server.terminate()
        self.server.wait()


def redis_round(configurations):
    """Microseconds a request. The servers of a round are loaded in turns of some 50 ms, so that
    they all see the same of what else the machine does."""
    turns, requests = 8, 25000
    servers = [Redis(c) for c in configurations]
    try:
        for server in servers:
            server.wait_until_it_answers()
            server.load(requests)
            server.cpu_s = 0
        for turn in range(turns):
            for server in in_order(servers, turn):
                server.load(requests)
    finally:
        for server in servers:
            server.end()
    return {server.name: server.cpu_s * 1e6 / (2 * turns * requests) for server in servers}


# About a second each: what the start and the profile at exit cost is then under 0.5 %; the last
# table shows it alone.
ROWS = 600000
SQL = """pragma journal_mode = off; pragma synchronous = off;
create table t(id integer primary key, name text, value real, note text);
create index by_name on t(name);
begin;
%s
commit;
select count(*), sum(length(note)) from t;
"""

PYTHON = """
import json
rows = [{"id": i, "name": "row %d" % i, "tags": [str(i * k) for k in range(5)]}
        for i in range(20000)]
for _ in range(16):
    text = json.dumps(rows)
    rows = json.loads(text)
words = {}
for row in rows:
    for tag in row["tags"]:
        words.setdefault(tag, []).append(row["name"].upper())
print(len(text), len(words))
"""
PYTHON_COMMAND = ("/usr/bin/python3", "-S", "-s", "-c", PYTHON)
PYTHON_SETTINGS = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}


def child_cpu_ms(configuration, expected, command, **more):
    """Of one run, all its threads; what it prints must have `expected` in it."""
    with subprocess.Popen(command, env=configuration.environment(**more), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as started:
        printed = started.stdout.read()
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode or expected not in printed:
        raise SystemExit(f"{configuration.name}: {command[0]}: status {started.returncode}, "
                         f"printed {printed}")
    return (usage.ru_utime + usage.ru_stime) * 1e3


def write_sql():
    rows = (f"insert into t values({i}, 'name {i * 7919 % 100003}', {i}.5, "
            f"'note {'x' * (i % 50)}');" for i in range(ROWS))
    with open("bulk.sql", "w") as file:
        file.write(SQL % "\n".join(rows))


def missing_program(name):
    return None if shutil.which(name) else f"{name} is not installed (make bench-deps)"


def bench_program(report, chosen, name, title, unit, limit, measure):
    """Whether the program is there."""
    shown = [c for c in chosen if c.name != "libagent, not selected"]
    missing = missing_program(name)
    if missing:
        report.missing[name] = missing
        print(f"\n{title}\nNOT MEASURED: {missing}")
        return False
    figures = rounds_of(shown, measure)
    print(f"\n{len(figures['floor'])} rounds, of peers {PEER_ROUNDS}", end="")
    report.table(title, unit, shown, figures, {"libagent": Limit("ratio", limit, "floor")})
    return True


def bench_redis(report, _, chosen):
    bench_program(report, chosen, "redis-server", "redis-server: CPU for a request of "
                  "redis-benchmark -P 16 (Debian's takes jemalloc itself)", "us", 1.01, redis_round)


def bench_sqlite(report, _, chosen):
    write_sql()
    command = ["sqlite3", ":memory:", ".read bulk.sql"]

    def measure(configurations):
        return {c.name: child_cpu_ms(c, f"{ROWS}|", command) for c in configurations}

    bench_program(report, chosen, command[0], f"sqlite3: CPU to insert {ROWS:,} rows", "ms", 1.01,
                  measure)


def bench_python(report, _, chosen):
    def measure(configurations):
        return {c.name: child_cpu_ms(c, "", PYTHON_COMMAND, **PYTHON_SETTINGS)
                for c in configurations}

    if not bench_program(report, chosen, PYTHON_COMMAND[0],
                         "python3 with PYTHONMALLOC=malloc: CPU", "ms", 1.02, measure):
        return
    short = alternate(chosen, SHORT_ROUNDS, lambda c: child_cpu_ms(
        c, "", PYTHON_COMMAND[:-1] + ("pass",), **PYTHON_SETTINGS))
    report.table("python3 that only starts and ends: CPU, with a profile written", "ms", chosen,
                 short)
