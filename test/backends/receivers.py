"""Other people's receivers, started and stopped for a test: node with connect and busboy, nginx, and
a certification authority of openssl's. BACKENDS is the folder that `make test-backends` fills."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import profile_rules

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ["BACKENDS"])
WAIT_SECONDS = 30  # for a server to listen, on a busy machine


def message_types():
    files = descriptor_pb2.FileDescriptorSet.FromString((BUILD / "services.bin").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    name = "perftools.profiles.Profile"
    return {"Profile": message_factory.MessageFactory(pool).GetPrototype(
        pool.FindMessageTypeByName(name))}


TYPES = message_types()


def wait_until(holds, what):
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.01)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(address):
    family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
    with socket.socket(family) as probe:
        return probe.connect_ex(address) == 0


class Folder:
    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="libagent-backends-"))
        os.chmod(self.path, 0o755)

    def close(self):
        shutil.rmtree(self.path, ignore_errors=True)


def lines_of(path):
    if not path.exists():
        return []
    # A line that is being written has no end yet.
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


class Node:
    """receiver.js. It may be stopped and started again: the folder stays, and so does the address."""

    def __init__(self, address="0", answers=(), tls=None, hold_ms=0):
        self.folder = Folder()
        self.address = address
        self.tls = tls
        self.path = self.folder.path
        shutil.copy(BUILD / "services.bin", self.path)
        if hold_ms:
            (self.path / "hold").write_text(str(hold_ms))
        (self.path / "answers").write_text("".join(f"{each}\n" for each in answers))
        self.process = None
        self.start()

    def start(self):
        (self.path / "address").unlink(missing_ok=True)
        tls = [self.tls.certificate, self.tls.key] if self.tls else []
        self.process = subprocess.Popen(
            ["node", HERE / "receiver.js", self.path, self.address, *tls],
            env=dict(os.environ, NODE_PATH=str(BUILD / "node_modules")))
        wait_until(lambda: self.process.poll() is not None or (self.path / "address").exists(),
                   "node does not listen")
        self.address = (self.path / "address").read_text()

    def stop(self):
        """What is under way is answered before."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_SECONDS)

    def answer_at_once(self):
        """It does not take its time any more."""
        self.stop()
        (self.path / "hold").unlink()
        self.start()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def close(self):
        self.kill()
        self.folder.close()

    def count(self, name):
        """Lines of `come` or `taken`."""
        return len(lines_of(self.path / name))

    @property
    def port(self):
        return int(self.address)

    def refused(self):
        return lines_of(self.path / "refused")

    def taken(self, kind=None):
        """Records and profiles, each judged."""
        result = []
        for record in lines_of(self.path / "taken"):
            profile_rules.need("error" not in record, record)
            data = (self.path / record["file"]).read_bytes()
            profile = profile_rules.judge(record, data, TYPES)
            if kind in (None, record["kind"]):
                result.append((record, profile))
        return result


NGINX = """
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/error.log info;
events {{}}
http {{
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    log_format taken escape=json '{{"kind":"post","status":$status,"file":"$request_body_file",'
        '"service":"$http_x_libagent_service","family":"$http_x_libagent_family",'
        '"start":"$http_x_libagent_start_ns","end":"$http_x_libagent_end_ns",'
        '"at":$msec,"length":"$http_content_length"}}';
    # A key that is never empty: one limit for all.
    limit_req_zone $server_port zone=slow:1m rate=30r/m;
    limit_req_status 429;
    server {{
        listen 127.0.0.1:{port}{ssl};
        access_log {folder}/taken taken;
        client_max_body_size 64m;
        # An upstream is needed, or nginx does not read the body.
        location /put {{
            client_body_in_file_only on;
            proxy_pass http://unix:{folder}/upstream:;
        }}
        location /slow/ {{
            limit_req zone=slow;
            add_header Retry-After 3 always;
            proxy_pass {upstream};
        }}
        location /small/ {{
            client_max_body_size {limit};
            proxy_pass {upstream};
        }}
        location / {{
            proxy_pass {upstream};
        }}
    }}
    server {{
        listen unix:{folder}/upstream;
        access_log off;
        location / {{ return 200; }}
    }}
}}
"""


class Nginx:
    """Takes plain POSTs at /put, and is in front of `upstream` (a URL) elsewhere: /slow/ takes one
    request in 2 s and says 429 with Retry-After to others, /small/ takes `limit` bytes."""

    def __init__(self, upstream="http://127.0.0.1:1", limit="64m", tls=None):
        self.folder = Folder()
        self.path = self.folder.path
        self.port = free_port()
        ssl = ""
        if tls:
            ssl = f" ssl; ssl_certificate {tls.certificate}; ssl_certificate_key {tls.key}"
        (self.path / "nginx.conf").write_text(NGINX.format(
            folder=self.path, port=self.port, upstream=upstream, limit=limit, ssl=ssl))
        # Its workers are another user's, where it is started by root.
        (self.path / "bodies").mkdir()
        os.chmod(self.path / "bodies", 0o777)
        self.process = None
        self.start()

    def start(self):
        (self.path / "upstream").unlink(missing_ok=True)
        self.process = subprocess.Popen(
            ["nginx", "-c", self.path / "nginx.conf", "-e", self.path / "error.log"])
        wait_until(lambda: accepts(("127.0.0.1", self.port)), "nginx does not listen")

    def stop(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(WAIT_SECONDS)

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self.folder.close()

    def requests(self):
        return lines_of(self.path / "taken")

    def taken(self):
        result = []
        for record in self.requests():
            if record["status"] == 200 and record["file"]:
                data = pathlib.Path(record["file"]).read_bytes()
                result.append((record, profile_rules.judge(record, data, TYPES)))
        return result


class Authority:
    """A certification authority, and a certificate for 127.0.0.1 that it signed."""

    def __init__(self):
        self.folder = Folder()
        path = self.folder.path
        self.file = path / "ca.pem"
        self.certificate, self.key = path / "server.pem", path / "server.key"
        self.run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-days", "1", "-subj", "/CN=test authority", "-keyout", path / "ca.key",
                 "-out", self.file)
        self.run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-subj", "/CN=a backend", "-keyout", self.key, "-out", path / "server.csr")
        (path / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        self.run("x509", "-req", "-in", path / "server.csr", "-CA", self.file, "-CAkey",
                 path / "ca.key", "-CAcreateserial", "-days", "1", "-extfile", path / "names",
                 "-out", self.certificate)
        os.chmod(self.key, 0o644)

    @staticmethod
    def run(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)

    def close(self):
        self.folder.close()
