"""Programs under libagent.so, their ends, and the files that they wrote beside what they sent."""

import os
import pathlib
import re
import subprocess
import time

import profile_rules
from receivers import TYPES, Folder

LIBRARY = os.environ["LIBAGENT_SO"]
PROGRAMS = pathlib.Path(os.environ["PROGRAMS"])
UPLOADER = os.environ["LIBAGENT_UPLOADER"]
RECURSION = PROGRAMS / "prog_recursion"
# "heap 3 for pyroscope at 127.0.0.1:4040: sent" at the level debug, for each profile that came to an end.
END = re.compile(r"(\w+) (\d+) for (\w+)(?: at \S+)?: (sent|dropped|unknown|kept in the spool)$", re.M)


def clean_environment():
    """The environment, without what would set the agent up otherwise."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("LIBAGENT_", "DD_", "OTEL_", "PYROSCOPE_", "PARCA_"))}


def environment_of(folder, **options):
    environment = clean_environment()
    environment |= {"LD_PRELOAD": LIBRARY, "LIBAGENT_OUTPUT": f"{folder}/profiles",
                    "LIBAGENT_LOG": "debug", "LIBAGENT_LOG_FILE": f"{folder}/log",
                    "LIBAGENT_FREQUENCY": "101", "LIBAGENT_ALLOC_INTERVAL": "64KiB"}
    environment |= {f"LIBAGENT_{name}": str(value) for name, value in options.items()}
    return environment


class Profiled:
    """A program's run: `seconds` of wall time, CPU time as the kernel counts it, its log."""

    def __init__(self, arguments, more=None, **options):
        self.folder = Folder()
        environment = environment_of(self.folder.path, **options) | (more or {})
        self.begin = time.monotonic()
        self.process = subprocess.Popen([str(each) for each in arguments], env=environment,
                                        stdout=subprocess.DEVNULL)
        self.pid = self.process.pid

    def wait(self):
        _, status, usage = os.wait4(self.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - self.begin
        self.cpu_ns = int((usage.ru_utime + usage.ru_stime) * 1e9)
        self.resident_kib = usage.ru_maxrss
        return self

    def log(self):
        path = self.folder.path / "log"
        return path.read_text() if path.exists() else ""

    def ends(self):
        """(family, sequence, backend): the word of each profile's end."""
        return [((family, int(sequence), backend), word)
                for family, sequence, backend, word in END.findall(self.log())]

    def files(self, family):
        """Sequence: profile."""
        result = {}
        for path in self.folder.path.glob(f"profiles/*.{self.pid}.*.{family}.pb.gz"):
            profile = TYPES["Profile"]()
            profile.ParseFromString(profile_rules.unpack(path.read_bytes()))
            result[int(path.name.split(".")[-4])] = profile
        return result

    def close(self):
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        self.folder.close()


def recursion(milliseconds, more=None, **options):
    """So much CPU time, with allocations, to its end."""
    run = Profiled([RECURSION, "malloc", milliseconds, "main"], more, **options).wait()
    assert run.process.returncode == 0, run.log()
    return run
