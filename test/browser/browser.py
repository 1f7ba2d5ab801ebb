"""Headless Chromium, driven by its DevTools protocol over two pipes (it reads descriptor 3 and writes 4,
messages end with a zero byte). Nothing leaves the machine."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds for an answer: for a machine that does other things as well
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
         "--no-default-browser-check", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--disable-extensions", "--hide-scrollbars=false",
         "--host-resolver-rules=MAP * ~NOTFOUND"]


def program():
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        raise SystemExit("chromium is missing: make browser-deps installs it")
    return found


class Browser:
    def __init__(self):
        self.home = tempfile.mkdtemp(prefix="libagent-browser-")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # bash: its redirections take descriptors of any number.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", program(), *FLAGS,
             f"--user-data-dir={self.home}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.home}, start_new_session=True)
        os.close(theirs_in)
        os.close(theirs_out)
        self.incoming, self.outgoing = ours_in, ours_out
        self.buffer = bytearray()
        self.number = 0
        self.answers = {}
        self.events = []

    def close(self):
        os.close(self.outgoing)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.incoming)
        shutil.rmtree(self.home, ignore_errors=True)

    def read(self, until):
        """Takes one message, an answer or an event; False when none came in time."""
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.incoming], [], [], max(0, until - time.monotonic()))
            if not ready:
                return False
            data = os.read(self.incoming, 1 << 20)
            if not data:
                raise RuntimeError("the browser ended")
            self.buffer += data
        end = self.buffer.index(b"\0")
        message = json.loads(self.buffer[:end])
        del self.buffer[:end + 1]
        if "id" in message:
            self.answers[message["id"]] = message
        else:
            self.events.append(message)
        return True

    def call(self, method, session=None, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.outgoing, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while number not in self.answers:
            if not self.read(until):
                raise RuntimeError(f"no answer to {method}")
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]


KEY_CODES = {"Enter": 13, "Escape": 27, "Backspace": 8, "Tab": 9, " ": 32, "ArrowLeft": 37, "ArrowUp": 38,
             "ArrowRight": 39, "ArrowDown": 40}


class Page:
    """A tab with one page of ours in it."""

    def __init__(self, browser, path, width=1400, height=800, dark=False, ratio=1):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=ratio, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.url = "file://" + os.path.abspath(path)
        self.call("Page.navigate", url=self.url)
        self.wait(lambda: any(event["method"] == "Page.loadEventFired" for event in self.events()))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def events(self, *methods):
        return [event for event in self.browser.events if event.get("sessionId") == self.session and
                (not methods or event["method"] in methods)]

    def wait(self, condition):
        until = time.monotonic() + PATIENCE
        while not condition():
            if not self.browser.read(until):
                raise RuntimeError("waited in vain")

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", expression))
        return answer["result"].get("value")

    def drawn(self):
        """Until what was asked for is on the screen."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def until(self, expression):
        """Looked for at each picture; in vain, this is an answer that does not come."""
        self.evaluate(f"new Promise(done => {{ const look = () => {expression} ? done() :"
                      " requestAnimationFrame(look); look(); })")

    def state(self):
        self.drawn()
        return self.evaluate("libagentPage.snapshot()")

    def boxes(self, name):
        return self.evaluate(f"libagentPage.boxes({json.dumps(name)})")

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def mouse(self, kind, x, y, clicks=0):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, clickCount=clicks,
                  button="left" if clicks else "none", buttons=1 if kind == "mousePressed" else 0)

    def click(self, x, y, clicks=1):
        self.mouse("mouseMoved", x, y)
        for count in range(1, clicks + 1):
            self.mouse("mousePressed", x, y, count)
            self.mouse("mouseReleased", x, y, count)
        self.drawn()

    def middle(self, selector):
        return self.evaluate(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()")

    def click_on(self, selector, clicks=1):
        self.click(*self.middle(selector), clicks)

    def point_at(self, name):
        box = self.boxes(name)[0]
        self.mouse("mouseMoved", box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.drawn()

    def click_frame(self, name):
        box = self.boxes(name)[0]
        self.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def key(self, key):
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        common = {"key": key, "windowsVirtualKeyCode": KEY_CODES.get(key, ord(key.upper()[0]))}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.drawn()

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.drawn()

    def choose(self, selector, text):
        """An option of a select by its text, as a hand would choose it."""
        self.evaluate(
            f"(() => {{ const select = document.querySelector({json.dumps(selector)});"
            f" const found = [...select.options].find(each => each.textContent === {json.dumps(text)});"
            " if (!found) throw new Error('no such option: ' + [...select.options].map(each => each.text));"
            " select.value = found.value; select.dispatchEvent(new Event('change', {bubbles: true})); })()")
        self.drawn()

    def screenshot(self, path):
        self.drawn()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self):
        """What the browser said of errors, of what the page's policy forbids, and of dialogs."""
        said = []
        for event in self.events("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled",
                                 "Page.javascriptDialogOpening"):
            said.append(json.dumps(event["params"])[:400])
        return said

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events("Network.requestWillBeSent")]
