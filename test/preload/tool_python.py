# python3: threads that compute and start children, processes that share work, signals, a wait.
# Told: the hashes of what the threads computed, what children give and how they end.
import hashlib
import json
import multiprocessing
import re
import signal
import subprocess
import sys
import threading
import time
import zlib


def work(seed, results):
    data = [{"key": i, "text": str(i + seed) * 5} for i in range(300)]
    total = hashlib.sha256()
    for i in range(500):
        text = json.dumps(data)
        data = json.loads(text)
        packed = zlib.compress(text.encode(), 6)
        total.update(zlib.decompress(packed))
        total.update(str(sum(len(m) for m in re.findall("[0-9]+", text))).encode())
        total.update("".join(sorted(str(k) for k in range(500))).encode())
        if i % 100 == 0:
            tr = ["tr", "0-9", "a-j"]
            total.update(subprocess.run(tr, input=packed, capture_output=True).stdout)
        data[i % 300]["text"] = text[:20]
    results[seed] = total.hexdigest()


def square(n):
    return sum(k * k for k in range(n))


if __name__ == "__main__":
    results = [None] * 4
    threads = [threading.Thread(target=work, args=(i, results)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(results)
    with multiprocessing.Pool(3) as pool:
        print(sum(pool.map(square, range(1000, 1200))))
    sleepers = [subprocess.Popen(["sleep", "30"]) for i in range(10)]
    [s.terminate() for s in sleepers]
    print([s.wait() for s in sleepers])
    print([subprocess.run(["sh", "-c", f"exit {i}"]).returncode for i in range(50)])
    signal.signal(signal.SIGALRM, lambda *rest: print("alarm"))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    begin = time.monotonic()
    time.sleep(0.2)
    print(time.monotonic() - begin >= 0.2)
    print("warned", file=sys.stderr)
    sys.exit(6)
