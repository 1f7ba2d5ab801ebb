#!/usr/bin/env python3
"""corpus.py NAMES_OF FOLDER: names of every function of a corpus of binaries, made in FOLDER, beside
llvm-symbolizer's: at its first, middle and last byte. What nm says of the address tells differences
by kind. Fails where more than 0.1 % of all are of no known kind."""

import os
import subprocess
import sys

NAMES_OF, FOLDER = os.path.abspath(sys.argv[1]), sys.argv[2]
MOST_UNKNOWN = 0.001

C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) static int twice(int x) { return 2 * x + rand(); }
__attribute__((noinline)) int sum(const int *v, int n)
{ int s = 0; for (int i = 0; i < n; i++) s += twice(v[i]); return s; }
extern int alias(const int *, int) __attribute__((alias("sum")));
static int chosen(void) { return 7; }
static void *choose(void) { return (void *)chosen; }
int picked(void) __attribute__((ifunc("choose")));
int bare(void); int bare_too(void);
__asm__(".text\n.globl bare\nbare: nop\n nop\n mov $1, %eax\n ret\n.globl bare_too\nbare_too: nop\n"
        " xor %eax, %eax\n ret\n.p2align 6\n");
int main(int argc, char **argv)
{
    int v[100];
    for (int i = 0; i < 100; i++) v[i] = (i * 7919 + argc) % 100;
    qsort(v, 100, sizeof(v[0]), compare);
    printf("%d %d %d %zu\n", sum(v, 100), alias(v, 1) + picked(), bare() + bare_too(), strlen(argv[0]));
    return 0;
}
"""
CXX = r"""
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>
namespace { struct Hidden { int f(int x) { return x * 3; } }; }
struct Base { virtual ~Base() {} virtual int f(int x) = 0; };
template <typename T> struct Derived : Base { T t; int f(int x) override { return int(t) + x; } };
struct Other { virtual int g() { return 1; } virtual ~Other() {} };
struct Both : Derived<long>, Other { int g() override { return 2; } int f(int x) override { return x; } };
template <typename... A> std::string join(A... a) { std::string s; (void)std::initializer_list<int>{(s += std::to_string(a), 0)...}; return s; }
int main(int argc, char **)
{
    std::map<std::string, std::vector<int>> m;
    for (int i = 0; i < 100; i++) m[std::to_string(i % argc)].push_back(i);
    std::function<int(int)> f = [&](int x) { return x + (int)m.size(); };
    std::vector<std::unique_ptr<Base>> all;
    all.emplace_back(new Derived<double>); all.emplace_back(new Both);
    int s = Hidden().f(argc);
    for (auto &p : all) s += p->f(f(argc));
    try { if (s == 12345) throw std::string("x"); } catch (std::string &e) { s++; }
    std::sort(m.begin()->second.begin(), m.begin()->second.end(), [](int a, int b) { return a > b; });
    std::cout << join(1, 2L, 3.0) << s << "\n";
}
"""
RUST = r"""
use std::collections::HashMap;
fn fill<T: std::fmt::Display>(m: &mut HashMap<String, usize>, t: T) { *m.entry(t.to_string()).or_insert(0) += 1; }
fn main() { let mut m = HashMap::new(); for i in 0..100u32 { fill(&mut m, i % 7); fill(&mut m, "x"); }
    let mut v: Vec<_> = m.iter().map(|(a, b)| (b, a)).collect(); v.sort(); println!("{:?}", v); }
"""
GO = r"""
package main
// static int f(int x) { return x * 3; }
import "C"
import ("fmt"; "sort")
func main() { v := []int{3, 1, int(C.f(2))}; sort.Ints(v); fmt.Println(v) }
"""


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def has(tool):
    return subprocess.run(["sh", "-c", f"command -v {tool}"], capture_output=True).returncode == 0


def write(name, text):
    path = os.path.join(FOLDER, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def make_corpus():
    """(file, file with all symbols) of each."""
    os.makedirs(FOLDER, exist_ok=True)
    c, cxx = write("c.c", C), write("cxx.cc", CXX)
    rust, go = write("rust.rs", RUST), write("go.go", GO)
    whole = []
    for source, compilers in ((c, ("gcc", "clang")), (cxx, ("g++", "clang++"))):
        for compiler in compilers:
            for name, flags in (("O0", "-O0"), ("O1", "-O1"), ("O2", "-O2"), ("O3", "-O3"),
                                ("nopie", "-O2 -no-pie"), ("lto", "-O2 -flto"),
                                ("gz", "-O2 -gz=zlib"), ("sections", "-O2 -ffunction-sections"),
                                ("lld", "-O2 -fuse-ld=lld"), ("nog", "-O2 -g0")):
                out = os.path.join(FOLDER, f"{os.path.basename(source)}.{compiler}.{name}")
                run(compiler, "-g", *flags.split(), "-Wl,--build-id", "-w", "-o", out, source)
                whole.append(out)
    if has("rustc"):
        for name, flags in (("legacy", []), ("v0", ["-C", "symbol-mangling-version=v0"])):
            out = os.path.join(FOLDER, f"rust.{name}")
            run("rustc", "-g", "-O", *flags, "-C", "link-arg=-Wl,--build-id", "-o", out, rust)
            whole.append(out)
    if has("go"):
        out = os.path.join(FOLDER, "go.cgo")
        run("go", "build", "-o", out, go, env=dict(os.environ, CGO_ENABLED="1", GOFLAGS="-mod=mod"))
        whole.append(out)
    corpus = [(path, path) for path in whole]
    for path in whole:
        if not path.endswith(("O2", "O3", "v0", "lto")):
            continue
        linked = path + ".linked"
        run("objcopy", "--only-keep-debug", path, linked + ".debug")
        run("strip", "-o", linked, path)
        run("objcopy", f"--add-gnu-debuglink={linked}.debug", linked)
        corpus.append((linked, path))
    return corpus


def functions(path):
    """[(start, end, name)] of nm's, and all names by start."""
    rows, names = [], {}
    for line in run("nm", "-S", "--defined-only", path).splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[2] in "tTwWi":
            start, size = int(fields[0], 16), int(fields[1], 16)
            rows.append((start, start + size, fields[3]))
        if len(fields) >= 3:
            names.setdefault(int(fields[0], 16), set()).add(fields[-1])
    return sorted(rows), names


def theirs_of(path, addresses):
    text = run("llvm-symbolizer", "--functions=linkage", "--no-demangle", "--inlining=false", "-e",
               path, input="".join(f"0x{a:x}\n" for a in addresses))
    blocks = text.strip("\n").split("\n\n")
    return [block.split("\n")[0] for block in blocks]


def kind_of(address, ours, theirs, rows, names):
    if ours == theirs or (ours == "" and theirs == "??"):
        return "equal"
    holders = [r for r in rows if r[0] <= address < r[1]]
    if any(ours in names[r[0]] and (theirs in names[r[0]] or theirs.split("(")[0] in names[r[0]])
           for r in holders):
        return "two names of one function"
    if ours in {r[2] for r in holders} and theirs not in {r[2] for r in holders}:
        # debugging information has names of sources: without .cold, .part.0, .lto_priv.0
        if ours.startswith(theirs + ".") or theirs in ("??", ""):
            return "a part of a function, or one without debugging information"
    if len(holders) > 1 and ours in {r[2] for r in holders}:
        return "functions inside of functions"
    return "UNKNOWN"


def main():
    kinds, examples, total = {}, [], 0
    for path, whole in make_corpus():
        rows, names = functions(whole)
        addresses = sorted({a for s, e, _ in rows for a in (s, (s + e) // 2, e - 1)})
        text = run(NAMES_OF, path, input="".join(f"{a:x}\n" for a in addresses))
        ours, theirs = text.split("\n")[:-1], theirs_of(whole, addresses)
        if not len(addresses) == len(ours) == len(theirs):
            sys.exit(f"{path}: {len(addresses)} addresses, {len(ours)} and {len(theirs)} answers")
        for address, our, their in zip(addresses, ours, theirs):
            kind = kind_of(address, our, their, rows, names)
            kinds[kind] = kinds.get(kind, 0) + 1
            total += 1
            if kind == "UNKNOWN":
                examples.append(f"{path} {address:x}: '{our}', llvm-symbolizer '{their}'")
    for kind, count in sorted(kinds.items(), key=lambda k: -k[1]):
        print(f"{count:8} {100 * count / total:7.3f} %  {kind}")
    for line in examples[:20]:
        print(line)
    if total < 10000 or kinds.get("UNKNOWN", 0) > MOST_UNKNOWN * total:
        sys.exit("FAILED")


if __name__ == "__main__":
    main()
