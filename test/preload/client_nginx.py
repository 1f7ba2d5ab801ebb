# Asks nginx, at the socket in the folder of argument 1, from four threads; in the middle tells it
# to read its configuration again, and at the end, when only new workers are there, to quit.
# Told: status, headers and hash of the body of each kind of answer, and how many there were of it.
import collections
import hashlib
import http.client
import os
import signal
import socket
import sys
import threading
import time

folder = sys.argv[1]
paths = [f"/small{i}.html" for i in range(10)] + ["/large.txt", "/moved", "/none", "/missing"]
lock = threading.Lock()
answers = collections.Counter()


def ask(path, packed):
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(folder + "/socket")
    headers = {"Connection": "close"} | ({"Accept-Encoding": "gzip"} if packed else {})
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = hashlib.sha256(response.read()).hexdigest()
    connection.close()
    # Times differ from run to run, and with these the tags of files.
    varying = ("Date", "Last-Modified", "ETag", "X-Worker")
    headers = [pair for pair in response.getheaders() if pair[0] not in varying]
    return response.getheader("X-Worker"), (path, packed, response.status, *headers, body)


def load():
    for i in range(24):
        for path in paths:
            _, answer = ask(path, i % 4 != 3)
            with lock:
                answers[answer] += 1


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return set(file.read().split())


while True:
    try:
        ask("/none", False)
        break
    except OSError:
        time.sleep(0.01)
threads = [threading.Thread(target=load) for i in range(4)]
[t.start() for t in threads]
while sum(answers.values()) < 300:
    time.sleep(0.001)
with open(folder + "/nginx.pid") as file:
    master = int(file.read())
old = children(master)
os.kill(master, signal.SIGHUP)
[t.join() for t in threads]
while children(master) & old or len(children(master)) < 2:
    time.sleep(0.001)
for i in range(10):
    worker, answer = ask("/small1.html", False)
    answers[answer] += 1
    if worker in old or worker not in children(master):
        print("answered by", worker, "of", old, children(master))
for answer, count in sorted(answers.items(), key=repr):
    print(count, *answer)
os.kill(master, signal.SIGQUIT)
