#!/usr/bin/env python3
"""made.py LIBAGENT_SO FOLDER: names of code that is made at run time, as CPython 3.12 and later (-X perf)
and Java (jcmd PID Compiler.perfmap, from 17 on) tell them to perf. What is not on the machine is left
out, and said; node is in test/preload/check_made_names.c."""

import glob
import os
import re
import shutil
import subprocess
import sys

LIBAGENT, FOLDER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
PPROF = os.path.join(FOLDER, "pprof")

PYTHON = """
import os, time
def busy_python(n):
    x = 1
    for i in range(n):
        x = (x * 31 + i) & 0xffffffff
    return x
end = time.process_time() + 1
while time.process_time() < end:
    busy_python(100000)
print(os.getpid())
"""
JAVA = """
public class Made {
    static int busyJava(int n) { int x = 1; for (int i = 0; i < n; i++) x = x * 31 + i; return x; }
    public static void main(String[] arguments) throws Exception {
        String pid = String.valueOf(ProcessHandle.current().pid());
        int sum = 0;
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < 10000; i++)
                sum += busyJava(100000);
            ProcessBuilder map = new ProcessBuilder("jcmd", pid, "Compiler.perfmap");
            map.environment().remove("LD_PRELOAD");
            map.redirectErrorStream(true);
            map.redirectOutput(new java.io.File("/dev/null"));
            if (map.start().waitFor() != 0)
                throw new Exception("jcmd");
        }
        if (sum == 7)
            System.out.println(sum);
        System.out.println(pid);
    }
}
"""


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def pythons():
    pyenv = os.path.join(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")), "versions")
    for name in ("python3.12", "python3.13", "python3.14", "python3",
                 *sorted(glob.glob(pyenv + "/3.1[2-9]*/bin/python3"))):
        text = "import sys; print(sys.executable, sys.version_info >= (3, 12))"
        found = shutil.which(name) and subprocess.run([name, "-c", text], capture_output=True, text=True)
        path, _, is_new = (found.stdout if found else "").strip().rpartition(" ")
        if is_new == "True":
            yield os.path.realpath(path)


def share_of(function, name, *command):
    """The share of the program's CPU time with the function on the stack."""
    output = os.path.join(FOLDER, "made")
    shutil.rmtree(output, ignore_errors=True)
    out = run(*command, cwd=FOLDER, env=dict(
        os.environ, LD_PRELOAD=LIBAGENT, LIBAGENT_OUTPUT=output, LIBAGENT_PROFILES="cpu",
        LIBAGENT_PROCESSES=name))
    os.unlink(f"/tmp/perf-{int(out)}.map")
    top = run(PPROF, "-symbolize=none", "-top", "-nodecount=0", "-nodefraction=0", "-edgefraction=0",
              *glob.glob(output + "/*.cpu.pb.gz"))
    rows = re.findall(r"^ +\S+ +\S+ +\S+ +\S+ +([0-9.]+)% +(.*)$", top, re.M)
    return max([float(share) for share, found in rows if function in found], default=0)


def main():
    failed = False
    cases = {path: ("py::busy_python:", os.path.basename(path), path, "-X", "perf", "-c", PYTHON)
             for path in pythons()}
    if shutil.which("jcmd") and shutil.which("javac"):
        with open(os.path.join(FOLDER, "Made.java"), "w") as f:
            f.write(JAVA)
        run("javac", "Made.java", cwd=FOLDER)
        cases["java"] = ("Made.busyJava(int)", "java", "java", "Made")
    else:
        print("java: jcmd and javac are not here")
    if len(cases) == ("java" in cases):
        print("python: no 3.12 or later is here")
    for what, case in cases.items():
        share = share_of(*case)
        print(f"{what}: {share} % in the function that the program spends its time in")
        failed |= share < 60
    sys.exit(failed)


main()
