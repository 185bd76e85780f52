"""The page for people at /, in a headless Chromium where there is one, and the server behind it. What is sent of it: test_protocol.py;
conversations: test_chats.py; how answers look: test_markdown.py."""
import contextlib
import json
import tempfile
import threading

import page
import serve
from serve import Server
from test_models import Folder

SLOW = ["WEFT_FORCE=gemm=ref,attention=ref"]  # so that something still runs when it is looked at
# WCAG's contrast of two of the page's colours.
CONTRAST = """
(() => {
    const light = name => {
        const probe = document.body.appendChild(document.createElement('i'));
        probe.style.color = `var(--${name})`;
        const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        probe.remove();
        return .2126 * r + .7152 * g + .0722 * b;
    };
    const pairs = ['ink paper', 'ink raised', 'ink sunk', 'ink wash', 'ink alarm', 'teal paper', 'teal raised', 'soft wash', 'soft paper', 'soft raised', 'soft sunk', 'on-teal teal', 'paper red'];
    return pairs.map(pair => {
        const [b, a] = pair.split(' ').map(light).sort((x, y) => x - y);
        return [pair, (a + .05) / (b + .05)];
    });
})()"""


class Page(page.TestCase):
    @contextlib.contextmanager
    def load(self):
        """Something always runs meanwhile."""
        ended = threading.Event()

        def work():
            while not ended.is_set():
                self.s.complete(max_tokens=60, ignore_eos=True)

        t = threading.Thread(target=work)
        t.start()
        try:
            yield
        finally:
            ended.set()
            t.join()

    def test_chat(self):
        """What is typed goes to the model as it is, with what was said before, and is shown as it is."""
        first, second = "Hello <img src=x onerror='throw 1'> & <b>you</b>\n  there", "Go on"
        self.put(temperature="0", most="20", system="Be brief")
        self.b.click("#words")
        self.b.type(first)
        self.b.enter(shift=True)  # with Shift: no end of the message
        self.b.enter()
        self.until_answered(1)
        self.assertEqual(self.text(".user .words").rstrip("\n"), first)
        self.assertEqual(self.b.js("getComputedStyle(document.querySelector('.words')).whiteSpace.slice(0, 8)"), "pre-wrap")
        self.assertIsNone(self.b.js("document.querySelector('#turns img, #turns b')"))
        turns = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": self.text(".user .words")}]
        want = self.s.chat(messages=turns, max_tokens=20).json
        self.assertEqual(self.answer(), want["choices"][0]["message"]["content"])
        tokens = want["usage"]["completion_tokens"]
        self.assertRegex(self.text(".note"), rf"^{tokens} tokens · [\d.]+ tokens/s · first after [\d.]+ s")
        self.say(second)
        self.until_answered(2)
        turns += [want["choices"][0]["message"], {"role": "user", "content": second}]
        want = self.s.chat(messages=turns, max_tokens=20).json["choices"][0]["message"]["content"]
        self.assertEqual(self.answer(), want)
        self.b.click("#fresh")
        self.assertEqual(self.b.js("document.querySelector('#turns').childElementCount"), 0)

    def test_several_models(self):
        """The one that is chosen is loaded when it is asked, and answers."""
        s = Folder()
        self.open(s)
        self.assertEqual((self.b.js("document.querySelector('#model').checkVisibility()"), self.texts("#models option")), (False, ["alpha", "beta"]))
        self.assertEqual(self.text("#hint"), "alpha is loaded when you ask it something.")
        self.b.js("document.querySelector('#models').value = 'beta', document.querySelector('#models').dispatchEvent(new Event('change'))")
        self.until_seen("document.title.startsWith('beta')")
        self.put(most="5", temperature="0")
        self.say("One day")
        self.until_answered(1)
        self.assertEqual(s.states(), {"alpha": "unloaded", "beta": "loaded"})
        self.until_seen("document.querySelector('#models').value === 'beta' && document.querySelector('#status').textContent === 'Ready'")
        self.reload()
        self.assertEqual(self.b.js("document.querySelector('#models').value"), "beta")  # it is loaded
        self.assertEqual(s.end()[0], 0)

    def test_stop(self):
        s = Server(*SLOW)
        self.open(s)
        self.b.js("document.querySelector('#mode-text').click()")
        self.put(temperature="0", most="500")
        self.say("One day")
        self.b.until("document.querySelector('.answer .words').textContent.length > 20")
        self.b.click("#stop")
        self.until_answered(1)
        self.assertIn("stopped", self.text(".note"))
        self.assertTrue(self.s.complete(max_tokens=500).text.startswith(self.text(".answer .words")[len("One day"):]))
        s.until(lambda m: m['request_success_total{finished_reason="abort"}'] == 1, "the server's work has ended")
        self.say("One day")
        self.b.until("document.querySelectorAll('.answer').length === 2 && document.querySelector('[aria-busy] .words').textContent.length > 20")
        self.b.click("#fresh")  # ends it, too
        self.until_answered(0)
        s.until(lambda m: m['request_success_total{finished_reason="abort"}'] == 2, "the server's work has ended")
        self.assertEqual(s.end()[0], 0)

    def test_figures(self):
        with self.load():
            self.until_seen("document.querySelector('#running').textContent === '1'")
            self.until_seen("parseFloat(document.querySelector('#rate').textContent) > 0")
            self.until_seen("parseFloat(document.querySelector('#kv').textContent) > 0")
            self.until_seen("/whole step[\\d.]+ ms/.test(document.querySelector('#steps').textContent)")
            self.assertTrue(self.b.js("document.querySelector('#overlap').hidden"))
        self.until_seen("document.querySelector('#running').textContent === '0'")
        self.assertEqual(self.text("#waiting"), "0")

    def test_step_classes(self):
        """Where the server tells classes of work apart, each has its bar; the prefix of the names is the server's choice."""
        script = self.b.call("Page.addScriptToEvaluateOnNewDocument", source="""
            const real = fetch;
            let looks = 0;
            fetch = async (path, ...more) => {
                if (path !== "/metrics") return real(path, ...more);
                looks++;
                const line = (name, kind, value) => `vllm:step_seconds_${name}{model_name="m",class="${kind}"} ${value}\\n`;
                return new Response(line("sum", "compute", looks * 0.03) + line("count", "compute", looks * 10) +
                                    line("sum", "memory", looks * 0.015) + line("count", "memory", looks * 10) +
                                    line("sum", "network", 0) + line("count", "network", looks * 10) +
                                    `vllm:nano_batch_overlap_ratio{model_name="m"} ${looks > 1 ? 0.25 : 0}\\n`);
            };""")["identifier"]
        self.open(self.s)
        self.b.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        self.until_seen("document.querySelectorAll('#steps .bar').length === 2")
        self.assertEqual(self.b.js("[...document.querySelectorAll('#steps dl > div')].map(d => d.innerText.split('\\n').join(' '))"),
                         ["compute 3.00 ms", "memory 1.50 ms"])
        self.assertEqual(self.b.js("[...document.querySelectorAll('#steps i')].map(i => i.style.width)"), ["100%", "50%"])
        self.assertEqual(self.text("#overlap"), "Ops of two queues at once: 25.0 %")
        self.assertFalse(self.b.js("document.querySelector('#overlap').hidden"))

    def test_errors(self):
        self.put(most="99999")
        self.say("Hello")
        self.until_answered(1)
        self.assertIn("max_tokens is 99999", self.b.js("document.querySelector('.trouble[role=alert]').textContent"))
        self.put(most="5")
        self.b.click(".trouble button:last-child")
        self.until_answered(1)
        self.assertIsNone(self.text(".trouble"))
        self.assertRegex(self.text(".note"), "^5 tokens .*cut off")

    def test_limits(self):
        """What a field says it takes, requests take."""
        limits = self.b.js("[...document.querySelectorAll('[data-field]')].flatMap(f => [f.min, f.max].filter(Boolean).map(v => [f.dataset.field, Number(v)]))")
        self.assertIn(["repetition_penalty", 0.001], limits)
        for name, limit in limits:
            self.assertEqual(self.s.post("/v1/completions", {"prompt": "a", "max_tokens": 1, name: limit}).status, 200, (name, limit))

    def test_key(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            f.write("a-key\n")
            f.flush()
            s = Server("--api-key-file", f.name)
        self.open(s, "API key needed")
        for key, status in (("no-key", "Wrong API key"), ("a-key", "Ready")):
            self.b.click("#key")
            self.b.type(key)
            self.b.enter()
            self.until_status(status)
        self.assertTrue(self.b.js("document.querySelector('#keys').hidden"))
        self.put(most="5")
        self.say("Hello")
        self.until_answered(1)
        self.assertIsNone(self.text(".trouble"))
        self.assertEqual(s.end()[0], 0)
        self.until_status("No connection")
        self.assertTrue(self.b.js("document.querySelector('#go').disabled"))

    def test_without_template(self):
        s = Server(template=None)
        self.open(s)
        self.put(temperature="0", most="12")
        self.assertTrue(self.b.js("document.querySelector('#mode-text').checked && document.querySelector('#mode-chat').disabled"))
        self.say("One day")
        self.until_answered(1)
        self.assertEqual(self.text(".answer .words"), "One day" + self.s.complete().text)
        self.assertEqual(s.end()[0], 0)

    def test_template_comes_back(self):
        """A model that cannot chat leaves the user's choice as it was, also when another setting is kept meanwhile."""
        s = Server(template=None)
        self.open(s)
        self.b.js("document.querySelector('#top-k').value = 5, document.querySelector('#top-k').dispatchEvent(new Event('input', {bubbles: true}))")
        self.assertEqual(s.end()[0], 0)
        self.until_status("No connection")
        s = Server("--port", s.port)
        self.until_status("Ready")
        for _ in range(2):
            self.assertEqual(self.b.js("['chat', 'text'].map(m => document.querySelector('#mode-' + m).checked)"), [True, False])
            self.assertEqual(self.b.js("document.querySelector('#top-k').value"), "5")
            self.reload()
        self.b.js("document.querySelector('#mode-text').click()")
        self.reload()
        self.assertTrue(self.b.js("document.querySelector('#mode-text').checked"))
        self.assertEqual(s.end()[0], 0)

    def test_every_size(self):
        """Nothing sticks out sideways or downwards, and what is needed is in sight."""
        self.put(most="5")
        self.say("w" * 400)
        self.until_answered(1)
        for width, height, mobile in ((320, 568, True), (360, 740, True), (390, 844, True), (1280, 800, False), (740, 360, True)):
            self.b.size(width, height, mobile)
            out = self.b.js("[document.documentElement.scrollWidth - innerWidth, document.documentElement.scrollHeight - innerHeight,"
                            "innerHeight - document.querySelector('#ask').getBoundingClientRect().bottom]")
            self.assertLessEqual(max(out[:2]), 0, (width, out))
            self.assertGreaterEqual(out[2], 0, width)

    def test_names_and_contrast(self):
        self.b.js("document.querySelector('#settings').open = true, document.querySelector('#settings details').open = true")
        roles = {"button", "textbox", "spinbutton", "radio"}
        nodes = [n for n in self.b.call("Accessibility.getFullAXTree")["nodes"] if n.get("role", {}).get("value") in roles]
        self.assertGreaterEqual({n["role"]["value"] for n in nodes}, roles)
        for n in nodes:
            self.assertTrue(n["name"]["value"].strip(), n)
        for scheme in ("light", "dark"):
            self.b.scheme(scheme)
            for pair, contrast in self.b.js(CONTRAST):
                self.assertGreaterEqual(contrast, 4.5, (scheme, pair))


if __name__ == "__main__":
    serve.main()
