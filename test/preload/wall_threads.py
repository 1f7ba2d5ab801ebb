# Threads of python that wait in several ways, and one that computes, for two seconds.
import queue
import select
import socket
import subprocess
import threading
import time

SECONDS = 2
pair = socket.socketpair()
event, jobs = threading.Event(), queue.Queue()


def compute():
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        sum(range(10000))
        time.sleep(0.002)


def receive():
    pair[0].settimeout(SECONDS)
    try:
        pair[0].recv(1)
    except TimeoutError:
        pass


def from_queue():
    try:
        jobs.get(timeout=SECONDS)
    except queue.Empty:
        pass


ways = (
    compute,
    receive,
    from_queue,
    lambda: time.sleep(SECONDS),
    lambda: event.wait(SECONDS),
    lambda: select.select([pair[1]], [], [], SECONDS),
    lambda: subprocess.run(["sleep", str(SECONDS)], check=True),
)
threads = [threading.Thread(target=way) for way in ways]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
