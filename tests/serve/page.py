"""What the tests of the page share: a server, a browser that has opened it, and answers that are made up.

With `fake()` the page asks nobody for answers: what `feed` gets comes as the server would send it.
"""
import base64
import json
import unittest

import browser
import serve

STATUS = "document.querySelector('#status').textContent"
# Streams that the test fills: asked is the last request, stream its answer, refusal what is said instead.
FAKE = """
(() => {
    const real = fetch;
    window.refusal = null;
    window.fetch = async (path, options) => {
        if (!path.includes("completions")) return real(path, options);
        window.asked = JSON.parse(options.body);
        if (refusal) return new Response(JSON.stringify({error: refusal}), {status: refusal.status});
        const body = new ReadableStream({start(c) { window.stream = c; }});
        options.signal.addEventListener("abort", () => stream.error(new DOMException("stopped", "AbortError")));
        return new Response(body);
    };
    window.feed = text => stream.enqueue(Uint8Array.from(atob(text), c => c.charCodeAt(0)));
})()"""


def event(text="", finish=None, **delta):
    """A piece of a chat's answer as the server sends it."""
    delta = {"content": text, **delta} if text else delta
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish}]}, ensure_ascii=False)}\n\n"


END = event(finish="stop") + "data: [DONE]\n\n"


@unittest.skipUnless(browser.works(), serve.cli.NEEDS_HARDWARE + "Chromium does not run here" if browser.program() else "no Chromium is installed")
class TestCase(unittest.TestCase):
    s = b = None  # of all classes of a program

    @classmethod
    def setUpClass(cls):
        if not TestCase.s:
            TestCase.s, TestCase.b = serve.Server(), browser.Browser()
            unittest.addModuleCleanup(cls.end_both)

    @classmethod
    def end_both(cls):
        cls.b.end()
        code, log = cls.s.end()
        if code or "ERROR: AddressSanitizer" in log:
            raise AssertionError(log)

    def setUp(self):
        self.b.size(1280, 800)
        self.b.call("Storage.clearDataForOrigin", origin=self.url(self.s)[:-1], storageTypes="all")
        self.open(self.s)

    def tearDown(self):
        trouble, self.b.trouble[:] = self.b.trouble[:], []
        self.assertEqual(trouble, [])

    @staticmethod
    def url(s):
        return f"http://127.0.0.1:{s.port}/"

    def open(self, s, status="Ready"):
        self.b.open(self.url(s))
        self.until_status(status)

    def reload(self):
        self.b.reload()
        self.until_status("Ready")

    def until_seen(self, code):
        """Until the expression is true of what the page knows; it need not wait a second for its next look at the server."""
        self.b.until(f"document.dispatchEvent(new Event('visibilitychange')), {code}")

    def until_status(self, text):
        self.until_seen(f"{STATUS} === {json.dumps(text)}")

    def put(self, **fields):
        for name, value in fields.items():
            self.b.js(f"document.getElementById({json.dumps(name)}).value = {json.dumps(value)}")

    def say(self, text):
        self.b.click("#words")
        self.b.type(text)
        self.b.enter()

    def text(self, selector):
        """Of the last element that fits."""
        return self.b.js(f"[...document.querySelectorAll({json.dumps(selector)})].at(-1)?.textContent")

    def texts(self, selector):
        return self.b.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")

    def press(self, words, where="document"):
        """Clicks the last button there that is seen and says so."""
        self.b.js(f"[...{where}.querySelectorAll('button')].findLast(b => b.checkVisibility() && (b.textContent || b.ariaLabel).startsWith({json.dumps(words)})).click()")

    def until_answered(self, n):
        self.b.until(f"document.querySelectorAll('.answer').length === {n} && !document.querySelector('[aria-busy]') && document.querySelector('#stop').hidden")

    def fake(self):
        self.b.js(FAKE)

    def feed(self, text):
        self.b.js(f"feed({json.dumps(base64.b64encode(text.encode() if isinstance(text, str) else text).decode())})")

    def ask(self, text):
        """A message whose answer the test gives: the page waits for it now."""
        self.b.js("window.asked = null")
        self.say(text)
        self.b.until("asked")

    def converse(self, *turns):
        """Messages and their answers, to the end."""
        for message, answer in turns:
            self.ask(message)
            self.feed(event(answer) + END)
            self.b.js("stream.close()")
            self.b.until("document.querySelector('#stop').hidden && !document.querySelector('[aria-busy]')")

    def kept(self):
        """The open conversation as the browser keeps it."""
        return json.loads(self.b.js("localStorage.getItem('weft-chat-' + location.hash.slice(1))") or "null")

    def answer(self):
        """The last answer as the server sent it."""
        return self.kept()["turns"][-1]["content"]
