"""What clients of OpenAI's API expect to work."""
import contextlib
import io
import json
import math
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import answers
import serve
from serve import PROMPTS, Server, at_once

PAGE = os.path.join(serve.cli.ROOT, "src", "serve", "api", "webui.html")


class State(serve.TestCase):
    ARGS = ["--served-model-name", "little"]

    def test_health_version_models(self):
        self.assertEqual(self.s.get("/health").json, {"status": "ok"})
        self.assertEqual(self.s.get("/v1/health").json, {"status": "ok"})
        self.assertRegex(self.s.get("/version").json["version"], r"^\d+\.\d+\.\d+$")
        (model,) = self.s.get("/v1/models").json["data"]
        self.assertEqual((model["id"], model["object"]), ("little", "model"))

    def test_head(self):
        r = self.s.request("HEAD", "/health")
        self.assertEqual((r.status, r.body), (200, b""))

    def test_model_name(self):
        self.assertEqual(self.s.complete(model="little").status, 200)
        e = self.refused(self.s.complete(model="large"), 404, "model")
        self.assertEqual(e["code"], "model_not_found")

    def test_unknown_path_and_method(self):
        self.refused(self.s.get("/nowhere"), 404)

    def test_methods(self):
        """A path says in Allow which methods it takes; these it takes, and no other."""
        for path, method in (("/", "GET"), ("/health", "GET"), ("/v1/models", "GET"), ("/v1/models/little", "GET"), ("/metrics", "GET"), ("/v1/completions", "POST"),
                             ("/v1/chat/completions", "POST"), ("/tokenize", "POST"), ("/detokenize", "POST")):
            with self.subTest(path):
                refused = self.s.request("BREW", path)
                error = self.refused(refused, 405)
                self.assertEqual(error["type"], "invalid_request_error")
                allowed = refused.headers["Allow"].split(", ")
                self.assertIn(method, allowed)
                for other in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
                    r = self.s.request(other, path, None if other in ("GET", "HEAD", "OPTIONS") else b"{}")
                    self.assertEqual(r.status != 405, other in allowed, other)
                    self.assertEqual(r.headers["Allow"], None if other in allowed else ", ".join(allowed))
                    if other == "HEAD":
                        self.assertEqual(r.body, b"")

    def test_request_id(self):
        a, b = self.s.get("/health"), self.s.get("/health")
        self.assertNotEqual(a.headers["X-Request-Id"], b.headers["X-Request-Id"])

    def test_keep_alive(self):
        c = self.s.connect()
        for _ in range(3):
            c.request("POST", "/v1/completions", body=json.dumps(serve.GOOD))
            r = c.getresponse()
            self.assertEqual(r.status, 200)
            r.read()
        c.close()

    def test_metrics(self):
        before = self.s.metrics()
        self.s.complete(max_tokens=7, ignore_eos=True)
        after = self.s.metrics()

        def grown(name):
            return after[name] - before[name]

        self.assertEqual(grown("generation_tokens_total"), 7)
        self.assertEqual(grown("prompt_tokens_total"), 3)
        self.s.complete(max_tokens=1, n=3)
        self.assertEqual(self.s.metrics()["prompt_tokens_total"] - after["prompt_tokens_total"], 3)  # of all choices together
        self.assertEqual(grown('request_success_total{finished_reason="length"}'), 1)
        self.assertEqual(grown("time_to_first_token_seconds_count"), 1)
        self.assertEqual(grown("inter_token_latency_seconds_count"), 6)
        self.assertEqual(grown("e2e_request_latency_seconds_count"), 1)
        self.assertEqual(grown("iteration_tokens_total_sum"), 3 + 6)
        self.assertEqual(grown("step_seconds_count"), grown("iteration_tokens_total_count"))
        self.assertGreater(grown("step_seconds_sum"), 0)
        self.assertEqual(grown("prefix_cache_queries_total"), 3)
        self.assertEqual(grown('request_generation_tokens_bucket{le="10"}'), 1)
        self.assertEqual(grown('request_generation_tokens_bucket{le="5"}'), 0)
        self.assertEqual(after["num_requests_running"], 0)
        self.assertEqual([after[f'num_requests_waiting_by_reason{{reason="{reason}"}}'] for reason in ("capacity", "deferred")], [0, 0])
        self.assertEqual(after["prompt_tokens_cached_total"], after["prefix_cache_hits_total"])
        self.assertEqual([name for name in after if "class=" in name or "overlap" in name], [])  # those come with --profile
        self.assertEqual([after[f'kv_swapped_bytes_total{{direction="{d}",tier="host"}}'] for d in ("out", "in")], [0, 0])

    def test_metrics_of_http(self):
        def counts():
            return {name: n for name, n in self.s.metrics().items() if name.startswith("http_requests_total")}

        before = counts()
        self.s.complete(max_tokens=1), self.s.stream(max_tokens=1), self.s.complete(n=0), self.s.get("/frob")
        grown = {name: n - before.get(name, 0) for name, n in counts().items() if n != before.get(name, 0)}
        self.assertEqual(grown, {f'http_requests_total{{handler="{h}",method="{m}",status="{c}xx"}}': n for h, m, c, n in (
            ("/v1/completions", "POST", 2, 2), ("/v1/completions", "POST", 4, 1), ("none", "none", 4, 1), ("/metrics", "GET", 2, 1))})

    def test_metrics_of_classes(self):
        """What the device notes with --profile adds up: one queue does one thing at a time, two overlap at some time."""
        began = time.monotonic()
        s = Server("--profile")
        s.complete(prompt="One day there was a little girl. " * 12, max_tokens=30, ignore_eos=True)  # a prompt is compute, a decode memory
        m = s.metrics()
        lasted = time.monotonic() - began
        self.assertEqual(s.end()[0], 0)
        steps = {name: v for name, v in m.items() if name.startswith("step_seconds")}
        classes = [f'{{class="{c}"}}' for c in ("compute", "memory", "network", "copy", "host")]
        self.assertEqual(sorted(steps), sorted("step_seconds_" + what + c for what in ("sum", "count") for c in classes))
        self.assertEqual({steps["step_seconds_count" + c] for c in classes}, {m["iteration_tokens_total_count"]})
        compute, memory, network, copy, host = (steps["step_seconds_sum" + c] for c in classes)
        self.assertGreater(min(compute, memory, copy), 0)
        self.assertEqual((network, m["nano_batch_overlap_ratio"]), (0, 0))
        self.assertLess(compute + memory + copy + host, lasted)

        s = Server("--profile", "--nano-batches", 2)

        def ratio():
            at_once(4, lambda i: s.complete(prompt=PROMPTS[i], max_tokens=60, ignore_eos=True))
            return s.metrics()["nano_batch_overlap_ratio"]

        s.wait(ratio, "ops of two queues run together")
        self.assertLess(ratio(), 1)
        self.assertEqual(s.end()[0], 0)


class Page(serve.TestCase):
    """What is sent of the page at /; test_webui.py, test_chats.py and test_markdown.py look at it in a browser."""

    def test_policy(self):
        replies = [self.s.get("/"), self.s.get("/")]
        nonces = set()
        for r in replies:
            self.assertEqual((r.status, r.headers["Content-Type"]), (200, "text/html; charset=utf-8"))
            self.assertEqual((r.headers["Cache-Control"], r.headers["X-Content-Type-Options"]), ("no-store", "nosniff"))
            policy = dict(p.split(" ", 1) for p in r.headers["Content-Security-Policy"].split("; "))
            self.assertEqual(policy["default-src"], "'none'")
            (nonce,) = re.fullmatch(r"'nonce-([0-9a-f]{32})'", policy["script-src"]).groups()
            self.assertEqual(policy["style-src"], policy["script-src"])
            self.assertEqual((policy["require-trusted-types-for"], policy["trusted-types"]), ("'script'", "'none'"))
            self.assertEqual(set(re.findall(rb'nonce="([^"]*)"', r.body)), {nonce.encode()})
            nonces.add(nonce)
        self.assertEqual(len(nonces), 2)
        with open(PAGE, "rb") as f:
            self.assertEqual(replies[0].body.replace(replies[0].headers["X-Request-Id"].encode(), b"{{nonce}}"), f.read())

    def test_nothing_from_outside(self):
        with open(PAGE, encoding="utf-8") as f:
            page = f.read()
        self.assertEqual(re.findall(r"https?://[^'\"\s]+", page.replace("http://www.w3.org/2000/svg", "")), [])
        self.assertLess(len(page.encode()), 80_000)
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import"):
            self.assertNotIn(word, page)

    def test_methods(self):
        self.assertEqual(self.s.request("HEAD", "/").status, 200)
        self.refused(self.s.post("/", {}), 405)

    def test_models_say_what_they_can(self):
        self.assertEqual(self.s.get("/v1/models").json["data"][0]["capabilities"], ["completion", "chat"])


class Tokens(serve.TestCase):
    def test_round_trip(self):
        text = "One day, Zoë said: 你好 \U0001f600\n"
        t = self.s.post("/tokenize", {"prompt": text}).json
        self.assertEqual(t["count"], len(t["tokens"]))
        plain = self.s.post("/tokenize", {"content": text}).json
        self.assertEqual(t["tokens"][1:], plain["tokens"])  # content adds no BOS, as llama.cpp
        self.assertEqual(self.s.post("/detokenize", {"tokens": plain["tokens"]}).json["content"], text)

    def test_pieces(self):
        t = self.s.post("/tokenize", {"prompt": "One day", "with_pieces": True, "return_token_strs": True}).json
        self.assertEqual([p["piece"] for p in t["tokens"]], t["token_strs"])
        self.assertEqual("".join(t["token_strs"][1:]), " One day")

    def test_refusals(self):
        self.refused(self.s.post("/tokenize", {}), 400, "prompt")
        self.refused(self.s.post("/tokenize", {"prompt": 7}), 400, "prompt")
        self.refused(self.s.post("/tokenize", {"prompt": "a", "with_pieces": 1}), 400, "with_pieces")
        for tokens in ("x", [1.5], [-1], [10 ** 6], [2 ** 40], [None]):
            self.refused(self.s.post("/detokenize", {"tokens": tokens}), 400, "tokens")


class Completions(serve.TestCase):
    ARGS = serve.ONE_ROUNDING

    def ids(self):
        """Of the good answer; alone its text would begin with another token."""
        return self.s.post("/tokenize", {"prompt": "One day" + self.s.complete().text}).json["tokens"][3:]

    def test_shape(self):
        r = self.s.complete(seed=1).json
        self.assertEqual(set(r), {"id", "object", "created", "model", "choices", "usage"})
        self.assertEqual(r["object"], "text_completion")
        (c,) = r["choices"]
        self.assertEqual((c["index"], c["finish_reason"], c["logprobs"]), (0, "length", None))
        self.assertEqual(r["usage"], {"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15,
                                      "prompt_tokens_details": {"cached_tokens": 0}})

    def test_greedy_is_what_the_program_writes(self):
        want = self.ok("run", "--device", "cpu", "-t", 1, "-q", "-p", "One day", "-n", 12, "--greedy").text
        self.assertEqual(self.s.complete().text + "\n", want)  # the program ends the line

    def test_default_length(self):
        r = self.s.post("/v1/completions", {"prompt": "One day", "temperature": 0, "ignore_eos": True}).json
        self.assertEqual(r["usage"]["completion_tokens"], 16)

    def test_prompts(self):
        want = self.s.complete().text
        ids = self.s.post("/tokenize", {"prompt": "One day"}).json["tokens"]
        self.assertEqual(self.s.complete(prompt=ids).text, want)
        r = self.s.complete(prompt=["One day", "The sun", "One day"], n=2).json
        self.assertEqual([c["index"] for c in r["choices"]], list(range(6)))
        texts = [c["text"] for c in r["choices"]]
        self.assertEqual(texts[0:2] + texts[4:6], [want] * 4)
        self.assertEqual(texts[2], self.s.complete(prompt="The sun").text)
        self.assertEqual(r["usage"]["prompt_tokens"], 9)
        self.assertEqual(self.s.complete(prompt=[ids, ids]).json["choices"][1]["text"], want)

    def test_a_prompt_seen_before_is_not_computed_again(self):
        prompt = "Once there was a little dog who had a red ball. " * 6
        first = self.s.complete(prompt=prompt, max_tokens=30).json
        again = self.s.complete(prompt=prompt, max_tokens=30).json
        n = first["usage"]["prompt_tokens"]
        self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], (n - 1) // 16 * 16)
        self.assertEqual(again["choices"][0]["text"], first["choices"][0]["text"])
        events = self.s.stream(prompt=prompt, stream_options={"include_usage": True})
        self.assertEqual(events[-1]["usage"]["prompt_tokens_details"], again["usage"]["prompt_tokens_details"])

    def test_empty_prompt_begins_from_bos(self):
        self.assertGreater(len(self.s.complete(prompt="").text), 0)

    def test_seed(self):
        a, b, c = (self.s.complete(temperature=1, seed=s, max_tokens=30).text for s in (5, 5, 6))
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)
        n = [x["text"] for x in self.s.complete(temperature=1, seed=5, n=3, max_tokens=30).json["choices"]]
        self.assertEqual(n[0], a)
        self.assertEqual(n[1], c)
        free = {self.s.complete(temperature=1, max_tokens=30).text for _ in range(3)}
        self.assertGreater(len(free), 1)

    def test_echo(self):
        want = self.s.complete().text
        self.assertEqual(self.s.complete(echo=True).text, "One day" + want)
        self.assertEqual(self.s.complete(echo=True, max_tokens=0).text, "One day")
        self.assertEqual("".join(e["choices"][0]["text"] for e in self.s.stream(echo=True)), "One day" + want)

    def test_logprobs(self):
        r = self.s.complete(logprobs=3, max_tokens=5).json
        lp = r["choices"][0]["logprobs"]
        self.assertEqual({len(v) for v in lp.values()}, {5})
        self.assertEqual("".join(lp["tokens"]), r["choices"][0]["text"])
        for text, value, top in zip(lp["tokens"], lp["token_logprobs"], lp["top_logprobs"]):
            self.assertEqual(len(top), 3)
            self.assertEqual(max(top.values()), top[text])  # greedy takes the likeliest
            self.assertAlmostEqual(top[text], value, places=6)
            self.assertLess(sum(map(math.exp, top.values())), 1.000001)

    def places(self, choice):
        """Each token stands where its offset says, and the last one ends where the text does."""
        text, lp = choice["text"], choice["logprobs"]
        ends = [*lp["text_offset"][1:], len(text)]
        self.assertEqual(sorted(ends), ends)
        for i, (token, at, end) in enumerate(zip(lp["tokens"], lp["text_offset"], ends)):
            if token.startswith("bytes:"):
                self.assertLess(end - at, 4)  # of bytes that no character came of
                self.assertGreater(text[at], "\x7f")
            else:  # the tokenizer's own blank, and its BOS, are not in the text
                self.assertIn(text[at:end], (token, token[1:] if token[0] == " " else "" if token == "<s>" else token), (i, text, lp))

    def test_text_offset(self):
        lp = self.s.complete(prompt="h\u00e9llo w\u00f6rld x", echo=True, logprobs=0, max_tokens=0).json["choices"][0]["logprobs"]
        self.assertEqual(lp["text_offset"][:8], [0, 0, 1, 1, 2, 4, 5, 7])  # two tokens for the first letter with a mark, and for the other
        draw = random.Random(3)
        parts = [" ", " ", "a", "\u00e9", "\u4f60", "\U0001f600", "<s>", "\n", " the", "x\u0301"]
        bias = {str(i): 8 for i in self.s.post("/tokenize", {"content": "\U0001f600\u00e9\u4f60a"}).json["tokens"]}
        for _ in range(25):
            prompts = ["".join(draw.choices(parts, k=draw.randrange(1, 9))) for _ in range(3)]
            if draw.random() < 0.5:  # cut inside a character, too
                prompts = [self.s.post("/tokenize", {"prompt": p}).json["tokens"] for p in prompts]
                prompts = [p[:draw.randrange(1, len(p) + 1)] for p in prompts]
            ask = {"prompt": prompts, "logprobs": 3, "echo": draw.random() < 0.7, "max_tokens": draw.randrange(1, 12), "logit_bias": bias, "temperature": 1,
                   "seed": draw.randrange(99), "ignore_eos": True, "skip_special_tokens": draw.random() < 0.5}
            got = [{"text": "", "logprobs": {k: [] for k in lp}} for _ in prompts]
            for e in self.s.stream(**ask):
                (c,), old = e["choices"], got[e["choices"][0]["index"]]
                old["text"] += c["text"]
                for k, values in (c["logprobs"] or {}).items():
                    old["logprobs"][k] += values
            for streamed, whole in zip(got, self.s.complete(**ask).json["choices"]):
                self.assertEqual(streamed, {k: whole[k] for k in streamed})
                self.places(whole)

    def test_prompt_logprobs_are_those_of_generating(self):
        first = self.s.complete(logprobs=1, max_tokens=6)
        told = first.json["choices"][0]["logprobs"]["token_logprobs"]
        again = self.s.complete(prompt="One day" + first.text, logprobs=1, echo=True, max_tokens=0).json["choices"][0]
        lp = again["logprobs"]
        self.assertIsNone(lp["token_logprobs"][0])
        for a, b in zip(lp["token_logprobs"][3:], told):
            self.assertAlmostEqual(a, b, places=3)
        text = again["text"]
        for token, offset in list(zip(lp["tokens"], lp["text_offset"]))[2:]:
            self.assertEqual(text[offset:offset + len(token)], token)

    def test_stop_strings(self):
        whole = self.s.complete(max_tokens=40).text
        for stop in (whole[5:8], whole[1:20], whole[7], whole[30:33]):
            r = self.s.complete(max_tokens=40, stop=["never there", stop]).json
            self.assertEqual(r["choices"][0]["text"], whole[:whole.index(stop)], stop)
            self.assertEqual(r["choices"][0]["finish_reason"], "stop")
            r = self.s.complete(max_tokens=40, stop=stop, include_stop_str_in_output=True)
            self.assertEqual(r.text, whole[:whole.index(stop)] + stop)
            events = self.s.stream(max_tokens=40, stop=stop)
            self.assertEqual("".join(e["choices"][0]["text"] for e in events), whole[:whole.index(stop)])

    def test_a_stop_string_that_does_not_come_hides_nothing(self):
        whole = self.s.complete().text
        self.assertEqual(self.s.complete(stop=[whole[-3:] + "x"]).text, whole)

    def test_stop_tokens_and_min_tokens(self):
        ids = self.ids()
        r = self.s.complete(stop_token_ids=[ids[3]]).json
        self.assertEqual((r["usage"]["completion_tokens"], r["choices"][0]["finish_reason"]), (ids.index(ids[3]), "stop"))
        r = self.s.complete(stop_token_ids=[ids[3]], min_tokens=6).json
        self.assertGreaterEqual(r["usage"]["completion_tokens"], 6)

    def test_bias_and_penalties(self):
        ids = self.ids()
        banned = self.s.complete(logit_bias={str(ids[0]): -100}, logprobs=0).json["choices"][0]["logprobs"]["tokens"]
        self.assertNotEqual(banned[0], self.s.complete(logprobs=0).json["choices"][0]["logprobs"]["tokens"][0])
        forced = self.s.complete(logit_bias={"335": 100}, max_tokens=5).text
        self.assertEqual(forced, " day" * 5)
        once = self.s.complete(logit_bias={"335": 20}, frequency_penalty=2, presence_penalty=2, max_tokens=30)
        self.assertLess(once.text.count(" day"), 30)
        self.assertNotEqual(self.s.complete(repetition_penalty=1.9, max_tokens=60).text, self.s.complete(max_tokens=60).text)

    def test_streaming(self):
        want = self.s.complete()
        events = self.s.stream(stream_options={"include_usage": True})
        self.assertEqual("".join(e["choices"][0]["text"] for e in events[:-1]), want.text)
        self.assertEqual([e["choices"][0]["finish_reason"] for e in events[:-1]][-1], "length")
        self.assertEqual((events[-1]["choices"], events[-1]["usage"]), ([], want.json["usage"]))
        self.assertEqual(len({e["id"] for e in events}), 1)
        self.assertTrue(all(e["usage"] is None for e in events[:-1]))
        events = self.s.stream(stream_options={"include_usage": True, "continuous_usage_stats": True})
        self.assertEqual(events[-2]["usage"]["completion_tokens"], 12)

    def test_streaming_logprobs(self):
        want = self.s.complete(logprobs=2).json["choices"][0]["logprobs"]
        got = {k: [] for k in want}
        for e in self.s.stream(logprobs=2):
            for k in got:
                got[k] += e["choices"][0]["logprobs"][k]
        self.assertEqual(got, want)

    def test_streams_of_n(self):
        texts = {}
        for e in self.s.stream(n=3, temperature=1, seed=9):
            for c in e["choices"]:
                texts[c["index"]] = texts.get(c["index"], "") + c["text"]
        whole = self.s.complete(n=3, temperature=1, seed=9).json["choices"]
        self.assertEqual(texts, {c["index"]: c["text"] for c in whole})

    def test_every_chunk_is_whole_characters(self):
        """Byte tokens make characters of several tokens; each event must be valid UTF-8 by itself."""
        ids = self.s.post("/tokenize", {"content": "\U0001f600é你"}).json["tokens"]
        bias = {str(i): 30 for i in ids}
        events = self.s.stream(logit_bias=bias, temperature=1, seed=3, max_tokens=60, ignore_eos=True)
        text = "".join(e["choices"][0]["text"] for e in events)
        self.assertEqual(text, self.s.complete(logit_bias=bias, temperature=1, seed=3, max_tokens=60, ignore_eos=True).text)

    def test_fields_that_change_nothing(self):
        self.assertEqual(self.s.complete(metadata={"a": [1]}, user="me").text, self.s.complete().text)

    def test_null_is_not_given(self):
        self.assertEqual(self.s.complete(n=None, stop=None, seed=None, suffix=None).text, self.s.complete().text)


class Names(unittest.TestCase):
    def test_alternatives(self):
        """Halves of characters are different tokens, and so are a byte and its character: each has a key."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.gguf")
            byte = [answers.BYTES + b for b in (0xF0, 0x9F, 0x98, 0x62)]
            answers.write(path, {"B": ["b"]}, likely={"A": byte, "C": [byte[3], answers.BYTES + 256, byte[0]]})
            s = serve.Server("-m", path)
            names = [r"bytes:\xf0", r"bytes:\x9f", r"bytes:\x98"]
            for prompt, want in (("A", [*names, "b"]), ("C", [f"token_id:{byte[3]}", "b", names[0]])):
                lp = s.complete(prompt=prompt, logprobs=len(want), max_tokens=1).json["choices"][0]["logprobs"]
                self.assertEqual((list(lp["top_logprobs"][0]), lp["tokens"]), (want, want[:1]))
            self.assertEqual(s.end()[0], 0)


class Chat(serve.TestCase):
    def test_shape(self):
        r = self.s.chat().json
        self.assertEqual(r["object"], "chat.completion")
        (c,) = r["choices"]
        self.assertEqual(c["message"]["role"], "assistant")
        self.assertIsInstance(c["message"]["content"], str)

    def test_content_parts(self):
        want = self.s.chat("Hello there").json["choices"][0]["message"]
        parts = [{"type": "text", "text": "Hello"}, {"type": "text", "text": " there"}]
        self.assertEqual(self.s.chat(parts).json["choices"][0]["message"], want)

    def test_roles(self):
        turns = [{"role": r, "content": "Go on"} for r in ("system", "user", "assistant", "user")]
        a = self.s.chat(messages=turns).json
        turns[0]["role"] = "developer"
        self.assertEqual(self.s.chat(messages=turns).json["choices"], a["choices"])

    def test_a_last_message_goes_on(self):
        """The prompt ends with it: at the same tokens an answer to the whole text goes on the same way."""
        def used(*turns, **fields):
            r = self.s.chat(messages=[{"role": "user", "content": "Go on"}, *turns], **fields)
            self.assertEqual(r.status, 200, r.body)
            return r.json["usage"]["prompt_tokens"], r.json["choices"][0]["message"]["content"]

        half, more = {"role": "assistant", "content": "One day "}, {"role": "assistant", "content": "One day a cat"}
        raw = "<|im_start|>user\nGo on<|im_end|>\n<|im_start|>assistant\n"
        for turn, text in ((half, "One day "), (more, "One day a cat"), ({**more, "content": [{"type": "text", "text": "One day"}, {"type": "text", "text": " a cat"}]}, "One day a cat")):
            n, answer = used(turn)
            want = self.s.complete(prompt=raw + text).json
            self.assertEqual((n, answer), (want["usage"]["prompt_tokens"], want["choices"][0]["text"]))
            for fields in ({"continue_final_message": True}, {"continue_final_message": True, "add_generation_prompt": False}):
                self.assertEqual(used(turn, **fields), (n, answer))
            self.assertEqual(used({**turn, "prefix": True}), (n, answer))
            for fields in ({"continue_final_message": False}, {"add_generation_prompt": True}):  # a new one follows
                self.assertGreater(used(turn, **fields)[0], n)
        self.assertEqual(used({"role": "assistant", "content": ""}), used())
        called = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
        for turns, fields in (((), {"continue_final_message": True}), (({"role": "user", "content": "x", "prefix": True},), {}), (({**half, "prefix": True}, half), {}),
                              ((called,), {"continue_final_message": True}), (({"role": "assistant", "reasoning": "x"},), {"continue_final_message": True})):
            self.refused(self.s.chat(messages=[{"role": "user", "content": "Go on"}, *turns], **fields), 400, "messages")
        for fields in ({"continue_final_message": True, "add_generation_prompt": True}, {"add_generation_prompt": 1}, {"add_generation_prompt": False}):
            self.refused(self.s.chat(messages=[{"role": "user", "content": "Go on"}, *([half] if len(fields) > 1 else [])], **fields), 400, "add_generation_prompt")

    def test_tools_answer(self):
        turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}, {"role": "tool", "tool_call_id": "a", "content": "42"}]
        a = self.s.chat(messages=turns)
        self.assertEqual(a.status, 200, a.body)
        other = self.s.chat(messages=[*turns[:2], {"role": "tool", "content": "4242"}])
        self.assertGreater(other.json["usage"]["prompt_tokens"], a.json["usage"]["prompt_tokens"])  # it is read
        turns[2]["role"] = "function"
        self.assertEqual(self.s.chat(messages=turns).json["choices"], a.json["choices"])

    def test_contents_are_never_control_tokens(self):
        """What a prompt may spell, a message may not; the template of the server has no control tokens of this vocabulary."""
        def used(text):
            return self.s.chat(text, max_tokens=1).json["usage"]["prompt_tokens"]

        for token in ("<s>", "</s>", "<unk>"):
            self.assertGreater(used(token * 10) - used(token), 18, token)
            raw = self.s.complete(prompt=token * 10, max_tokens=1).json["usage"]["prompt_tokens"]
            self.assertLessEqual(raw, 11, token)

    def test_streaming(self):
        events = self.s.stream("/v1/chat/completions", messages=[{"role": "user", "content": "Hello"}])
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
        self.assertEqual(text, self.s.chat().json["choices"][0]["message"]["content"])
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")
        counted = self.s.stream("/v1/chat/completions", messages=[{"role": "user", "content": "Hello"}],
                                stream_options={"include_usage": True, "continuous_usage_stats": True})
        self.assertEqual((counted[0]["usage"]["completion_tokens"], counted[-1]["usage"]["completion_tokens"]), (0, 12))
        self.assertEqual({e["object"] for e in events}, {"chat.completion.chunk"})

    def test_logprobs(self):
        c = self.s.chat(logprobs=True, top_logprobs=2).json["choices"][0]
        tokens = c["logprobs"]["content"]
        self.assertEqual(len(tokens), 12)
        self.assertEqual(b"".join(bytes(t["bytes"]) for t in tokens).decode(), c["message"]["content"])
        for t in tokens:
            self.assertEqual(len(t["top_logprobs"]), 2)
            self.assertEqual(t["top_logprobs"][0]["token"], t["token"])
        self.assertEqual(self.s.chat(logprobs=True).json["choices"][0]["logprobs"]["content"][0]["top_logprobs"], [])

    def test_max_completion_tokens(self):
        self.assertEqual(self.s.chat(max_completion_tokens=3, ignore_eos=True).json["usage"]["completion_tokens"], 3)

    def test_the_rest_of_the_context_is_the_default(self):
        r = self.s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "ignore_eos": True}).json
        self.assertEqual(r["usage"]["total_tokens"], self.s.get("/v1/models").json["data"][0]["max_model_len"])
        self.assertEqual(r["choices"][0]["finish_reason"], "length")

    def test_not_supported(self):
        tool = [{"type": "function", "function": {"name": "f"}}]
        for more in ({}, {"tool_choice": "none"}):
            self.assertEqual(self.s.chat(tools=tool, response_format={"type": "json_object"}, **more).status, 200)
        e = self.refused(self.s.chat(response_format={"type": "grammar"}), 400, "response_format", "not_supported")
        self.assertEqual(e["type"], "invalid_request_error")
        self.assertIn("grammar is not supported: send text", e["message"])
        self.assertEqual(self.s.chat(response_format={"type": "text"}).status, 200)
        self.refused(self.s.chat([{"type": "image_url", "image_url": {"url": "x"}}]), 400, "messages", "not_supported")


class Paths(serve.TestCase):
    def test_what_there_is(self):
        """A path that is not there says which are, or the one that was meant."""
        for path in ("/v1/audio/speech", "/v1/images/generations", "/api/pull", "/v1", "/v1/", "/completion", "/s", "//x", "/" + "x" * 300):
            message = self.refused(self.s.post(path, {"input": "x"}), 404)["message"]
            self.assertTrue(message.startswith(f"there is no {path[:100]} here, only /, /health, "), message)
            for there in ("/v1/completions", "/v1/chat/completions", "/v1/models", "/metrics", "/tokenize", "/detokenize"):
                self.assertIn(there, message)
        base = " The base URL of OpenAI's clients ends with /v1"
        for path, want in (("/chat/completions", "/v1/chat/completions?" + base), ("/v1/v1/chat/completions", "/v1/chat/completions?" + base),
                           ("/v1/chat/completions/", "/v1/chat/completions?" + base), ("/completions", "/v1/completions?" + base),
                           ("/v1/v1/messages", "/v1/messages? The base URL of Anthropic's clients ends without /v1"), ("/v1/metrics", "/metrics?"), ("/v1/tokenize", "/tokenize?"), ("/health//", "/health?")):
            message = self.refused(self.s.post(path, {}), 404)["message"]
            self.assertEqual(message, f"there is no {path} here; did you mean {want}")


class Readme(serve.TestCase):
    """The curl lines of README.md and docs/."""

    def test_curl(self):
        if not shutil.which("curl"):
            self.skipTest("curl is not installed")
        lines = [line for text in serve.cli.documents().values() for line in text.splitlines() if line.startswith("curl ")]
        self.assertGreaterEqual(len(lines), 4)
        for line in lines:
            out = subprocess.run(["sh", "-c", line.replace("8080", str(self.s.port)) + " -sS --fail"], capture_output=True, timeout=serve.PATIENCE)
            self.assertEqual(out.returncode, 0, line + out.stderr.decode())
            self.assertTrue(out.stdout)


class OpenAI(serve.TestCase):
    """The official client, where it is installed."""

    def setUp(self):
        try:
            import openai
        except ImportError:
            self.skipTest("the Python package openai is not installed")
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.s.port}/v1", api_key="none", max_retries=0)
        self.errors = openai
        self.model = self.client.models.list().data[0].id

    def test_completions(self):
        r = self.client.completions.create(model=self.model, prompt="One day", max_tokens=12, temperature=0, logprobs=1, n=2)
        self.assertEqual(r.choices[1].text, self.s.complete().text)
        self.assertEqual(len(r.choices[0].logprobs.tokens), 12)
        parts = self.client.completions.create(model=self.model, prompt="One day", max_tokens=12, temperature=0, stream=True)
        self.assertEqual("".join(p.choices[0].text for p in parts), r.choices[0].text)

    def test_chat(self):
        ask = {"model": self.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "temperature": 0}
        r = self.client.chat.completions.create(**ask, logprobs=True, top_logprobs=2, stop=["never"])
        self.assertEqual(r.choices[0].message.content, self.s.chat().json["choices"][0]["message"]["content"])
        self.assertEqual(len(r.choices[0].logprobs.content), 12)
        parts = list(self.client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
        text = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
        self.assertEqual(text, r.choices[0].message.content)
        self.assertEqual(parts[-1].usage.completion_tokens, 12)

    def test_documents(self):
        code = serve.cli.open_text("docs/serving.md").split("```python\n")[1].split("```")[0]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code.replace("8080", str(self.s.port)), {})
        self.assertTrue(out.getvalue().strip())

    def test_what_is_not_there(self):
        with self.assertRaises(self.errors.BadRequestError) as e:
            self.client.embeddings.create(model=self.model, input="x")
        self.assertIn("generates text", e.exception.message)
        for ask, words in ((lambda: self.client.responses.retrieve("resp_1"), "no /v1/responses/resp_1 here, only /, "),
                           (lambda: self.client.completions.create(model="other", prompt="a"), f"this server has '{self.model}'")):
            with self.assertRaises(self.errors.NotFoundError) as e:
                ask()
            self.assertIn(words, e.exception.message)
        format = {"type": "json_schema", "json_schema": {"name": "f", "schema": {"uniqueItems": True}}}
        with self.assertRaises(self.errors.BadRequestError) as e:
            self.client.chat.completions.create(model=self.model, messages=[{"role": "user", "content": "a"}], response_format=format)
        self.assertEqual((e.exception.param, e.exception.code), ("response_format", "not_supported"))

    def test_errors(self):
        with self.assertRaises(self.errors.BadRequestError) as e:
            self.client.completions.create(model=self.model, prompt="a", max_tokens=-2)
        self.assertEqual(e.exception.param, "max_tokens")
        with self.assertRaises(self.errors.NotFoundError):
            self.client.completions.create(model="other", prompt="a")
        with self.assertRaises(self.errors.APIStatusError) as e:
            self.client.chat.completions.create(model=self.model, messages=[{"role": "user", "content": "a"}],
                                                response_format={"type": "grammar"})
        self.assertEqual((e.exception.status_code, e.exception.type), (400, "invalid_request_error"))
        self.assertEqual(e.exception.code, "not_supported")

    def test_fields_of_old_code(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(self.errors.NotFoundError):
            self.client.models.retrieve("other")
        r = self.client.completions.create(model="", prompt=["One day"] * 70, max_tokens=1, temperature=3, suffix="", seed=2 ** 64 - 1)
        self.assertEqual(len(r.choices), 70)
        turns = [{"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "a", "content": "42"}]
        r = self.client.chat.completions.create(model=self.model, messages=turns, max_tokens=1, top_logprobs=0)
        self.assertEqual(r.usage.completion_tokens, 1)

    def test_stop_and_stream_logprobs(self):
        ask = {"model": self.model, "prompt": "One day", "max_tokens": 12, "temperature": 0}
        whole = self.client.completions.create(**ask).choices[0].text
        r = self.client.completions.create(**ask, stop=whole[5:9]).choices[0]
        self.assertEqual((r.text, r.finish_reason), (whole[:5], "stop"))
        parts = self.client.completions.create(**ask, stream=True, logprobs=1)
        self.assertEqual(sum(len(p.choices[0].logprobs.tokens) for p in parts), 12)


if __name__ == "__main__":
    serve.main()
