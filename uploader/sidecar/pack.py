#!/usr/bin/env python3
"""pack.py OUT ARCHIVE...: the tar that is handed out: libagent.so and libagent-uploader without their
debug information, that apart, the header, a list of what is linked in (SPDX), checksums, licence.
ARCHIVE: the static libraries that are linked in. The same input gives the same bytes; the time in it
is SOURCE_DATE_EPOCH, or that of the last commit."""

import datetime
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

BINARIES = ("libagent.so", "libagent-uploader")
TEXTS = ("LICENSE", "agent/libagent.h", "README.md", "uploader/sidecar/README.md")
# Of the parts of each archive that are linked in; the package of Debian that it comes from says no
# more than a text for people.
LICENCES = {
    "libzstd.a": ("zstd", "BSD-3-Clause OR GPL-2.0-only", BINARIES),
    "libz.a": ("zlib", "Zlib", BINARIES),
    "liblzma.a": ("liblzma", "LicenseRef-public-domain", BINARIES[:1]),
    "libiberty.a": ("libiberty's demanglers", "LGPL-2.0-or-later WITH GCC-exception-2.0", BINARIES[:1]),
    "libgcc.a": ("libgcc", "GPL-3.0-or-later WITH GCC-exception-3.1", BINARIES),
}


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def package_of(archive):
    """Name and version of the package that an archive is of."""
    for path in (archive, os.path.realpath(archive)):
        for place in (path, path.removeprefix("/usr")):
            found = subprocess.run(["dpkg", "-S", place], capture_output=True, text=True)
            if found.returncode == 0:
                package = found.stdout.split(": ")[0]
                return package.split(":")[0], output_of("dpkg-query", "-W", "-f", "${Version}", package)
    sys.exit(f"no package has {archive}")


def spdx(version, created, files, archives):
    described = hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()
    packages = [{
        "SPDXID": "SPDXRef-libagent", "name": "libagent", "versionInfo": version,
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
    }]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-libagent")]
    listed = []
    for name in BINARIES:
        listed.append({"SPDXID": f"SPDXRef-File-{name}", "fileName": f"./{name}",
                       "checksums": [{"algorithm": "SHA256", "checksumValue": files[name]}],
                       "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"})
        relations.append(("SPDXRef-libagent", "CONTAINS", f"SPDXRef-File-{name}"))
    for archive in sorted(archives):
        base = os.path.basename(archive)
        name, licence, linked_into = LICENCES[base]
        package, package_version = package_of(archive)
        identifier = "SPDXRef-" + base.removesuffix(".a")
        packages.append({
            "SPDXID": identifier, "name": name, "versionInfo": package_version,
            "supplier": "Organization: Debian", "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": licence, "licenseDeclared": licence,
            "copyrightText": "NOASSERTION", "comment": f"{base} of Debian's package {package}",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": f"pkg:deb/debian/{package}@{package_version}"}],
        })
        for binary in linked_into:
            relations.append((f"SPDXRef-File-{binary}", "STATIC_LINK", identifier))
    return json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"libagent-{version}", "documentNamespace": f"urn:libagent:{version}:{described}",
        "creationInfo": {"created": created, "creators": ["Tool: libagent-dist"]},
        "packages": packages, "files": listed,
        "hasExtractedLicensingInfos": [{"licenseId": "LicenseRef-public-domain",
                                        "extractedText": "This file has been put into the public domain."}],
        "relationships": [{"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
                          for one, kind, other in relations],
    }, indent=1) + "\n"


def split_debug(folder, name, contents):
    """The binary without its debug information, and that; each names the other."""
    debug, bare = os.path.join(folder, name + ".debug"), os.path.join(folder, name)
    output_of("objcopy", "--only-keep-debug", name, debug)
    output_of("objcopy", "--strip-unneeded", f"--add-gnu-debuglink={debug}", name, bare)
    for path, place in ((bare, name), (debug, f"debug/{name}.debug")):
        with open(path, "rb") as file:
            contents[place] = file.read()


def main():
    out, archives = sys.argv[1], sys.argv[2:]
    with open("agent/libagent.h", encoding="utf-8") as header:
        version = re.search(r'LIBAGENT_VERSION "(.+)"', header.read())[1]
    time = int(os.environ.get("SOURCE_DATE_EPOCH") or output_of("git", "log", "-1", "--format=%ct"))
    created = datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    contents = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in BINARIES:
            split_debug(folder, name, contents)
    for path in TEXTS:
        with open(path, "rb") as file:
            contents[path.replace("uploader/sidecar/README", "libagent-uploader").removeprefix("agent/")] = file.read()
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    contents["libagent.spdx.json"] = spdx(version, created, sums, archives).encode()
    contents["SHA256SUMS"] = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(contents.items())).encode()
    with open(out, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=time) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(contents.items()):
            entry = tarfile.TarInfo(f"libagent-{version}/{name}")
            entry.size, entry.mtime = len(data), time
            entry.mode = 0o755 if name in BINARIES else 0o644
            entry.uname = entry.gname = "root"
            tar.addfile(entry, io.BytesIO(data))


main()
