#!/usr/bin/env python3
"""user_lands.py ROOTS TAR: does what the tar holds run in other user lands? In each of ROOTS (roots.sh) a
program of that user land runs under the libagent.so of TAR: its output and status are as without,
its profile is in a file, and arrives by that user land's libcurl; then by /etc/ld.so.preload, which
is for all programs; then into a spool, from where the libagent-uploader of TAR sends it. What
arrives is judged by the receiver of the suites (receiver_backends.py). Prints each fault; status 1
when there is one. Wants root."""

import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BURN = ("my $end = (times)[0] + 0.6; my %h; my $i = 0; "
        "while ((times)[0] < $end) { $h{$i % 1000} = 'x' x ($i++ % 5000) } print 'done ', 6 * 7, \"\\n\"; exit 3")
WAIT_S = 60
# Where libagent-uploader, which is built for the libc of the machine that builds it, finds an older one.
OLDER_LIBC = ("bullseye",)
faults = []


def need(condition, text):
    if not condition:
        faults.append(text)


class Receiver:
    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "../preload/receiver_backends.py"), self.folder, "0"])
        wait_for(lambda: os.path.exists(os.path.join(self.folder, "address")))
        with open(os.path.join(self.folder, "address"), encoding="utf-8") as file:
            self.port = int(file.read())
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)

    def lines(self):
        try:
            with open(os.path.join(self.folder, "log"), encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def count(self, words, text=""):
        return sum(line.startswith(words) and text in line for line in self.lines())


def wait_for(condition):
    end = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def start(root, command, **environment):
    # In there alone: outside, too, the loader would look for what is to be preloaded.
    variables = [f"{name}={value}" for name, value in {"LC_ALL": "C", **environment}.items()]
    return subprocess.Popen(["unshare", "-m", "sh", "-ec",
                             'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"', root, "env", "-i", *variables, *command],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(root, command, **environment):
    process = start(root, command, **environment)
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err


def check_whole_machine(name, root, burn, without):
    """The shell and env are preloaded, too, and left alone; but for that they would have files."""
    path = f"{root}/etc/ld.so.preload"
    with open(path, "w", encoding="utf-8") as file:
        file.write("/libagent/libagent.so\n")
    try:
        script = ["sh", "-c", 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exec "$@"', "sh", *burn]
        for wanted in ("perl", "*"):
            folder = f"/libagent/machine{len(wanted)}"
            whole = run(root, script, LIBAGENT_PROCESSES=wanted, LIBAGENT_OUTPUT=folder)
            need(whole == without, f"{name}: by /etc/ld.so.preload: {whole}")
            found = {os.path.basename(each).split(".")[0] for each in glob.glob(f"{root}{folder}/*.cpu.pb.gz")}
            need(found == ({"perl"} if wanted == "perl" else {"perl", "sh"}), f"{name}: files of {found} for {wanted}")
    finally:
        os.remove(path)


def check(name, root, receiver):
    burn = ["perl", "-e", BURN]
    without = run(root, burn)
    need(without[0] == 3 and without[1] == "done 42\n", f"{name}: the program itself: {without}")
    common = {"LD_PRELOAD": "/libagent/libagent.so", "LIBAGENT_SERVICE": name}
    files = run(root, burn, LIBAGENT_OUTPUT="/libagent/profiles", **common,
                LIBAGENT_UPLOAD_URL=f"http://127.0.0.1:{receiver.port}/plain,"
                                    f"parca+http://127.0.0.1:{receiver.port}")
    need(files == without, f"{name}: with libagent: {files}")
    for family in ("cpu", "heap"):
        found = glob.glob(f"{root}/libagent/profiles/perl.*.{family}.pb.gz")
        need(len(found) == 1, f"{name}: files of {family}: {found}")
        need(receiver.count(f"post {family} service={name} ") == 1, f"{name}: upload of {family}")
        need(receiver.count(f"parca {family} ", f" job={name} ") == 1, f"{name}: upload of {family} to Parca")
    check_whole_machine(name, root, burn, without)
    spooled = run(root, burn, LIBAGENT_SPOOL="/libagent/spool", LIBAGENT_DIALECT="pyroscope", **common)
    need(spooled == without, f"{name}: into a spool: {spooled}")
    waiting = glob.glob(f"{root}/libagent/spool/*.spool")
    need(len(waiting) == 2, f"{name}: spooled: {waiting}")
    if not waiting:
        return
    uploader = start(root, ["/libagent/libagent-uploader"], LIBAGENT_SPOOL="/libagent/spool",
                     LIBAGENT_UPLOAD_URL=f"pyroscope+http://127.0.0.1:{receiver.port}")
    if name in OLDER_LIBC:
        _, err = uploader.communicate(timeout=WAIT_S)
        need("GLIBC_" in err, f"{name}: libagent-uploader runs: take the root out of OLDER_LIBC")
        return
    wait_for(lambda: uploader.poll() is not None or receiver.count("pyroscope ", f" service_name={name} ") == 2)
    uploader.send_signal(signal.SIGTERM)
    _, err = uploader.communicate(timeout=WAIT_S)
    need(uploader.returncode == 0 and not err, f"{name}: libagent-uploader: {uploader.returncode} {err}")
    left = os.listdir(f"{root}/libagent/spool")
    need(not left, f"{name}: left in the spool: {left}")
    for family in ("cpu", "heap"):
        need(receiver.count(f"pyroscope {family} ", f" service_name={name} ") == 1,
             f"{name}: {family} by libagent-uploader")


def main():
    roots, tar = sys.argv[1:]
    with Receiver() as receiver:
        for name in ("bullseye", "bookworm", "trixie"):
            root = os.path.join(roots, name)
            shutil.rmtree(f"{root}/libagent", ignore_errors=True)
            os.mkdir(f"{root}/libagent")
            subprocess.run(["tar", "-xzf", tar, "-C", f"{root}/libagent", "--strip-components=1"], check=True)
            before = len(faults)
            check(name, root, receiver)
            version = run(root, ["cat", "/etc/debian_version"])[1].strip()
            print(f"{name} ({version}): {'as it should be' if len(faults) == before else 'FAULTS'}", flush=True)
        faults.extend(line for line in receiver.lines() if line.startswith("BAD"))
    for text in faults:
        print(text)
    return bool(faults)


sys.exit(main())
