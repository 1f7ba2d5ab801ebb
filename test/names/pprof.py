#!/usr/bin/env python3
"""pprof.py LIBAGENT_SO FOLDER: profiles without names (LIBAGENT_SYMBOLS=off), which google/pprof
(FOLDER/pprof) names by mappings and build ids, beside profiles of the same programs with names of
ours: position independent and not, with two executable segments, and with a separate debug file. Each
address that both have must have the same name."""

import glob
import os
import re
import shutil
import subprocess
import sys

LIBAGENT, FOLDER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
PPROF = os.path.join(FOLDER, "pprof")

SOURCE = r"""
#define SITE __attribute__((noipa))
#ifndef HOT
#define HOT
#endif
static SITE HOT unsigned long hot_leaf(unsigned long n)
{ unsigned long v = 1; while (n--) { v = v * 6364136223846793005u + 1; __asm__ volatile("" : "+r"(v)); } return v; }
static SITE unsigned long cold_leaf(unsigned long n)
{ unsigned long v = 1; while (n--) { v = v * 6364136223846793005u + 3; __asm__ volatile("" : "+r"(v)); } return v; }
SITE HOT unsigned long hot_caller(unsigned long n)
{ unsigned long r = hot_leaf(n); __asm__ volatile("" : "+r"(r)); return r; }
SITE unsigned long cold_caller(unsigned long n)
{ unsigned long r = cold_leaf(n); __asm__ volatile("" : "+r"(r)); return r; }
int main(void)
{ for (int i = 0; i < 2000; i++) if (hot_caller(500000) + cold_caller(500000) == 7) return 1; return 0; }
"""
FORMS = {
    "pie": "-O2 -g -pie",
    "fixed": "-O2 -g -no-pie",
    "two_segments": "-O2 -g -no-pie -DHOT=__attribute__((section(\".hot_text\"))) "
                    "-Wl,--section-start=.hot_text=0x800000",
    "separate": "-O2 -g -pie",
}
WANTED = {"hot_leaf", "hot_caller", "cold_leaf", "cold_caller", "main"}


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def build(form, flags):
    path = os.path.join(FOLDER, f"named_{form}")
    source = path + ".c"
    with open(source, "w") as f:
        f.write(SOURCE)
    run("gcc", *flags.split(), "-Wl,--build-id", "-o", path, source)
    if form == "separate":
        run("objcopy", "--only-keep-debug", path, path + ".debug")
        run("strip", path)
        run("objcopy", f"--add-gnu-debuglink={path}.debug", path)
    return path


def names_of(program, symbols, symbolize):
    """Of the program's own mappings: address to function."""
    output = os.path.join(FOLDER, "profiles")
    shutil.rmtree(output, ignore_errors=True)
    run(program, env=dict(os.environ, LD_PRELOAD=LIBAGENT, LIBAGENT_OUTPUT=output,
                          LIBAGENT_PROFILES="cpu", LIBAGENT_SYMBOLS=symbols))
    raw = run(PPROF, f"-symbolize={symbolize}", "-raw", *glob.glob(output + "/*.cpu.pb.gz"))
    own = {row[0] for row in re.findall(r"^(\d+): 0x\w+/0x\w+/0x\w+ (\S+)", raw, re.M)
           if row[1] == program}
    return {int(at, 16): name for at, mapping, name in
            re.findall(r"^ +\d+: 0x(\w+) M=(\d+) (\S*)", raw, re.M) if mapping in own}


failed = False
for form, flags in FORMS.items():
    program = build(form, flags)
    ours = names_of(program, "names", "none")
    bare = names_of(program, "off", "none")
    theirs = names_of(program, "off", "local")
    if any(bare.values()):
        sys.exit(f"{form}: names, though there should be none: {bare}")
    both = [at for at in ours if theirs.get(at)]
    wrong = [(hex(at), ours[at], theirs[at]) for at in both if ours[at] != theirs[at]]
    seen = {ours[at] for at in both}
    print(f"{form}: {len(both)} addresses, {len(wrong)} named otherwise by pprof {wrong}")
    if wrong or not WANTED <= seen:
        failed = True
        print(f"{form}: FAILED; not met: {WANTED - seen}")
sys.exit(failed)
