"""A headless Chromium, driven over the DevTools protocol: JSON messages that end in a byte of 0, over two pipes."""
import atexit
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

PROGRAMS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]
PATIENCE = 60


def program():
    """The first Chromium that is installed, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


# As root Chromium wants no sandbox; pages of ours alone are opened.
HOW = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]


def works():
    """Is one installed that runs here? Containers may lack what it needs of the kernel."""
    try:
        return bool(program()) and subprocess.run([program(), *HOW, "--dump-dom", "about:blank"], stdin=subprocess.DEVNULL, capture_output=True,
                                                  timeout=PATIENCE).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def is_trouble(m):
    """An exception or a breach of the page's policy; answers other than 200 are none."""
    if m["method"] == "Log.entryAdded":
        return m["params"]["entry"]["level"] == "error" and m["params"]["entry"]["source"] != "network"
    return m["method"] == "Runtime.exceptionThrown"


class Browser:
    """One browser and the page in its tab."""

    def __init__(self, width=1280, height=800):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.news, self.answers, self.trouble, self.last, self.loads = threading.Condition(), {}, [], 0, 0
        self._start(width, height)
        threading.Thread(target=self._listen, daemon=True).start()
        self.tab()

    def tab(self):
        """A new tab, to which all calls go until session is set to that of another one."""
        self.target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self._call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(domain + ".enable")
        return self.session

    def close_tab(self):
        self._call("Target.closeTarget", targetId=self.target)

    def _start(self, width, height):
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        # The protocol is on descriptors 3 and 4, so that ours must lie above them.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]

        def place():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.p = subprocess.Popen(
            [program(), *HOW, "--remote-debugging-pipe",
             f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=place, pass_fds=(3, 4))
        atexit.register(self.p.kill)
        for fd in (theirs_in, theirs_out, *high):
            os.close(fd)

    def _listen(self):
        rest = b""
        while part := os.read(self.back, 1 << 16):
            *messages, rest = (rest + part).split(b"\0")
            for message in messages:
                self._take(json.loads(message))
        with self.news:
            self.answers = None
            self.news.notify_all()

    def _take(self, m):
        with self.news:
            if "id" in m:
                self.answers[m["id"]] = m
            elif is_trouble(m):
                self.trouble.append(json.dumps(m["params"]))
            elif m["method"] == "Page.loadEventFired":
                self.loads += 1
            self.news.notify_all()

    def _call(self, method, session=None, **params):
        self.last += 1
        m = {"id": self.last, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(m).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        with self.news:
            if not self.news.wait_for(lambda: self.answers is None or m["id"] in self.answers, PATIENCE) or self.answers is None:
                raise AssertionError(f"the browser gave no answer to {method}")
            answer = self.answers.pop(m["id"])
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def call(self, method, **params):
        return self._call(method, self.session, **params)

    def open(self, url):
        self._load(url, "Page.navigate", url=url)

    def reload(self):
        self._load("the page", "Page.reload")

    def _load(self, what, method, **params):
        before = self.loads
        self.call(method, **params)
        with self.news:
            if not self.news.wait_for(lambda: self.loads > before, PATIENCE):
                raise AssertionError(f"{what} did not load")

    def js(self, code):
        """The value of an expression in the page."""
        r = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in r:
            raise AssertionError(f"{code}: {r['exceptionDetails']}")
        return r["result"].get("value")

    def until(self, code, what=None):
        """The value of the expression, once it is neither false nor empty."""
        end = time.monotonic() + PATIENCE
        while not (value := self.js(code)):
            if time.monotonic() > end:
                raise AssertionError(f"not in time: {what or code}; the page shows:\n{self.js('document.body.innerText')}")
            time.sleep(0.02)
        return value

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, key, number=0, modifiers=0, **more):
        """modifiers: 1 Alt, 2 Ctrl, 4 Meta, 8 Shift."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=number, modifiers=modifiers, **more)

    def enter(self, shift=False):
        self.key("Enter", 13, 8 * shift, text="\r")

    def click(self, selector):
        """With the mouse, in its middle; so it must be visible and nothing may lie above it."""
        x, y = self.js(f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                       "return [r.x + r.width / 2, r.y + r.height / 2] })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def size(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def end(self):
        try:
            self._call("Browser.close")
        except (AssertionError, OSError):
            self.p.kill()
        self.p.wait(PATIENCE)
        os.close(self.to)
        self.profile.cleanup()
