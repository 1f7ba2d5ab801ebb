#!/usr/bin/env python3
"""lines.py NAMES_OF FOLDER: files, lines and inlined functions of the corpus (corpus.py), and of more
forms of debugging information, beside llvm-symbolizer's: at a dozen places of each function. Fails
where more than 0.1 % of all differ in no known way.

The name of the code's own function is not compared: it comes from the table of symbols (corpus.py)."""

import os
import shutil
import sys

from corpus import FOLDER, NAMES_OF, functions, make_corpus, run

MOST_UNKNOWN = 0.001
PLACES = 12  # of a function


def more_forms():
    """(file, file that llvm-symbolizer reads)"""
    c, cxx = os.path.join(FOLDER, "c.c"), os.path.join(FOLDER, "cxx.cc")
    forms = [("dwarf2", "-gdwarf-2"), ("dwarf3", "-gdwarf-3"), ("dwarf4", "-gdwarf-4"),
             ("dwarf5", "-gdwarf-5"), ("types", "-gdwarf-4 -fdebug-types-section"),
             ("types5", "-gdwarf-5 -fdebug-types-section")]
    for source, compilers in ((c, ("gcc", "clang")), (cxx, ("g++", "clang++"))):
        for compiler in compilers:
            for name, flags in forms + ([("dwarf64", "-g -gdwarf64")] if compiler[0] == "g" else
                                        [("aranges", "-g -gdwarf-aranges")]):
                out = os.path.join(FOLDER, f"{os.path.basename(source)}.{compiler}.{name}")
                run(compiler, "-O2", *flags.split(), "-Wl,--build-id", "-w", "-o", out, source)
                yield out, out
    # Packed, and packed in a separate file: llvm-symbolizer 14 has no zstd, and reads what is not.
    for whole in (os.path.join(FOLDER, "cxx.cc.g++.O2"), os.path.join(FOLDER, "cxx.cc.clang++.O3")):
        for kind in ("zlib", "zlib-gnu", "zstd"):
            out = f"{whole}.{kind}"
            run("objcopy", f"--compress-debug-sections={kind}", whole, out)
            yield out, whole
            run("objcopy", "--only-keep-debug", out, f"{out}.stripped.debug")
            run("strip", "-o", f"{out}.stripped", out)
            run("objcopy", f"--add-gnu-debuglink={out}.stripped.debug", f"{out}.stripped")
            yield f"{out}.stripped", whole
    # Moved by dwz: within a file, and to one that several have in common, plain and packed.
    wholes = [os.path.join(FOLDER, f"cxx.cc.{name}")
              for name in ("g++.O1", "g++.O2", "g++.O3", "g++.dwarf4", "g++.sections")]
    for whole in wholes:
        run("dwz", "-o", f"{whole}.dwz", whole)
        yield f"{whole}.dwz", whole
    for name, *flags in (("common",), ("supplement", "-5")):
        for whole in wholes:
            shutil.copy(whole, f"{whole}.{name}")
        run("dwz", *flags, "-m", os.path.join(FOLDER, f"{name}.debug"), "-M", f"{name}.debug",
            *(f"{whole}.{name}" for whole in wholes))
        for whole in wholes:
            out = f"{whole}.{name}"
            yield out, whole
            run("objcopy", "--compress-debug-sections=zlib", out, f"{out}.packed")
            yield f"{out}.packed", whole


def split_forms():
    """The same of units whose debugging information is in files of their own (.dwo)."""
    for source, compiler in (("c.c", "gcc"), ("c.c", "clang"), ("cxx.cc", "g++"), ("cxx.cc", "clang++")):
        for version in (4, 5):
            whole = os.path.join(FOLDER, f"{source}.{compiler}.dwarf{version}")
            out = os.path.join(FOLDER, f"{source}.{compiler}.split{version}")
            # clang puts .dwo files where it runs.
            run(compiler, "-O2", f"-gdwarf-{version}", "-gsplit-dwarf", "-Wl,--build-id", "-w", "-o",
                os.path.abspath(out), os.path.abspath(os.path.join(FOLDER, source)), cwd=FOLDER)
            yield out, whole


def normal(path):
    return os.path.normpath(path) if path else ""


def ours_of(path, addresses):
    text = run(NAMES_OF, path, "lines", input="".join(f"{a:x}\n" for a in addresses))
    answers, frames = [], []
    for line in text.splitlines():
        if line:
            name, file, number, _ = line.split("\t")
            frames.append((name, normal(file), int(number)))
        else:
            answers.append(frames)
            frames = []
    return answers


def theirs_of(path, addresses):
    text = run("llvm-symbolizer", "--functions=linkage", "--no-demangle", "--inlining=true", "-e",
               path, input="".join(f"0x{a:x}\n" for a in addresses))
    answers = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        frames = []
        for name, where in zip(lines[::2], lines[1::2]):
            file, line, _ = where.rsplit(":", 2)
            frames.append((name, "" if file == "??" else normal(file), int(line)))
        answers.append(frames)
    return answers


def kind_of(ours, theirs):
    ours = [(n if i + 1 < len(ours) else "", f, l) for i, (n, f, l) in enumerate(ours)]
    theirs = [(n if i + 1 < len(theirs) else "", f, l) for i, (n, f, l) in enumerate(theirs)]
    if ours == theirs or (not ours and theirs == [("", "", 0)]):
        return "equal"
    if len(theirs) == 1 and theirs[0][2] == 0 and not any(file or line for _, file, line in ours):
        return "no debugging information: llvm-symbolizer has a file of the table of symbols, no line"
    if [f[0] for f in ours] == [f[0] for f in theirs]:
        return "UNKNOWN: lines"
    return "UNKNOWN: frames"


def main():
    kinds, examples, total, deepest, inlined = {}, {}, 0, 0, 0
    pairs = [(p, w) for p, w in make_corpus() if ".nog" not in p] + list(more_forms())
    for path, whole in pairs + list(split_forms()):
        rows, _ = functions(whole)
        addresses = sorted({s + (e - 1 - s) * i // (PLACES - 1)
                            for s, e, _ in rows if e > s for i in range(PLACES)})
        ours, theirs = ours_of(path, addresses), theirs_of(whole, addresses)
        if not len(addresses) == len(ours) == len(theirs):
            sys.exit(f"{path}: {len(addresses)} addresses, {len(ours)} and {len(theirs)} answers")
        for address, our, their in zip(addresses, ours, theirs):
            kind = kind_of(our, their)
            if ".split" in path and our and kind != "equal" and kind_of(our, their[:1]) == "equal":
                kind = "split: the line of what is inlined, and not its name"
            kinds[kind] = kinds.get(kind, 0) + 1
            total += 1
            inlined += len(our) > 1
            deepest = max(deepest, len(our))
            if kind.startswith("UNKNOWN"):
                examples.setdefault((kind, path), []).append(f"{address:x}: {our}\n    {their}")
    for kind, count in sorted(kinds.items(), key=lambda k: -k[1]):
        print(f"{count:8} {100 * count / total:7.3f} %  {kind}")
    print(f"{inlined} of {total} addresses in inlined functions, up to {deepest} deep")
    for (kind, path), found in list(examples.items())[:20]:
        print(f"{kind}, {path}, {len(found)} times\n  {found[0]}")
    unknown = sum(count for kind, count in kinds.items() if kind.startswith("UNKNOWN"))
    if total < 50000 or inlined < total / 20 or unknown > MOST_UNKNOWN * total:
        sys.exit("FAILED")


main()
