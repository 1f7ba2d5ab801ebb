#!/usr/bin/env python3
"""A server that plays Pyroscope, Parca, Datadog's agent and a plain receiver, by the rules of their
sources, and what goes wrong on the way to them.

    receiver_backends.py FOLDER ADDRESS [CERTIFICATE KEY]

ADDRESS is a port of 127.0.0.1 (0: any), or the path of a unix socket. FOLDER/address gets the port
once it listens. Each request that is taken is a line of FOLDER/log: its kind, the family, and
name=value words; what breaks a rule is a line `BAD ...`. Profiles lie in FOLDER as KIND.N.NNNN.FAMILY.pb.gz
(.pb.zst), N its place in ORDER. The first part of a path that begins with "=" says what happens: =503x2 answers 503
twice, =429after1 429 once with Retry-After: 1, and so on (see `play`).

Protocol buffers are decoded by Google's library, multipart by Python's email package."""

import collections
import email
import gzip
import http.server
import json
import os
import re
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

HERE = os.path.dirname(os.path.abspath(__file__))
lock = threading.Lock()
folder = sys.argv[1]
counts = collections.Counter()
seen = collections.Counter()


def messages():
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"-I{HERE}", f"-I{HERE}/..", f"--descriptor_set_out={out.name}",
                        "backends.proto", "profile.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {name.split(".")[-1]: factory.GetPrototype(pool.FindMessageTypeByName(name))
            for name in ("PushRequest", "WriteRawRequest", "perftools.profiles.Profile")}


TYPES = messages()
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def say(line):
    with lock, open(os.path.join(folder, "log"), "a") as log:
        log.write(line + "\n")


class Refused(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Refused(text)


def unpack(data):
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return subprocess.run(["zstd", "-dqc"], input=data, capture_output=True, check=True).stdout
    need(data[:2] == b"\x1f\x8b", "a profile is neither gzip nor zstd")
    return gzip.decompress(data)


def strict_profile(data, lasts_none=False):
    """What all stores want of a profile; `lasts_none`: what is live is to have no duration."""
    profile = TYPES["Profile"].FromString(unpack(data))  # strings: UTF-8, or an error
    need(profile.string_table[0] == "", "string 0")
    for name in ("mapping", "location", "function"):
        ids = [each.id for each in getattr(profile, name)]
        need(ids == list(range(1, len(ids) + 1)), f"{name} ids are not dense")
    types = [profile.string_table[each.type] for each in profile.sample_type]
    for sample in profile.sample:
        need(len(sample.value) == len(types), "values of a sample")
        need(all(1 <= each <= len(profile.location) for each in sample.location_id), "location id")
    for location in profile.location:
        need(location.line or location.address, "a location that is nothing")
    need(profile.time_nanos > 0, "no time")
    need((profile.duration_nanos > 0) != (lasts_none and types[-1].startswith("inuse")), "duration")
    return profile, types


ORDER = ["", "pyroscope", "parca", "datadog", "post", "parca_live"]


def keep(kind, family, data):
    with lock:
        number = counts[kind]
        counts[kind] += 1
    end = "zst" if data[:4] == b"\x28\xb5\x2f\xfd" else "gz"
    with open(os.path.join(folder, f"{kind}.{ORDER.index(kind)}.{number:04}.{family}.pb.{end}"), "wb") as out:
        out.write(data)


def thread_labels(profile):
    return {profile.string_table[label.key] for sample in profile.sample for label in sample.label}


def label_words(labels, name_pattern=r"[a-zA-Z_][a-zA-Z0-9_]*"):
    names = [each.name for each in labels]
    need(len(set(names)) == len(names), "a label twice")
    for each in labels:
        need(re.fullmatch(name_pattern, each.name), f"label name {each.name}")
        need(0 < len(each.value) <= 2048, f"value of label {each.name}")
    return " ".join(f"{each.name}={each.value.replace(' ', '%20')}" for each in labels)


FAMILIES = {"process_cpu": "cpu", "memory": "heap", "wall": "wall", "mutex": "lock"}


def pyroscope(headers, body):
    need(headers["Content-Type"] == "application/proto", "content type")
    need(headers["Content-Encoding"] is None, "content encoding")
    request = TYPES["PushRequest"].FromString(body)
    need(len(request.series) == 1 and len(request.series[0].samples) == 1, "one profile")
    labels = request.series[0].labels
    values = {each.name: each.value for each in labels}
    need(len(labels) <= 30 and values["__delta__"] == "false", "labels")
    sample = request.series[0].samples[0]
    need(re.fullmatch(UUID, sample.ID), "ID")
    profile, types = strict_profile(sample.raw_profile)
    need(not any("-" in each for each in types), "sample type contains -")
    need(len(profile.sample) <= 16000, "16,000 samples")
    need(len(unpack(sample.raw_profile)) <= 2_000_000, "2 MB")
    need(not thread_labels(profile), "labels of threads")
    family = FAMILIES[values["__name__"]]
    keep("pyroscope", family, sample.raw_profile)
    cpu = sum(each.value[types.index("cpu")] for each in profile.sample) if family == "cpu" else 0
    return f"pyroscope {family} id={sample.ID} cpu={cpu} {label_words(labels)}"


def parca(headers, body):
    need(headers["Content-Type"] == "application/grpc-web+proto", "content type")
    flag, length = struct.unpack(">BI", body[:5])
    need(flag == 0 and length == len(body) - 5, "frame")
    request = TYPES["WriteRawRequest"].FromString(body[5:])
    need(request.normalized and not request.tenant, "normalized")
    need(len(request.series) == 1 and len(request.series[0].samples) == 1, "one profile")
    labels = request.series[0].labels.labels
    values = {each.name: each.value for each in labels}
    data = request.series[0].samples[0].raw_profile
    _, types = strict_profile(data, lasts_none=True)
    need(all(re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", each) for each in types), "type names")
    need(len({each.startswith("inuse") for each in types}) == 1, "inuse beside others")
    family = FAMILIES[values["__name__"]]
    kind = "parca_live" if types[-1].startswith("inuse") else "parca"
    keep(kind, family, data)
    return f"{kind} {family} {label_words(labels)}"


DATADOG_TYPES = {"cpu-time", "cpu-samples", "wall-time", "wall-samples", "alloc-samples",
                 "alloc-space", "inuse-objects", "inuse-space"}
ISO_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"


def datadog(headers, body):
    head = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode()
    form = email.message_from_bytes(head + body)
    need(form.is_multipart(), "multipart")
    parts = {}
    for part in form.get_payload():
        name = part.get_param("name", header="content-disposition")
        need(name not in parts, "a part twice")
        parts[name] = part
        need(part.get_filename(), "a part without a file name")
    event = json.loads(parts["event"].get_payload(decode=True))
    need(parts["event"].get_filename() == "event.json", "event.json")
    need(event["version"] == "4" and event["family"] == "native", "version and family")
    need(event["attachments"] == ["profile.pprof"], "attachments")
    need(re.fullmatch(ISO_TIME, event["start"]) and re.fullmatch(ISO_TIME, event["end"]), "times")
    need(event["start"] < event["end"], "order of times")
    attachment = parts["profile.pprof"]
    need(attachment.get_filename() == "profile.pprof", "name of the attachment")
    data = raw_part(body, form.get_boundary(), "profile.pprof")
    need(data[:4] == b"\x28\xb5\x2f\xfd", "zstd")
    profile, types = strict_profile(data)
    need(set(types) <= DATADOG_TYPES and len(set(types)) == len(types), f"types {types}")
    need(thread_labels(profile) <= {"thread id", "thread name"}, "labels")
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(profile.time_nanos // 10**9))
    need(event["start"] == f"{start}.{profile.time_nanos % 10**9:09}Z", "start")
    tags = event["tags_profiler"].split(",")
    need(all(len(each) <= 200 and ":" in each.strip(":") for each in tags), "tags")
    need("language:native" in tags and "runtime:native" in tags, "tags of the runtime")
    need(headers["DD-EVP-ORIGIN"] and headers["DD-EVP-ORIGIN-VERSION"], "origin")
    keep("datadog", "all", data)
    words = " ".join(each.replace(":", "=", 1).replace(" ", "%20") for each in tags)
    of_pod = f"container={headers['Datadog-Container-ID']} entity={headers['Datadog-Entity-ID']}"
    return f"datadog all types={','.join(types)} key={headers['DD-API-KEY']} {of_pod} {words}"


def raw_part(body, boundary, name):
    """email decodes no binary part without changing line ends."""
    for part in body.split(b"--" + boundary.encode()):
        head, _, rest = part.partition(b"\r\n\r\n")
        if f'name="{name}"'.encode() in head:
            return rest[:-2]
    raise Refused("part " + name)


def post(headers, body):
    family = headers["X-Libagent-Family"]
    strict_profile(body)
    keep("post", family, body)
    return (f"post {family} service={headers['X-Libagent-Service']} "
            f"sequence={headers['X-Libagent-Sequence']} tags={headers['X-Libagent-Tags']}")


KINDS = {
    "/push.v1.PusherService/Push": pyroscope,
    "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw": parca,
    "/profiling/v1/input": datadog,
    "/api/v2/profile": datadog,
    "/plain": post,
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def address_string(self):
        return "local"

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def whole_body(self, fault):
        """Reads it, and says which profile it is."""
        body = self.body()
        found = re.search(UUID.encode(), body)
        say(f"fault {fault} at={time.monotonic():.3f} id={found[0].decode() if found else ''}")

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def write_without_end(self, fault, begin, more, pause=0.0):
        """Until the client goes."""
        try:
            self.wfile.write(begin)
            while True:
                self.wfile.write(more)
                time.sleep(pause)
        except OSError:
            say(f"gone {fault}")
            self.close_connection = True

    def play(self, fault):
        """True: it has been answered, or never will be."""
        with lock:
            seen[fault] += 1
            turn = seen[fault]
        match = re.fullmatch(r"(\d{3})(?:x(\d+))?(?:after(\d+))?", fault)
        if fault == "pass" or match and turn > int(match[2] or (1 if match[3] else 1 << 30)):
            return False
        if fault in ("half", "deaf"):  # closes in the middle of a request; does not even read
            say(f"fault {fault} at={time.monotonic():.3f}")
            if fault == "deaf":
                time.sleep(600)
            self.rfile.read(100)
            self.reset()
            return True
        self.whole_body(fault)
        if match:
            more = {"Retry_After": match[3]} if match[3] else {}
            if match[1] == "302":
                more["Location"] = self.path
            self.answer(int(match[1]), b"because of the test", **more)
        elif fault == "stall":  # takes all, says nothing
            time.sleep(600)
        elif fault == "reset":
            self.reset()
        elif fault == "garbage":
            self.wfile.write(os.urandom(4096))
            self.close_connection = True
        elif fault == "slow":
            self.write_without_end(fault, b"HTTP/1.1 200 OK\r\n", b"X", 0.05)
        elif fault == "endless":
            self.write_without_end(fault, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                                   b"10000\r\n" + b"x" * 65536 + b"\r\n")
        elif fault == "headers":
            self.write_without_end(fault, b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"y" * 4000 + b"\r\n")
        elif fault.startswith("grpc"):  # a status in the trailer's frame
            trailer = f"grpc-status: {fault[4:]}\r\n".encode()
            self.answer(200, b"\0\0\0\0\0\x80" + struct.pack(">I", len(trailer)) + trailer)
        else:
            say(f"BAD fault {fault}")
        return True

    def do_POST(self):
        path = re.sub("^http://[^/]*", "", self.path)  # as a proxy gets it
        match = re.match(r"/=(\w+)(/.*|$)", path)
        if match:
            if self.play(match[1]):
                return
            path = match[2]
        body = self.body()
        try:
            need(path in KINDS, f"path {path}")
            need(self.headers["Expect"] is None and self.headers["Cookie"] is None, "headers")
            words = KINDS[path](self.headers, body)
        except Exception as error:  # all of it is for the suite
            say(f"BAD {path}: {error!r}")
            self.answer(400, str(error).encode())
            return
        for name in ("Authorization", "X-Scope-OrgID"):
            if self.headers[name]:
                words += f" {name}={self.headers[name].replace(' ', '%20')}"
        say(f"{words} path={self.path}")
        more = {"grpc_status": "0"} if KINDS[path] is parca else {}
        self.answer(200, **more)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def shutdown_request(self, request):
        self.close_request(request)  # with no end of the stream before it: a reset stays one

    def handle_error(self, request, client_address):
        pass  # a client that went


class UnixServer(Server):
    address_family = socket.AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "local", 1


def main():
    address = sys.argv[2]
    if address.startswith("/"):
        server = UnixServer(address, Handler)
    else:
        server = Server(("127.0.0.1", int(address)), Handler)
    if len(sys.argv) > 4:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[3], sys.argv[4])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    written = os.path.join(folder, "address")
    with open(written + ".new", "w") as out:
        out.write(f"{server.server_port}\n")
    os.rename(written + ".new", written)
    server.serve_forever()


main()
