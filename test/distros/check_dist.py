#!/usr/bin/env python3
"""check_dist.py TAR ARCHIVE...: does the tar hold what it is to hold, and does that work? Judged by
other tools than it is made by: sha256sum, readelf, the loader. Prints each fault; status 1 when
there is one."""

import json
import os
import subprocess
import sys
import tempfile

EXPECTED = ["LICENSE", "README.md", "SHA256SUMS", "debug/libagent-uploader.debug", "debug/libagent.so.debug",
            "libagent-uploader", "libagent-uploader.md", "libagent.h", "libagent.so", "libagent.spdx.json"]
faults = []


def need(condition, text):
    if not condition:
        faults.append(text)


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                          **options)


def names_in(folder):
    return sorted(os.path.relpath(os.path.join(place, name), folder)
                  for place, _, names in os.walk(folder) for name in names)


def build_id(path):
    lines = [line for line in run("readelf", "-n", path).stdout.split("\n") if "Build ID" in line]
    return lines[0].split()[-1] if lines else None


def check_binary(folder, name, needed):
    path, debug = os.path.join(folder, name), os.path.join(folder, "debug", name + ".debug")
    sections, debug_sections = (run("readelf", "-SW", each).stdout for each in (path, debug))
    need(".debug_info" not in sections, f"{name} has debug information")
    need(".gnu_debuglink" in sections, f"{name} does not name its debug file")
    need(".debug_info" in debug_sections, f"{name}.debug has none")
    need(build_id(path) and build_id(path) == build_id(debug), f"build ids of {name}")
    link = run("readelf", "--string-dump=.gnu_debuglink", path).stdout
    need(f"{name}.debug" in link, f"debug link of {name}: {link}")
    dynamic = run("readelf", "-dW", path).stdout
    found = {line.split("[")[1].split("]")[0] for line in dynamic.split("\n") if "NEEDED" in line}
    need(found <= needed, f"{name} needs {found}")


def check_list(path, archives):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    need(document["spdxVersion"] == "SPDX-2.3", "SPDX version")
    names = {each["SPDXID"] for each in document["packages"] + document["files"]} | {"SPDXRef-DOCUMENT"}
    for each in document["relationships"]:
        need({each["spdxElementId"], each["relatedSpdxElement"]} <= names, f"relation {each}")
    for archive in archives:
        base = os.path.basename(archive)
        rows = [each for each in document["packages"] if each.get("comment", "").startswith(base + " of ")]
        need(len(rows) == 1, f"{base} is not listed")
        for row in rows:
            package = row["comment"].split()[-1]
            version = run("dpkg-query", "-W", "-f", "${Version}\n", package).stdout.split("\n")[0]
            need(row["versionInfo"] == version, f"version of {base}")
            need(row["licenseDeclared"] not in ("", "NOASSERTION"), f"licence of {base}")


def main():
    tar, archives = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-xzf", tar, "-C", folder], check=True)
        (top,) = os.listdir(folder)
        folder = os.path.join(folder, top)
        need(os.path.basename(tar) == top + ".tar.gz", f"folder {top}")
        need(names_in(folder) == EXPECTED, f"files: {names_in(folder)}")
        sums = run("sha256sum", "-c", "--strict", "SHA256SUMS", cwd=folder)
        need(sums.returncode == 0 and sums.stdout.count(": OK\n") == len(EXPECTED) - 1, sums.stderr)
        check_binary(folder, "libagent.so", {"libc.so.6"})
        check_binary(folder, "libagent-uploader", {"libc.so.6", "libmicrohttpd.so.12"})
        check_list(os.path.join(folder, "libagent.spdx.json"), archives)
        library = os.path.join(folder, "libagent.so")
        helped = run("/bin/true", env={"LD_PRELOAD": library, "LIBAGENT_HELP": "1"})
        need("LIBAGENT_OUTPUT" in helped.stderr + helped.stdout, "libagent.so does not start")
        asked = run(os.path.join(folder, "libagent-uploader"), env={})
        need("LIBAGENT_SPOOL" in asked.stderr, "libagent-uploader does not start")
    for text in faults:
        print(f"{tar}: {text}")
    return bool(faults)


sys.exit(main())
