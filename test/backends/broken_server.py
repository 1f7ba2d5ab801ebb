"""Small servers that do a backend's worst on a real socket, each in threads of this process."""

import os
import socket
import struct
import threading

# Closed at once, or with a reset: SO_LINGER of 0 s.
RESET = struct.pack("ii", 1, 0)
LENGTH = b"content-length:"


def read_head(link):
    data = b""
    while b"\r\n\r\n" not in data:
        piece = link.recv(65536)
        if not piece:
            return None
        data += piece
    return data.partition(b"\r\n\r\n")


def read_request(link, server):
    """All of it, and counts it; False: the client went."""
    parts = read_head(link)
    if not parts:
        return False
    head, _, body = parts
    size = next(int(line[len(LENGTH):]) for line in head.lower().split(b"\r\n")
                if line.startswith(LENGTH))
    while len(body) < size:
        piece = link.recv(65536)
        if not piece:
            return False
        body += piece
    server.whole += 1
    return True


def reset(link):
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


# ---- what a connection is done to; the server's end is a closed listener and closed links ----

def never_reads(link, _):
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    threading.Event().wait(60)


def never_answers(link, server):
    if read_request(link, server):
        link.recv(1)


def resets_at_once(link, _):
    reset(link)


def resets_in_the_middle(link, _):
    link.recv(20)
    reset(link)


def resets_after_all(link, server):
    if read_request(link, server):
        reset(link)


def answers_garbage(link, server):
    if read_request(link, server):
        link.sendall(os.urandom(4096))


def answers_half_a_status(link, server):
    if read_request(link, server):
        link.sendall(b"HTTP/1.1 2")


def answers_without_end(link, server):
    if read_request(link, server):
        link.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            link.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def sends_headers_without_end(link, server):
    if read_request(link, server):
        link.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            link.sendall(b"X-More: " + b"y" * 4000 + b"\r\n")


def redirects_without_end(link, server):
    while read_request(link, server):
        link.sendall(b"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\n"
                     b"Location: http://127.0.0.1:%d/again\r\n\r\n" % server.port)


class BrokenServer:
    def __init__(self, behaviour):
        self.behaviour = behaviour
        self.connections = 0
        self.whole = 0  # requests that were read to their end
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.links = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.links.append(link)
            threading.Thread(target=self.serve, args=(link,), daemon=True).start()

    def serve(self, link):
        try:
            self.behaviour(link, self)
        except OSError:
            pass  # the client went
        finally:
            link.close()

    def close(self):
        self.listener.close()
        for link in self.links:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
