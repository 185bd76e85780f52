"""Conversations on the page: kept, listed, edited, saved and opened; what goes wrong; keys, screen readers and phones. The answers are made up."""
import json
import os
import pathlib
import signal
import tempfile

import page
import serve
from page import END, event

FOCUS = "document.activeElement"
REFUSALS = [(400, None, "Change the message", "Settings"), (400, "context_length_exceeded", "Begin a new", "New conversation"), (413, None, "shorter", None),
            (429, None, "Wait a little", None), (503, None, "Wait a little", None), (500, None, "log says why", None)]  # status, code, what helps, and its button


class Chats(page.TestCase):
    def setUp(self):
        super().setUp()
        self.fake()

    def titles(self):
        return self.texts("#list a")

    def reload(self):
        super().reload()
        self.fake()

    def words(self):
        return [t.strip() for t in self.texts(".words")]

    def asked(self):
        return [(m["role"], m["content"]) for m in self.b.js("asked.messages")]

    def end(self, data=END):
        self.feed(data)
        self.b.js("stream.close()")
        self.b.until("document.querySelector('#stop').hidden && !document.querySelector('[aria-busy]')")


class Kept(Chats):
    def test_reload(self):
        self.converse(("Hello", "# Hi"), ("And?", "*So*"))
        self.reload()
        self.assertEqual(self.words(), ["Hello", "Hi", "And?", "So"])
        self.assertEqual(self.b.js("document.querySelectorAll('.answer h4, .answer em').length"), 2)
        self.converse(("More", "Yes"))
        self.assertEqual(self.asked(), [("user", "Hello"), ("assistant", "# Hi"), ("user", "And?"), ("assistant", "*So*"), ("user", "More")])

    def test_reload_amid_answer(self):
        """What came stays, and the answer can be asked for anew."""
        self.ask("Hello")
        self.feed(event("Half an"))
        self.b.until("document.querySelector('.answer .words').textContent === 'Half an'")
        self.reload()
        self.assertEqual(self.words(), ["Hello", "Half an"])
        self.assertIn("broken off", self.text(".note"))
        self.press("Again")
        self.b.until("window.asked")
        self.end(event("Whole") + END)
        self.assertEqual((self.words(), self.asked()), (["Hello", "Whole"], [("user", "Hello")]))

    def test_killed_amid_answer(self):
        """Half an answer is kept while it comes, once for all that came in a while, and stays where the tab has no time to say anything."""
        self.b.js("""window.timers = [], window.setTimeout = (f, ms, ...args) => timers.push(() => f(...args)), window.writes = 0,
                     (real => { Storage.prototype.setItem = function (...args) { writes++; real.apply(this, args); }; })(Storage.prototype.setItem)""")
        self.ask("Hello")
        before = self.b.js("writes")
        for n, so_far in enumerate(("a" * 40, "a" * 80), 1):
            for _ in range(40):
                self.feed(event("a"))
            self.b.until(f"document.querySelector('.answer .words').textContent === '{so_far}'")
            self.assertEqual(self.b.js("writes"), before + n - 1)
            self.b.js("timers.splice(0).forEach(f => f())")
            self.assertEqual(self.b.js("writes"), before + n)
        self.feed(event(" lost"))
        self.b.until("document.querySelector('.answer .words').textContent.endsWith('lost')")
        self.b.js("Storage.prototype.setItem = Storage.prototype.removeItem = () => 0")
        self.reload()
        self.assertEqual(self.words(), ["Hello", "a" * 80])
        self.assertIn("broken off", self.text(".note"))
        self.converse(("On", "Yes"))
        self.reload()
        self.assertEqual(self.words(), ["Hello", "a" * 80, "On", "Yes"])
        self.assertEqual(self.b.js("Object.keys(localStorage).filter(k => k.includes('half')).length"), 0)

    def test_list(self):
        """The newest first; opened, renamed, deleted and brought back; other tabs see it."""
        self.converse(("First <b>", "1"))
        self.b.click("#fresh")
        self.converse(("Second", "2"))
        self.assertEqual(self.titles(), ["Second", "First <b>"])
        self.b.click("#list li:last-child a")
        self.b.until("document.querySelector('.answer .words')?.textContent === '1'")
        self.assertEqual(self.b.js("document.querySelector('#list [aria-current=page]').textContent"), "First <b>")
        self.press("Rename First <b>")
        self.b.type("Renamed")
        self.b.enter()
        self.assertEqual(self.titles(), ["Second", "Renamed"])
        self.press("Rename Second")
        self.b.type("not this")
        self.b.key("Escape", 27)
        self.assertEqual(self.titles(), ["Second", "Renamed"])
        self.press("Delete Renamed")
        self.assertEqual((self.titles(), self.words()), (["Second"], []))
        self.reload()
        self.assertEqual(self.titles(), ["Second"])
        self.press("Delete Second")
        self.press("Undo")
        self.assertEqual((self.titles(), self.words()), (["Second"], ["Second", "2"]))
        self.b.js("""localStorage.setItem("weft-chat-other", JSON.stringify({title: "Of another tab", at: 9e15, turns: []})),
                     dispatchEvent(new StorageEvent("storage", {key: "weft-chat-other"}))""")
        self.assertEqual(self.titles(), ["Of another tab", "Second"])

    def test_back(self):
        """The browser's own way back leads to the conversation before."""
        self.converse(("First", "1"))
        self.b.click("#fresh")
        self.converse(("Second", "2"))
        self.b.js("history.back()")
        self.b.until("document.querySelector('.user .words')?.textContent === 'First'")

    def test_left_amid_answer(self):
        """The answer ends where it was, and nothing of it gets into the other conversation."""
        self.ask("First")
        self.feed(event("Half"))
        self.b.until("document.querySelector('.answer .words').textContent === 'Half'")
        self.b.click("#fresh")
        self.assertEqual(self.words(), [])
        self.converse(("Second", "2"))
        self.assertEqual(self.words(), ["Second", "2"])
        self.b.click("#list li:last-child a")
        self.b.until("document.querySelector('.user .words').textContent === 'First'")
        self.assertEqual(self.words(), ["First", "Half"])
        self.assertIn("stopped", self.text(".note"))

    def test_edit(self):
        self.converse(("One", "1"), ("Two", "2"), ("Three", "3"))
        self.press("Edit", "document.querySelectorAll('.user')[1]")
        self.assertEqual(self.b.js(f"{FOCUS}.value"), "Two")
        self.b.key("Escape", 27)
        self.assertEqual(self.words(), ["One", "1", "Two", "2", "Three", "3"])
        self.press("Edit", "document.querySelectorAll('.user')[1]")
        self.b.js(f"{FOCUS}.select()")
        self.b.type("Other")
        self.b.js("window.asked = null")
        self.b.enter()
        self.b.until("asked")
        self.assertEqual(self.asked(), [("user", "One"), ("assistant", "1"), ("user", "Other")])
        self.end(event("4") + END)
        self.reload()
        self.assertEqual(self.words(), ["One", "1", "Other", "4"])

    def test_again(self):
        self.converse(("One", "1"), ("Two", "2"))
        self.assertEqual(self.b.js("[...document.querySelectorAll('.again')].filter(b => b.checkVisibility()).length"), 1)
        self.b.js("window.asked = null")
        self.press("Again")
        self.b.until("asked")
        self.end(event("new") + END)
        self.assertEqual(self.asked(), [("user", "One"), ("assistant", "1"), ("user", "Two")])
        self.assertEqual(self.words(), ["One", "1", "Two", "new"])

    def test_settings(self):
        self.b.click("#show-settings")
        for name, value in {"system": "Be brief", "temperature": "0.5", "most": "7", "top-p": "0.9", "top-k": "5", "penalty": "1.1", "seed": "3"}.items():
            self.b.click("#" + name)
            self.b.type(value)
        self.b.key("Escape", 27)
        self.assertFalse(self.b.js("document.querySelector('#settings').open"))
        self.reload()
        self.ask("Hello")
        self.assertEqual(self.asked(), [("system", "Be brief"), ("user", "Hello")])
        self.assertEqual({k: v for k, v in self.b.js("asked").items() if k not in ("messages", "stream", "stream_options")},
                         {"temperature": .5, "max_tokens": 7, "top_p": .9, "top_k": 5, "repetition_penalty": 1.1, "seed": 3})
        self.end()

    def test_no_room(self):
        """The page says what to do and goes on."""
        self.b.js("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }")
        self.converse(("Hello", "Hi"))
        self.assertIn("no more room", self.text("#notice"))
        self.converse(("And?", "So"))
        self.assertEqual(self.words(), ["Hello", "Hi", "And?", "So"])
        self.press("Close")
        self.assertTrue(self.b.js("document.querySelector('#notice').hidden"))

    def test_no_storage(self):
        """As where sites may keep nothing: the page says so once and goes on, also with a tab's key."""
        script = self.b.call("Page.addScriptToEvaluateOnNewDocument", source="""for (const name of ["localStorage", "sessionStorage"])
            Object.defineProperty(window, name, {get() { throw new DOMException("denied", "SecurityError"); }})""")
        self.addCleanup(self.b.call, "Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])
        self.reload()
        self.b.click("#fresh")
        for message, answer in (("Hello", "Hi"), ("And?", "So")):
            self.converse((message, answer))
        self.assertIn("keeps nothing for this page", self.text("#notice"))
        self.assertEqual((self.words(), self.titles()), (["Hello", "Hi", "And?", "So"], ["Hello"]))

    def second_tab(self):
        """The same conversation in another tab; returns what goes to a tab."""
        first, target, url = self.b.session, self.b.target, self.b.js("location.href")
        second = self.b.tab()
        self.addCleanup(lambda: (self.b.close_tab(), vars(self.b).update(session=first, target=target)))
        self.b.open(url)
        self.until_status("Ready")
        self.fake()
        return lambda n: vars(self.b).update(session=(first, second)[n])

    def all_kept(self):
        """What is said in each conversation that the browser keeps."""
        texts = self.b.js("Object.keys(localStorage).filter(k => k.startsWith('weft-chat-')).map(k => localStorage[k])")
        return sorted([turn["content"] for turn in json.loads(text)["turns"]] for text in texts)

    def test_two_tabs(self):
        """Each writes on in the same conversation, while the other has an answer: nothing is overwritten."""
        self.converse(("Hello", "Hi"))
        to = self.second_tab()
        self.assertEqual(self.words(), ["Hello", "Hi"])
        to(0)
        self.ask("One")
        to(1)
        self.b.until("document.querySelectorAll('.user').length === 2")  # what the first has asked is seen
        self.assertEqual(self.words(), ["Hello", "Hi", "One"])  # and no answer before there is one
        self.converse(("Two", "2nd"))
        to(0)
        self.assertEqual(self.words()[:3], ["Hello", "Hi", "One"])
        self.end(event("1st") + END)
        self.assertIn("kept as a copy", self.text("#notice"))
        want = [["Hello", "Hi", "One", "1st"], ["Hello", "Hi", "One", "Two", "2nd"]]
        self.assertEqual(self.all_kept(), want)
        for n in (0, 1):
            to(n)
            self.b.until("document.querySelectorAll('#list a').length === 2")
            self.assertEqual(self.titles(), ["Hello (copy)", "Hello"])
        to(0)
        self.converse(("On", "Yes"))
        self.reload()
        self.assertEqual(self.words(), ["Hello", "Hi", "One", "1st", "On", "Yes"])

    def test_two_tabs_with_two_conversations(self):
        self.converse(("Hello", "Hi"))
        to = self.second_tab()
        self.b.click("#fresh")
        self.ask("Other")
        to(0)
        self.converse(("And?", "So"))
        to(1)
        self.end(event("Yes") + END)
        self.assertEqual(self.all_kept(), [["Hello", "Hi", "And?", "So"], ["Other", "Yes"]])
        self.assertTrue(self.b.js("document.querySelector('#notice').hidden"))
        self.assertEqual(self.titles(), ["Other", "Hello"])

    def test_damaged(self):
        """What others have written in the page's name is not shown, and not deleted."""
        bad = ["{", "null", "[]", '{"turns": 1}', '{"turns": [null]}', '{"turns": [{"role": "system", "content": "x"}]}', '{"turns": [{"role": "user", "content": {}}]}',
               '{"turns": [{"role": "constructor", "content": "x"}]}']
        self.b.js(f"{json.dumps(bad)}.forEach((text, i) => localStorage.setItem('weft-chat-bad' + i, text)), localStorage.setItem('weft-settings', '3')")
        self.reload()
        self.assertEqual(self.titles(), [])
        self.assertEqual(self.b.js("Object.keys(localStorage).filter(k => k.includes('bad')).length"), len(bad))

    def test_damaged_halves(self):
        """Half an answer that is damaged, or of another state of the conversation, hides nothing of what is whole."""
        self.converse(("Hello", "Hi"))
        at, turn = self.kept()["at"], {"role": "assistant", "content": "Half"}
        for half in (3, {"at": at}, {"at": at, "n": 9, "turn": turn}, {"at": at, "n": "x", "turn": turn}, {"at": at, "n": 2, "turn": {"role": "x"}},
                     {"at": at - 1, "n": 1, "turn": turn}):
            self.b.js(f"localStorage.setItem(`weft-half-${{location.hash.slice(1)}}`, {json.dumps(json.dumps(half))})")
            self.reload()
            self.assertEqual(self.words(), ["Hello", "Hi"], half)

    def test_damaged_settings(self):
        """What the model does is the default then, and never nothing."""
        for bad in ('{"mode-chat": false}', '{"mode-chat": false, "mode-text": false}', '{"mode": null}', '{"mode": "most"}', '{"mode": {}}', "{", "null"):
            self.b.js(f"localStorage.setItem('weft-settings', {json.dumps(bad)})")
            self.reload()
            self.assertTrue(self.b.js("document.querySelector('#mode-chat').checked"), bad)


class Files(Chats):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.b.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=self.folder.name)

    def saved(self, button, name):
        path = os.path.join(self.folder.name, name)
        self.b.click(button)
        serve.Server.wait(lambda: os.path.exists(path) and os.path.getsize(path), name)
        return path, pathlib.Path(path).read_text(encoding="utf-8")

    def open_file(self, path):
        root = self.b.call("DOM.getDocument")["root"]["nodeId"]
        node = self.b.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        self.b.call("DOM.setFileInputFiles", nodeId=node, files=[path])

    def test_save_and_open(self):
        self.converse(("Why? <é>", "**So** <b>"), ("And?", "Yes"))
        _, text = self.saved("#save-markdown", "Why-é-.md")
        self.assertEqual(text, "# Why? <é>\n\n## You\n\nWhy? <é>\n\n## Answer\n\n**So** <b>\n\n## You\n\nAnd?\n\n## Answer\n\nYes\n")
        path, text = self.saved("#save-json", "Why-é-.json")
        self.assertEqual([(t["role"], t["content"]) for t in json.loads(text)["turns"]], [("user", "Why? <é>"), ("assistant", "**So** <b>"), ("user", "And?"), ("assistant", "Yes")])
        self.press("Delete Why")
        self.open_file(path)
        self.b.until("document.querySelectorAll('.answer').length === 2")
        self.assertEqual((self.titles(), self.words()), (["Why? <é>"], ["Why? <é>", "So <b>", "And?", "Yes"]))

    def test_open_others(self):
        """A file that is no conversation is refused, and one that is hostile has no more power than an answer."""
        path = os.path.join(self.folder.name, "x.json")
        self.converse(("Hello", "Hi"))
        before = self.kept()
        old = '[{"role": "user", "content": "x"}]'
        for text in ("{", "", "[]", "null", old, '{"messages": %s}' % old, '{"turns": []}',
                     '{"turns": [{"role": "assistant", "content": ""}]}', '{"turns": [{"role": "tool", "content": "x"}]}', '{"turns": [{"role": "user", "text": "x"}]}'):
            pathlib.Path(path).write_text(text, encoding="utf-8")
            self.b.js("document.querySelector('#notice').hidden = true")
            self.open_file(path)
            self.b.until("!document.querySelector('#notice').hidden")
            self.assertIn("x.json is no conversation", self.text("#notice"))
            self.assertEqual((self.words(), self.titles(), self.kept()), (["Hello", "Hi"], ["Hello"], before))
        self.press("Delete Hello")
        hostile = "<img src=x onerror=hurt()>"
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"id": "../" + hostile, "title": hostile, "at": hostile, "turns": [{"role": "user", "content": hostile}, {
                "role": "assistant", "content": hostile + " [x](javascript:hurt())", "thoughts": hostile, "facts": hostile, "calls": [{"name": hostile, "arguments": hostile}, None]},
                {"role": "text", "given": hostile, "content": hostile}]}, f)
        self.open_file(path)
        self.b.until("document.querySelectorAll('.answer').length === 2")
        self.assertEqual(self.titles(), [hostile])
        self.assertEqual(self.b.js("document.querySelectorAll('main img, .words a').length"), 0)


class Restart(page.TestCase):
    def test_server_restarts_amid_answer(self):
        """What came is kept, the page says that the server is away and comes back by itself, and the answer can be asked for again."""
        s = serve.Server("-c", 20000)
        self.open(s)
        self.b.js("""(real => window.fetch = (url, o) => real(url, o?.body ? {...o, body: JSON.stringify({...JSON.parse(o.body), ignore_eos: true})} : o))(window.fetch)""")
        self.put(most="15000")  # and it does not end before
        self.say("Hello")
        self.b.until("document.querySelector('.answer .words')?.textContent.length > 20")
        s.end(signal.SIGKILL)
        self.b.until("document.querySelector('.trouble') !== null")
        self.assertEqual(self.texts(".trouble p"), ["The connection ended before the answer did.", "What came is kept. Try again when the server is ready."])
        self.assertGreater(len(self.answer()), 20)
        self.until_seen(f"{page.STATUS} !== 'Ready'")
        again = serve.Server("--port", s.port)
        self.until_status("Ready")
        self.put(most="8")
        self.press("Try again")
        self.until_answered(1)
        self.assertEqual(self.texts(".trouble p"), [])
        self.assertTrue(self.answer())
        self.assertEqual(again.end()[0], 0)


class Trouble(Chats):
    def refuse(self, status, message, code=None):
        self.b.js(f"window.refusal = {json.dumps({'status': status, 'message': message, 'code': code})}")

    def advice(self):
        return self.texts(".trouble p")

    def test_refused(self):
        """The server's words, and what to do; then the same again works."""
        self.assertEqual(self.titles(), [])
        for status, code, advice, offer in REFUSALS:
            self.refuse(status, "These are <b>its</b> words", code)
            self.say("Hello")
            self.b.until("document.querySelector('.trouble') !== null")
            self.assertEqual(self.advice()[0], "These are <b>its</b> words")
            self.assertIn(advice, self.advice()[1], status)
            self.assertIn("Try again", self.texts(".trouble button"))
            if offer:
                self.assertIn(offer, self.texts(".trouble button"))
            self.b.js("window.refusal = null, window.asked = null")
            self.press("Try again")
            self.b.until("asked")
            self.end(event("Hi") + END)
            self.assertEqual((self.words(), self.asked()), (["Hello", "Hi"], [("user", "Hello")]))
            self.b.click("#fresh")

    def test_key(self):
        self.refuse(401, "no key")
        self.say("Hello")
        self.b.until("document.querySelector('.trouble') !== null")
        self.assertIn("Enter an API key", self.advice()[1])
        self.assertEqual(self.b.js(f"{FOCUS}.id"), "key")

    def test_unanswered_does_not_count(self):
        """After an answer that failed the same side speaks twice: the later words count."""
        self.refuse(503, "busy")
        self.say("Hello")
        self.b.until("document.querySelector('.trouble') !== null")
        self.b.js("window.refusal = null")
        self.converse(("Hello?", "Hi"))
        self.assertEqual(self.asked(), [("user", "Hello?")])

    def test_lost(self):
        """A connection that breaks, or ends too early, keeps what came."""
        for way in ("stream.error(new TypeError('network error'))", "stream.close()"):
            self.ask("Hello")
            self.feed(event("Half"))
            self.b.js(way)
            self.b.until("document.querySelector('.trouble') !== null")
            self.assertIn("ended before", self.advice()[0])
            self.assertIn("What came is kept", self.advice()[1])
            self.assertEqual((self.words(), self.answer()), (["Hello", "Half"], "Half"))
            self.b.click("#fresh")

    def test_unreached(self):
        self.b.js("""(other => { window.fetch = async (path, options) => {
            if (path.includes("completions")) throw new TypeError("Failed to fetch");
            return other(path, options);
        }; })(fetch)""")
        self.say("Hello")
        self.b.until("document.querySelector('.trouble') !== null")
        self.assertEqual(self.advice()[0], "The server could not be reached.")
        self.assertIn("Is it still running?", self.advice()[1])

    def test_error_event(self):
        self.ask("Hello")
        self.feed(event("Half") + 'data: {"error": {"message": "it broke", "code": 500}}\n\n')
        self.b.until("document.querySelector('.trouble') !== null")
        self.assertEqual(self.advice()[0], "it broke")
        self.assertEqual(self.words(), ["Hello", "Half"])


class Answers(Chats):
    def test_thoughts(self):
        """Apart or behind a mark, they are folded away, and are no part of the words."""
        for pieces in ([event(reasoning_content="Hm"), event("Yes")], [event("<thi"), event("nk>Hm</th"), event("ink>\n\nYes")], [event("Hm\n</think>\n"), event("Yes")]):
            self.ask("Hello")
            for piece in pieces:
                self.feed(piece)
                self.b.js("new Promise(requestAnimationFrame).then(() => 1)")
            self.end()
            self.assertEqual((self.text(".answer .words"), self.text(".thoughts div")), ("Yes", "Hm"))
            self.assertFalse(self.b.js("document.querySelector('.thoughts').open || document.querySelector('.thoughts').hidden"))
            self.b.click("#fresh")
        self.converse(("Hello", "About `</think>` and <think>"))
        self.assertEqual(self.text(".answer .words"), "About </think> and <think>")
        self.assertTrue(self.b.js("document.querySelector('.thoughts').hidden"))

    def test_tool_calls(self):
        self.ask("Hello")
        self.feed(event(tool_calls=[{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]))
        self.feed(event(tool_calls=[{"index": 0, "function": {"arguments": '{"x": '}}]) + event(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]))
        self.end()
        self.assertEqual(self.texts(".calls figcaption span") + self.texts(".calls code"), ["call of f", '{"x": 1}'])
        self.reload()
        self.assertEqual(self.texts(".calls code"), ['{"x": 1}'])

    def test_copy(self):
        """Of a block its code, of an answer what the model wrote; also where the browser has no clipboard."""
        self.b.call("Browser.setPermission", permission={"name": "clipboard-write"}, setting="granted")
        self.b.js("""window.copies = [], Object.defineProperty(navigator, "clipboard", {value: {writeText: async text => { copies.push(text); }}, configurable: true})""")
        self.converse(("Hello", "A *b*\n```c\nint <x>;\n```"))
        self.press("Copy", "document.querySelector('.code')")
        self.b.until("document.querySelector('.code button').textContent === 'Copied'")
        self.press("Copy", "document.querySelector('.answer > .note')")
        self.b.until("copies.length === 2")
        self.assertEqual(self.b.js("copies"), ["int <x>;", "A *b*\n```c\nint <x>;\n```"])
        self.b.js("""Object.defineProperty(navigator, "clipboard", {value: undefined}),
                     document.execCommand = () => copies.push(getSelection().toString() || document.activeElement.value)""")
        self.press("Copy", "document.querySelector('.user')")
        self.b.until("copies.length === 3")
        self.assertEqual(self.b.js("copies.at(-1)"), "Hello")


class Access(Chats):
    def test_keys(self):
        self.ask("One")
        self.b.key("Escape", 27)
        self.b.until("document.querySelector('#stop').hidden")
        self.assertIn("stopped", self.text(".note"))
        self.converse(("Two", "2"))
        self.b.key("ArrowUp", 38)
        self.assertEqual(self.b.js(f"{FOCUS}.value"), "Two")
        self.b.key("Escape", 27)
        self.assertEqual(self.b.js(f"{FOCUS}.id"), "words")
        self.b.key("O", 79, 2 + 8, code="KeyO")
        self.assertEqual((self.words(), self.b.js(f"{FOCUS}.id")), ([], "words"))

    def test_focus_order(self):
        """Every control can be reached with Tab, in the order in which it stands, and is seen when it has the focus."""
        self.converse(("One", "```c\nx\n```"))
        self.b.js("document.querySelector('#show-chats').focus()")
        seen = ["Conversations"]
        while name := self.tab():
            seen.append(name)
        order = ["Conversations", "The server now", "Settings", "New conversation", "One", "Rename One", "Delete One", "Save as Markdown", "Save as JSON", "Messages", "Copy", "Edit",
                 "Copy the c block", "Copy", "Again", "Message", "Send"]
        self.assertEqual([name for name in seen if name in order], order)

    def tab(self):
        """What has the focus now, or nothing behind the last one. The field for words shows it by its frame."""
        self.b.key("Tab", 9)
        name, seen = self.b.js(f"(e => [e === document.body ? '' : e.ariaLabel || e.labels?.[0]?.textContent || e.textContent,"
                               f" getComputedStyle(e).outlineStyle !== 'none' || getComputedStyle(e.closest('#ask') ?? e).boxShadow !== 'none'])({FOCUS})")
        self.assertTrue(seen or not name, name)
        return name

    def test_screen_reader(self):
        """It hears sentences and not letters: a few times in all, and everything once."""
        self.b.js("""window.heard = [], new MutationObserver(() => heard.push(document.querySelector("#told").textContent))
                     .observe(document.querySelector("#told"), {childList: true, characterData: true, subtree: true})""")
        self.b.js("window.clock = performance.now(), performance.now = () => clock += 0.001")  # time passes when the test says so
        self.ask("Hello")
        for i in range(60):
            self.feed(event(f"Sentence **{i}** is "))
            self.feed(event("here. "))
            if i == 30:
                self.b.until("document.querySelector('.answer .words').textContent.includes('Sentence 30')")
                self.b.js("clock += 6000")
        self.end()
        heard = self.b.js("heard")
        self.assertEqual(len(heard), 2, heard)
        self.assertTrue(heard[0].rstrip().endswith("here."))
        self.assertEqual(" ".join("".join(heard).split()), "Answer: " + " ".join(f"Sentence {i} is here." for i in range(60)))
        self.assertEqual(self.b.js("[document.querySelector('#told').ariaLive, document.querySelector('#log').ariaLive]"), ["polite", None])

    def test_headings(self):
        """Those of an answer lie below that of the answer, so that turns can be jumped through."""
        self.converse(("One", "# Big"))
        self.assertEqual(self.b.js("[...document.querySelectorAll('#turns :is(h1,h2,h3,h4,h5,h6)')].map(h => h.localName + h.textContent)"), ["h3You", "h3Answer", "h4Big"])

    def test_reduced_motion(self):
        self.ask("One")
        for setting, moves in (("no-preference", True), ("reduce", False)):
            self.b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": setting}])
            self.b.until(f"document.getAnimations().length > 0 === {json.dumps(moves)}")
        self.b.call("Emulation.setEmulatedMedia", features=[])
        self.end()

    def test_phone(self):
        """The list and the figures are folded away; each comes when its button is pressed, and the list goes as it came."""
        self.b.size(360, 640, True)
        self.b.until("!document.querySelector('#now').checkVisibility() && !document.querySelector('#chats').checkVisibility()")
        self.converse(("A message of several words", "# Words\n```c\n" + "x" * 200 + "\n```\n| a | b |\n|---|---|\n" + "| " + "long " * 30 + "| " + "w" * 200 + " |\n\n" + "y" * 300))
        self.fits()
        self.b.click("#show-figures")
        self.b.until("document.querySelector('#now').checkVisibility()")
        self.fits()
        self.b.click("#show-figures")
        self.b.click("#show-chats")
        self.assertEqual(self.b.js("[document.querySelector('#show-chats').ariaExpanded, document.querySelector('#chat').inert]"), ["true", True])
        self.fits()
        self.b.key("Escape", 27)
        self.assertEqual(self.b.js(f"[document.querySelector('#chats').hidden, document.querySelector('#chat').inert, {FOCUS}.id]"), [True, False, "show-chats"])
        self.b.click("#show-settings")
        self.fits()
        self.b.click("#settings-done")

    def fits(self):
        """Nothing sticks out sideways, and what is touched is large enough."""
        self.assertEqual(self.b.js("""[...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && !e.closest("svg, .unseen, pre, .table")
            && (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1)).map(e => e.outerHTML.slice(0, 80))"""), [])
        self.assertEqual(self.b.js("[...document.querySelectorAll('button')].filter(b => b.checkVisibility() && b.getBoundingClientRect().height < 24).length"), 0)


class Policy(page.TestCase):
    def test_no_text_becomes_html(self):
        """The browser itself refuses it, whatever the page's code does."""
        for way in ("document.createElement('i').innerHTML = '<b>x</b>'", "document.createElement('script').text = 'hurt()'", "new DOMParser().parseFromString('<b>', 'text/html')", "setTimeout('hurt()')", "document.body.setAttribute('onclick', 'hurt()')"):
            self.assertEqual(self.b.js(f"(() => {{ try {{ {way}; return 'taken'; }} catch (e) {{ return e.name; }} }})()"), "TypeError", way)
        self.assertTrue(self.b.trouble)
        self.b.trouble.clear()

    def test_no_script_in_links(self):
        self.b.js("""(() => {
            const a = document.body.appendChild(document.createElement("a"));
            a.href = "javascript:document.title='hurt'";
            a.click();
        })()""")
        serve.Server.wait(lambda: self.b.trouble, "the browser has refused it")
        self.assertIn("JavaScript URL violates", self.b.trouble.pop())
        self.assertNotEqual(self.b.js("document.title"), "hurt")


if __name__ == "__main__":
    serve.main()
