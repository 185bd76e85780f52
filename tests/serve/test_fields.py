"""Fields of requests as clients send them, at the ends of their ranges."""
import json
import os
import re
import shutil
import socket
import tempfile
import unittest
import urllib.parse

import serve
from serve import Server, cli


class Fields(serve.Unharmed):
    ARGS = ["--max-queue", 300]

    def draw(self, **fields):
        r = self.s.complete(**{"temperature": 1, "max_tokens": 30, **fields})
        self.assertEqual(r.status, 200, r.body)
        return r.text

    def test_seeds_have_64_bits(self):
        seeds = (0, 1, -10 ** 18, -5, 2 ** 53 + 1, 2 ** 63 - 1, 2 ** 63, 10 ** 19, 2 ** 64 - 1)
        texts = [self.draw(seed=seed) for seed in seeds]
        self.assertEqual(texts, [self.draw(seed=seed) for seed in seeds])  # -10^18 is a seed like any other
        self.assertEqual(len(set(texts)), len(seeds))
        self.assertNotEqual(self.draw(seed=2 ** 53), self.draw(seed=2 ** 53 + 1))
        self.assertEqual(self.draw(seed=2 ** 64 - 1, user="seed", stop=["seed"]), texts[-1])

    def test_no_seed(self):
        """-1 is a new one each time, as is none at all."""
        for fields in ({}, {"seed": -1}, {"seed": -1.0}, {"seed": None}):
            self.assertGreater(len({self.draw(**fields) for _ in range(4)}), 1, fields)

    def test_biases_as_lists(self):
        """As llama.cpp takes them: false is never, a text is each of its tokens."""
        never = self.s.post("/tokenize", {"content": self.want[:4]}).json["tokens"]
        texts = {self.s.complete(logit_bias=b).text for b in ({str(i): -100 for i in never}, [[i, -100] for i in never], [[i, False] for i in never], [[self.want[:4], False]])}
        self.assertEqual(len(texts), 1)
        self.assertNotEqual(texts, {self.want})
        self.assertEqual(self.s.complete(logit_bias=[]).text, self.want)

    def test_until_the_end(self):
        self.assertEqual(self.s.complete(max_tokens=-1, ignore_eos=True).json["usage"]["total_tokens"], 512)
        for name in ("max_tokens", "max_completion_tokens", "n_predict"):
            chat = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "temperature": 0, name: -1}
            self.assertEqual(self.s.post("/v1/chat/completions", chat).json["usage"]["total_tokens"], 512)
            self.refused(self.s.post("/v1/chat/completions", {**chat, name: -2}), 400, name)

    def test_number_of_fields(self):
        """Each is looked for among all names, also where unknown ones are allowed."""
        e = self.refused(self.s.complete(**{f"f{i}": 1 for i in range(1000)}), 400)
        self.assertIn("at most 1000 fields", e["message"])

    def test_other_names(self):
        """Each name of a field is the field; several are good where they say the same."""
        text = cli.open_text("src/serve/api/fields.def")
        several = [names.split() for names in re.findall(r'^FIELD\("([^"]+)"', text, re.M) if " " in names]
        self.assertGreater(len(several), 4)
        values = {"max_tokens": (3, {}), "seed": (7, {"temperature": 3}), "repetition_penalty": (1.9, {}), "min_tokens": (3, {"stop": " "}), "include_stop_str_in_output": (True, {"stop": " "})}
        for names in several:
            value, more = values[names[0]]
            ask = {"prompt": "One day", "temperature": 0, **({} if names[0] == "max_tokens" else {"max_tokens": 60}), **more}
            texts = {self.s.post("/v1/completions", {**ask, name: value}).text for name in names}
            self.assertEqual(len(texts), 1, names)
            self.assertNotIn(self.s.post("/v1/completions", ask).text, texts)
            self.assertEqual({self.s.post("/v1/completions", {**ask, **dict.fromkeys(names, value)}).text}, texts)
            other = not value if isinstance(value, bool) else value + 1
            self.refused(self.s.post("/v1/completions", {**ask, names[0]: value, names[1]: other}), 400, names[1])

    def test_seeds_are_numbers(self):
        """However they are written."""
        self.assertEqual(self.draw(seed=1e18), self.draw(seed=10 ** 18))
        self.assertEqual(self.draw(seed=1e19), self.draw(seed=10 ** 19))
        self.assertEqual(self.draw(seed=-5.0), self.draw(seed=-5))

    def test_the_seed_alone_wraps(self):
        for fields in ({"max_tokens": 2 ** 63}, {"seed": [2 ** 63]}, {"seed": {"seed": 2 ** 63}}, {"user": {"seed": 2 ** 63}, "n": 2 ** 63}):
            self.refused(self.s.complete(**fields), 400)

    def test_top_p_near_zero_is_on(self):
        want = self.s.complete(max_tokens=30).text
        for top_p in (1e-300, 1e-46, 1e-40, 5e-324, 1e-6, 0):
            self.assertEqual(self.draw(top_p=top_p, seed=3), want, top_p)

    def test_temperatures(self):
        self.assertNotEqual(self.draw(temperature=2.5, seed=1), self.draw(temperature=0.5, seed=1))
        self.assertEqual(self.draw(temperature=100, seed=1), self.draw(temperature=100, seed=1))
        self.assertEqual(self.draw(temperature=1e-300, seed=1), self.s.complete(max_tokens=30).text)

    def test_what_clients_send_by_default(self):
        self.assertEqual(self.s.complete(suffix="", best_of=1, logprobs=None, echo=False, user="").text, self.want)
        self.assertEqual(self.s.complete(model="").text, self.want)
        want = self.s.chat().json["choices"]
        self.assertEqual(self.s.chat(top_logprobs=0).json["choices"], want)
        self.assertEqual(self.s.chat(top_logprobs=0, logprobs=False, model="", tools=[], tool_choice="auto").json["choices"], want)

    def test_many_prompts(self):
        r = self.s.complete(prompt=["One day"] * 65 + ["The sun was"] * 130, max_tokens=2)
        self.assertEqual(r.status, 200, r.body)
        choices = r.json["choices"]
        self.assertEqual([c["index"] for c in choices], list(range(195)))
        self.assertEqual({c["text"] for c in choices[:65]}, {self.s.complete(max_tokens=2).text})
        self.assertEqual({c["text"] for c in choices[65:]}, {self.s.complete(prompt="The sun was", max_tokens=2).text})
        self.refused(self.s.complete(prompt=["a"] * 400), 400, "prompt")

    def test_one_model(self):
        (card,) = self.s.get("/v1/models").json["data"]
        for name in (card["id"], "".join(f"%{b:02x}" for b in card["id"].encode())):
            self.assertEqual(self.s.get("/v1/models/" + name).json, card)
        for name in ("other", card["id"] + "x", card["id"][:-1], card["id"] + "%00", "", "%25", "x" * 3000):
            self.assertEqual(self.refused(self.s.get("/v1/models/" + name), 404, "model")["code"], "model_not_found")
        self.refused(self.s.post("/v1/models/" + card["id"], {}), 405)


def unread():
    """The rows of fields.def: name, where, the values that are taken (None: all), what to do instead."""
    text, word = cli.open_text("src/serve/api/fields.def"), r'"(?:\\.|[^"\\])*"|[A-Z_]+'
    defined = {name: json.loads(value) for name, value in re.findall(rf"^#define (\w+) +({word})", text, re.M)}
    for kind, row in re.findall(r"^(REFUSED|ACCEPTED)\((.*?)\)(?: /[^\n]*)?$", text, re.M | re.S):
        names, where, *neutral = [defined.get(w) or (json.loads(w) if w[0] == '"' else w) for w in re.findall(word, row)]
        instead = neutral.pop() if kind == "REFUSED" else None
        for name in names.split():
            yield name, where, json.loads(f"[{''.join(neutral)}]") if instead else None, instead


def check_rows(case, where, several):
    """Of each row that is of a path there: what it takes changes nothing, what it refuses is told. where: path, body, what to look at of the reply."""
    def ask(of, **fields):
        path, body, answer = where[of]
        r = case.s.post(path, {**body, **({"options": fields} if of == "OPTIONS" else fields)})
        return r, answer(r.json) if r.status == 200 else None

    want, n = {of: ask(of)[1] for of in where}, 0
    for name, of, neutral, instead in unread():
        for path in set(several.get(of, [of])) & set(where):
            n += 1
            for value in (5, "other", {"a": 1}) if neutral is None else (None, *neutral):
                with case.subTest(path=path, name=name, value=value):
                    case.assertEqual(ask(path, **{name: value})[1], want[path])
            for value in () if neutral is None else (5, "other", {"a": 1}, {} if not {} in neutral else 5, not neutral[0] if isinstance(neutral[0], bool) else True):
                with case.subTest(path=path, name=name, value=value):
                    r = ask(path, **{name: value})[0]
                    e = case.refused(r, 400, name, "unsupported_parameter") if path in ("CHAT", "TEXT") else r.error
                    case.assertEqual(e if isinstance(e, str) else e["message"], f"{name} is not supported: {instead}")
    case.assertGreater(n, 4 * len(where))


class Prefixes(serve.TestCase):
    def test_cache_prompt(self):
        """Without it nothing is found in the cache, and nothing left there."""
        for text, first in (("The sun was up and the day was long. " * 3, False), ("Tom had a big red ball and a small dog. " * 3, True)):
            cached = [self.s.complete(prompt=text, cache_prompt=c).json["usage"]["prompt_tokens_details"]["cached_tokens"] > 0 for c in (first, not first, False, True, None)]
            self.assertEqual(cached, [False, False, False, True, True])


class Documents(unittest.TestCase):
    def test_fields(self):
        text, page = (cli.open_text(p) for p in ("src/serve/api/fields.def", "docs/serving.md"))
        for names in re.findall(r'^FIELD\("([^"]+)"', text, re.M):
            first, *others = (f"`{name}`" for name in names.split())
            self.assertTrue(first + (f" ({', '.join(others)})" if others else "") in page, names)


class Unread(serve.Unharmed):
    """What other servers know and weft does not, row by row: nothing that would change the answer is ignored."""
    ARGS = ["--log-json"]

    TURNS = [{"role": "user", "content": "Hello"}]
    WHERE = {"CHAT": ("/v1/chat/completions", {"messages": TURNS, "max_tokens": 2, "temperature": 0}, lambda r: r["choices"]),
             "TEXT": ("/v1/completions", {**serve.GOOD, "max_tokens": 2}, lambda r: r["choices"]),
             "MESSAGES": ("/v1/messages", {"messages": TURNS, "max_tokens": 2, "temperature": 0}, lambda r: r["content"]),
             "RESPONSES": ("/v1/responses", {"input": "Hello", "max_output_tokens": 2, "temperature": 0}, lambda r: r["output"][0]["content"]),
             "OLLAMA": ("/api/chat", {"messages": TURNS, "max_tokens": 2, "temperature": 0, "stream": False}, lambda r: r["message"]),
             "GENERATE": ("/api/generate", {"prompt": "One day", "max_tokens": 2, "temperature": 0, "stream": False}, lambda r: r["response"]),
             "OPTIONS": ("/api/chat", {"messages": TURNS, "max_tokens": 2, "temperature": 0, "stream": False}, lambda r: r["message"])}
    SEVERAL = {"BOTH": ("CHAT", "TEXT"), "OTHER_APIS": ("MESSAGES", "RESPONSES", "OLLAMA")}

    def test_each_row(self):
        check_rows(self, self.WHERE, self.SEVERAL)
        self.assertEqual([line for line in self.s.lines if "unknown field" in line], [])

    def test_numbers_are_compared_as_such(self):
        for fields in ({"mirostat": 0.0}, {"typical_p": 1.0}, {"best_of": 1.0}):
            self.assertEqual(self.s.complete(**fields).text, self.want)
        self.refused(self.s.complete(typical_p=0.999), 400, "typical_p", "unsupported_parameter")


class Unknown(serve.Unharmed):
    def test_unknown_fields_are_refused(self):
        """Each could change the answer; null is nothing."""
        for path in ("CHAT", "TEXT"):
            for fields, name in (({"frobnicate": 1}, "frobnicate"), ({"stream": True, "stream_options": {"frob": 1}}, "stream_options.frob"),
                                 ({"y" * 200: {}}, "y" * 47), ({"max_Tokens": 3}, "max_Tokens"), ({"": 1}, None)):
                e = self.refused((self.s.chat if path == "CHAT" else self.s.complete)(**fields), 400, name, "unsupported_parameter")
                self.assertIn("--allow-unknown-fields", e["message"])
        self.assertEqual(self.s.complete(frobnicate=None).text, self.want)


class Allowed(unittest.TestCase):
    def test_unknown_fields_are_logged_once(self):
        s = Server("--log-json", "--allow-unknown-fields")
        for _ in range(3):
            s.complete(frobnicate={"a": 1}, max_completion_tokens=5)
            s.chat(frobnicate=1, max_completion_tokens=5, top_k=2, user="me", tool_choice="none")
            s.stream(stream_options={"include_usage": True, "include_obfuscation": False, "frob": 1})
        s.complete(**{"bad\x1b[31m\u0085name": 1, "y" * 200: 1})
        for i in range(100):
            s.complete(max_tokens=1, **{f"field{i}": 1})
        code, log = s.end()
        self.assertEqual(code, 0)
        told = [json.loads(line)["message"] for line in log.splitlines() if "unknown field" in line]
        for name in ("'frobnicate'", "'stream_options.frob'", "'" + "y" * 47 + "'"):
            self.assertEqual(sum(name in line for line in told), 1, name)
        self.assertEqual([line for line in told if "'user'" in line or "'top_k'" in line or "tool_choice" in line or "max_completion" in line or "include" in line], [])
        self.assertLessEqual(len(told), 32)
        self.assertNotIn("\\u001b", log)


class Names(unittest.TestCase):
    """The model's name in the API is text, whatever the file or the option is called."""

    def check(self, s, want):
        (card,) = s.get("/v1/models").json["data"]
        self.assertEqual(card["id"], want)
        r = s.complete(model=want)
        self.assertEqual((r.status, r.json["model"]), (200, want))
        self.assertEqual(s.stream(model=want)[0]["model"], want)
        self.assertEqual(s.get("/v1/models/" + urllib.parse.quote(want, safe="")).json["id"], want)
        self.assertIn(f'model_name="{want}"', s.get("/metrics").body.decode())
        self.assertEqual(s.end()[0], 0)

    def test_options(self):
        for name, want in ((b"a\xff\xfeb", "a--b"), (b"\xc3\xa9" * 70, "\u00e9" * 63), (b"x" * 126 + "\U0001f600".encode(), "x" * 126),
                           (b"a\x1b[31m\"\\\x7f", "a-[31m---"), ("a\u009bb".encode(), "a-b"), (b"org/name", "org/name")):
            with self.subTest(name):
                self.check(Server("--served-model-name", os.fsdecode(name)), want)

    def test_aliases(self):
        for args in (["-a", "foo,bar"], ["--served-model-name", "foo", "bar"], ["--served-model-name=foo", "--served-model-name", "bar"]):
            s = Server("-m", cli.data("stories260K.gguf"), *args)
            self.assertEqual([card["id"] for card in s.get("/v1/models").json["data"]], ["foo", "bar"])
            for name, status in (("foo", 200), ("bar", 200), ("foo,bar", 404), ("stories260K", 404)):
                r = s.complete(model=name)
                self.assertEqual((r.status, s.get("/v1/models/" + name).status), (status, status))
                self.assertIsNone(r.headers["Warning"])
            self.assertEqual([s.complete(model=name).json["model"] for name in ("foo", "bar", "")], ["foo", "bar", "foo"])
            self.assertEqual(s.end()[0], 0)

    def test_any_name(self):
        s = Server("--any-model-name")
        for name, want in (("gpt-4o", "gpt-4o"), ("x\r\ny" * 100, s.get("/v1/models").json["data"][0]["id"])):
            r = s.complete(model=name)
            self.assertEqual(r.json["model"], want)
            self.assertEqual((r.status, r.headers["Warning"][:8]), (200, "299 weft"))
            self.assertEqual(s.stream(model=name)[-1]["model"], r.json["model"])
        self.assertIsNone(s.complete(model=r.json["model"]).headers["Warning"])
        self.assertEqual(s.end()[0], 0)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, want in ((b"z\xe4h.gguf", "z-h"), ("\u4f60".encode() * 50 + b".gguf", "\u4f60" * 42)):
                path = os.path.join(os.fsencode(folder), name)
                shutil.copy(cli.data("stories260K.gguf"), path)
                self.check(Server("-m", os.fsdecode(path)), want)


class Addresses(unittest.TestCase):
    def test_any_address_is_of_both_families(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            self.skipTest(cli.NEEDS_HARDWARE + "no IPv6 here")
        s = Server("--host", "::")
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, s.port), timeout=serve.PATIENCE) as c:
                c.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                self.assertIn(b" 200 ", c.recv(1000), host)
        self.assertEqual(s.end()[0], 0)


if __name__ == "__main__":
    serve.main()
