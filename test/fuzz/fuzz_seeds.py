#!/usr/bin/env python3
"""The seeds of the fuzz targets.

    fuzz_seeds.py make [FILE...] > fuzz_seeds.txt    cuts them out of the binaries of this machine
    fuzz_seeds.py unpack FOLDER < fuzz_seeds.txt     writes FOLDER/TARGET/NAME of each line

A line is TARGET/NAME and the bytes in hexadecimal. The tables of a seed are made anew from a dozen
entries of a binary (those that differ most in the instructions they use), with the addresses that
fuzz_cfi.c expects; the entries' own bytes are as the compiler wrote them."""

import os
import random
import struct
import subprocess
import sys
import tempfile

TABLES, CODE, ENTRIES = 0x1000, 0x10000, 12
BINARIES = ["/bin/ls", "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/x86_64-linux-gnu/libcrypto.so.3", "/lib/x86_64-linux-gnu/libstdc++.so.6",
            "/lib/x86_64-linux-gnu/libgmp.so.10", "vdso"]
PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_EH_FRAME = 1, 2, 4, 0x6474E550


# ---- Reading ----

def read_binary(name):
    if name != "vdso":
        with open(name, "rb") as f:
            return f.read()
    with open("/proc/self/maps") as f:
        row = next(line for line in f if line.rstrip().endswith("[vdso]"))
    low, high = (int(x, 16) for x in row.split()[0].split("-"))
    with open("/proc/self/mem", "rb") as f:
        f.seek(low)
        return f.read(high - low)


def sections(data):
    at, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
    found = {}
    for row in rows:
        start = rows[names][4] + row[0]
        found[data[start:data.index(b"\0", start)].decode()] = data[row[4]:row[4] + row[5]]
    return found


def uleb(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def entries(frame):
    """(offset of the CIE, CIE, FDE) of each FDE; both without their length."""
    at, cies = 0, {}
    while at + 4 < len(frame):
        length, = struct.unpack_from("<I", frame, at)
        if length in (0, 0xFFFFFFFF):
            return
        body = frame[at + 4:at + 4 + length]
        back, = struct.unpack_from("<I", body)
        if back == 0:
            cies[at] = body
        elif at + 4 - back in cies:
            yield at + 4 - back, cies[at + 4 - back], body
        at += 4 + length


def program(fde):
    """The instructions of an FDE whose augmentation starts with z and whose addresses have 4 bytes."""
    length, at = uleb(fde, 12)
    return fde[at + length:]


def features(code):
    """What a program is made of, roughly: its bytes that can be instructions, and its length."""
    return frozenset(b if b < 0x40 else b & 0xC0 for b in code) | {len(code).bit_length() << 8}


def choose(frame, count):
    chosen, seen = [], set()
    pool = [(cie_at, cie, fde, features(program(fde))) for cie_at, cie, fde in entries(frame)
            if cie[5:6] == b"z" and len(fde) < 200]
    while pool and len(chosen) < count:
        best = max(pool, key=lambda e: (len(e[3] - seen), -len(e[2])))
        pool.remove(best)
        seen |= best[3]
        chosen.append(best[:3])
    return chosen


# ---- Writing ----

def entry(body):
    body += b"\0" * (-(len(body) + 4) % 8)
    return struct.pack("<I", len(body)) + body


def tables(chosen, pointer=lambda vaddr, at: struct.pack("<i", vaddr - at)):
    """.eh_frame_hdr and .eh_frame of (key of CIE, CIE, FDE); an FDE's first address, after the
    4 bytes of its CIE, is replaced by pointer(address, its place)."""
    hdr_size = 12 + 8 * len(chosen)
    base = TABLES + hdr_size
    frame, cies, index, vaddr = b"", {}, [], CODE
    for key, cie, fde in chosen:
        if key not in cies:
            cies[key] = len(frame)
            frame += entry(cie)
        at = len(frame)
        first = pointer(vaddr, base + at + 8)
        size = int.from_bytes(fde[4 + len(first):8 + len(first)], "little")
        frame += entry(struct.pack("<I", at + 4 - cies[key]) + first + fde[4 + len(first):])
        index.append(struct.pack("<ii", vaddr - TABLES, base + at - TABLES))
        vaddr += size
    hdr = struct.pack("<BBBBiI", 1, 0x1B, 3, 0x3B, base - (TABLES + 4), len(chosen))
    return hdr + b"".join(index), frame + b"\0\0\0\0"


def debug_frame(chosen):
    """The same as .debug_frame: addresses of 8 bytes, no augmentation."""
    frame = entry(struct.pack("<I", 0xFFFFFFFF) + bytes([3, 0, 1, 0x78, 16, 0x0C, 7, 8, 0x90, 1]))
    vaddr = CODE
    for _, _, fde in chosen:
        size = int.from_bytes(fde[8:12], "little")
        frame += entry(struct.pack("<IQQ", 0, vaddr, size) + program(fde))
        vaddr += size // 2  # some within others
    return frame


def index_input(vaddr, is_debug, section):
    return struct.pack("<IBBH", vaddr, is_debug, 1, 0) + section


def cfi_input(hdr, frame, wanted=CODE + 5):
    return struct.pack("<HBBIQQ", len(hdr), 1, 1, 7, (1 << 17) - 1, wanted) + hdr + frame


def hand_made():
    usual = bytes([0x0C, 7, 8, 0x90, 1])
    head = bytes([1, 0x78, 16])  # code 1, data -8, return address 16

    def fde(code, width=4):
        return b"\0" * 4 + b"\0" * width + (0x100).to_bytes(width, "little") + b"\0" + bytes(code)

    def one(name, augmentation, data, code, pointer=None, width=4, version=1):
        cie = bytes([0, 0, 0, 0, version]) + augmentation + b"\0" + \
            (b"\x08\0" if version == 4 else b"") + head + bytes([len(data)]) + data + usual
        made = [(0, cie, fde(code, width))]
        return "cfi/made_" + name, cfi_input(*(tables(made, pointer) if pointer else tables(made)))

    def absolute(vaddr, at):
        return struct.pack("<Q", vaddr)

    expression = [0x77, 8, 0x80, 0, 0x3F, 0x1A, 0x3B, 0x2A, 0x33, 0x24, 0x22]
    every = [0x30, 0x12, 0x14, 0x16, 0x17, 0x19, 0x1F, 0x20, 0x23, 1, 0x13, 0x08, 1, 0x0A, 1, 0, 0x1E,
             0x92, 7, 0, 0x06, 0x94, 4, 0x96, 0x28, 1, 0, 0x30, 0x2F, 0, 0]
    yield one("nested_states", b"zR", b"\x1b", [0x41, 0x0A, 0x0E, 16, 0x42, 0x0A, 0x0E, 24, 0x43, 0x0B,
                                               0x41, 0x0B, 0x41, 0x0A, 0x0A, 0x0A, 0x0E, 32])
    yield one("expressions", b"zR", b"\x1b", [0x0F, len(expression)] + expression + [0x41, 0x10, 6, 2,
                                             0x76, 0, 0x41, 0x16, 3, len(every)] + every)
    yield one("signal", b"zRS", b"\x1b", [0x05, 3, 2, 0x08, 6, 0x07, 12, 0x09, 13, 3, 0x14, 14, 1])
    yield one("absolute", b"zR", b"\0", [0x44, 0x0E, 16, 0x86, 2, 0x44, 0x0D, 6], absolute, 8)
    yield one("version4", b"zR", b"\x1b", [0x02, 8, 0x0E, 16, 0x03, 1, 0, 0x2E, 8, 0x2F, 6, 1], version=4)
    yield one("personality", b"zPLR", b"\x9b\1\2\3\4\x1b\x1b", [0x11, 6, 0x7E, 0x12, 7, 0x7E, 0x13, 0x7D])
    yield one("bare", b"zR", b"\x1b", [])


def section_header(kind, flags, at, size, link, entry_size, name=0, vaddr=0):
    return struct.pack("<IIQQQQIIQQ", name, kind, flags, vaddr, at, size, link, 0, 0, entry_size)


def elf_header(program_count, sections_at, section_count, names):
    return b"\x7fELF\2\1\1" + b"\0" * 9 + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, program_count, 64, section_count,
        names)


def image_input(hdr, frame, debug=None):
    """An image with code, notes, names of needed objects, and the tables; with `debug`, sections
    lead to these, and no .eh_frame_hdr."""
    strings = b"\0libc.so.6\0libm.so.6\0"
    names = b"\0.eh_frame\0.debug_frame\0.shstrtab\0"
    note = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(range(20))
    parts, at = {}, 64 + 4 * 56
    for name, data in (("strings", strings), ("note", note), ("dynamic", b"\0" * 80),
                       ("names", names)):
        parts[name] = at
        at += len(data) + -len(data) % 8
    dynamic = b"".join(struct.pack("<QQ", *row) for row in (
        (1, 1), (1, 11), (5, parts["strings"]), (10, len(strings)), (0, 0)))

    def header(kind, flags, start, size):
        return struct.pack("<IIQQQQQQ", kind, flags, start, start, start, size, size, 4)

    body = bytearray(at)
    for name, data in (("strings", strings), ("note", note), ("dynamic", dynamic), ("names", names)):
        body[parts[name]:parts[name] + len(data)] = data
    body += hdr + frame
    if debug:
        # The addresses in .eh_frame count from TABLES, not from where the image has them.
        code_size = CODE + 0x10000
        body += b"\0" * (-len(body) % 8)
        debug_at = len(body)
        body += debug + b"\0" * (-len(debug) % 8)
        sections_at = len(body)
        body += section_header(0, 0, 0, 0, 0, 0) + \
            section_header(1, 2, at + len(hdr), len(frame), 0, 0, 1, at + len(hdr)) + \
            section_header(1, 0, debug_at, len(debug), 0, 0, 11) + \
            section_header(3, 0, parts["names"], len(names), 0, 0, 24)
        body[:64] = elf_header(3, sections_at, 4, 3)
    headers = [header(PT_LOAD, 5, 0, len(body)), header(PT_NOTE, 4, parts["note"], len(note)),
               header(PT_DYNAMIC, 6, parts["dynamic"], len(dynamic))]
    if not debug:
        headers.append(header(PT_EH_FRAME, 4, at, len(hdr)))
    else:
        headers[0] = struct.pack("<IIQQQQQQ", PT_LOAD, 5, 0, 0, 0, len(body), code_size, 4)
    return struct.pack("BB", len(headers), 0) + b"".join(headers) + bytes(body)


def symbols_input(data, kind, identify):
    """A file with the note and segment of test/elf_builder.c, and a dozen symbols of a binary."""
    found = sections(data)
    table, texts = found[".dynsym"], found[".dynstr"]
    rows = [struct.unpack_from("<IBBHQQ", table, i) for i in range(0, len(table), 24)]
    rows = [r for r in rows if r[1] & 15 in (2, 10) and r[5]]
    rows.sort(key=lambda r: r[4])
    base, strings, symbols = rows[0][4], b"\0", b"\0" * 24
    for name, info, other, section, value, size in rows[:12]:
        text = texts[name:texts.index(b"\0", name) + 1]
        symbols += struct.pack("<IBBHQQ", len(strings), info, other, 1, value - base + 0x1000, size)
        strings += text
    build_id = b"a build id of twenty"
    note = struct.pack("<III", 4, 20, 3) + b"GNU\0" + build_id
    strings += b"\0" * (-len(strings) % 8)
    note_at = 64 + 2 * 56
    symbols_at = note_at + len(note) + -len(note) % 8
    strings_at = symbols_at + len(symbols)
    sections_at = strings_at + len(strings)
    header = elf_header(2, sections_at, 4, 0)
    programs = struct.pack("<IIQQQQQQ", PT_LOAD, 5, 0x1000, 0x1000, 0, 0x100000, 0x100000, 0) + \
        struct.pack("<IIQQQQQQ", PT_NOTE, 4, note_at, 0, 0, len(note), len(note), 4)

    return struct.pack("<HBBI", 0, identify, 16, 0x1000) + header + programs + note + \
        b"\0" * (-len(note) % 8) + symbols + strings + section_header(0, 0, 0, 0, 0, 0) + \
        section_header(1, 6, 0, 0, 0, 0) + section_header(kind, 2, symbols_at, len(symbols), 3, 24) + \
        section_header(3, 2, strings_at, len(strings), 0, 0)


def walk_input(seed):
    """Words for fuzz_walk.c: code in pc and on the stack, the stack in all other registers."""
    draw = random.Random(seed)

    def word(kind, low):
        return kind << 56 | draw.randrange(256) << 48 | low

    def any_word():
        return draw.choice([word(1, draw.getrandbits(24)), word(3, draw.randrange(200)),
                            word(4, draw.randrange(16)), word(0, draw.randrange(64)), word(5, 0)])

    words = [draw.randrange(8)] + [word(3, draw.randrange(200)) for _ in range(16)]
    words[8] = word(3, 200)  # the stack pointer
    words += [word(1, draw.getrandbits(24))] + [any_word() for _ in range(200)]
    return struct.pack(f"<{len(words)}Q", *words)


INLINED = """
#define INLINED static inline __attribute__((always_inline))
INLINED int in(int x) { int r = 0; for (int i = 0; i < x; i++) { r += i * x; __asm__ volatile(""); } return r; }
INLINED int mid(int x) { return x > 3 ? in(x) : in(x + 1) * 2; }
__attribute__((noinline)) int out(int x) { return mid(x) * 3; }
void _start(void) { if (out(4)) out(5); }
"""
LINES = {"gcc4": "gcc -gdwarf-4", "gcc5": "gcc -gdwarf-5", "clang5": "clang -gdwarf-5",
         "clang4": "clang -gdwarf-4", "zlib": "gcc -gdwarf-5", "zlib-gnu": "gcc -gdwarf-5",
         "zstd": "gcc -gdwarf-5", "common": "gcc -gdwarf-4"}
# Functions that were inlined are in the file that has the build id: in fuzz_lines.c this one again.
COMMON = """
 .section .gnu_debugaltlink,"",@progbits
 .asciz "/common"
 .ascii "a build id of twenty"
 .section .note.common,"a",@note
 .long 4, 20, 3
 .asciz "GNU"
 .ascii "a build id of twenty"
"""


def refer_to_common(command, source):
    """Assembly in which DW_AT_abstract_origin has DW_FORM_GNU_ref_alt."""
    out = source[:-1] + "s"
    subprocess.run(command.split() + ["-O2", "-S", "-ffreestanding", "-o", out, source], check=True)
    with open(out) as f:
        text = f.read()
    with open(out, "w") as f:
        f.write(text.replace("\t.uleb128 0x31\n\t.uleb128 0x13\n", "\t.uleb128 0x31\n\t.uleb128 0x1f20\n")
                + COMMON)
    return out


def lines_input(name, command):
    """A file of two functions and what was inlined there, with debugging information."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "l.c"), os.path.join(folder, "l")
        with open(source, "w") as f:
            f.write(INLINED)
        if name == "common":
            source = refer_to_common(command, source)
        subprocess.run(command.split() + "-O2 -nostdlib -static -ffreestanding -Wl,--build-id=none -fno-ident "
                       "-Wl,-z,noseparate-code -fno-asynchronous-unwind-tables".split() +
                       ["-o", out, source], check=True)
        packed = [f"--compress-debug-sections={name}"] if name.startswith("z") else []
        subprocess.run(["objcopy", "-R", ".comment", "-R", ".debug_aranges", *packed, out], check=True)
        data = read_binary(out)
    entry, = struct.unpack_from("<Q", data, 0x18)
    return struct.pack("<HBBI", 0, 0, 3, entry) + data


def make(names):
    seeds = list(hand_made())
    for name in names:
        data = read_binary(name)
        short = os.path.basename(name).split(".")[0]
        chosen = choose(sections(data)[".eh_frame"], ENTRIES)
        hdr, frame = tables(chosen)
        if short in ("libc", "libstdc++"):
            seeds.append(("index/" + short, index_input(TABLES + len(hdr), 0, frame)))
            seeds.append((f"index/{short}_debug", index_input(0, 1, debug_frame(chosen))))
        seeds.append(("cfi/" + short, cfi_input(hdr, frame)))
        if short in ("ls", "libc", "vdso"):
            seeds.append(("image/" + short, image_input(hdr, frame)))
            seeds.append((f"image/{short}_sections", image_input(hdr, frame, debug_frame(chosen))))
        if short in ("libc", "libgmp"):
            for kind, identify in ((2, 1), (11, 0)):
                seeds.append((f"symbols/{short}_{kind}", symbols_input(data, kind, identify)))
    seeds += [(f"walk/words{i}", walk_input(i)) for i in range(6)]
    seeds += [("lines/" + name, lines_input(name, command)) for name, command in LINES.items()]
    for name, data in seeds:
        print(name, data.hex())


def unpack(folder):
    for line in sys.stdin:
        name, data = line.split()
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(bytes.fromhex(data))


if sys.argv[1] == "make":
    make(sys.argv[2:] or BINARIES)
else:
    unpack(sys.argv[2])
