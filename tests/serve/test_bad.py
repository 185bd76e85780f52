"""What attackers and accidents send. After each of them a good request gets the same answer as before."""
import json
import socket
import time

import serve

BIG = 200_000


def post(body, *headers, path="/v1/completions"):
    """A request as bytes; a Content-Length only where headers give none."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
    if not any(h.lower().startswith(("content-length", "transfer-encoding")) for h in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


GOOD_BODY = json.dumps(serve.GOOD).encode()


# Bodies are read alike; errors of the last ones have the form that their clients know.
PATHS = {"/v1/completions": None, "/v1/chat/completions": None, "/tokenize": None, "/detokenize": None, "/v1/responses": None, "/infill": None, "/apply-template": None,
         "/v1/messages": {"type": "error", "error": {"type": "invalid_request_error"}}, "/v1/messages/count_tokens": {"type": "error", "error": {"type": "invalid_request_error"}},
         "/api/chat": {}, "/api/generate": {}, "/api/show": {}}
TURNS = [{"role": "user", "content": "Hi"}]
# A good request of each other interface, whose members and their members then become something else.
WHOLE = {
    "/v1/messages": {"model": "", "max_tokens": 2, "system": [{"type": "text", "text": "Be."}], "stop_sequences": ["x"], "thinking": {"type": "disabled"}, "metadata": {"user_id": "a"},
                     "messages": [*TURNS, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": ""}, {"type": "text", "text": "So"},
                                                                            {"type": "tool_use", "id": "i", "name": "f", "input": {"x": 1}}]},
                                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "4"}]}, {"type": "text", "text": "So?"}]}],
                     "tools": [{"name": "f", "description": "It does.", "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
                     "output_config": {"effort": "medium"}, "stream": False},
    "/v1/responses": {"model": "", "instructions": "Be.", "max_output_tokens": 2, "text": {"format": {"type": "text"}}, "reasoning": {"effort": "medium", "summary": "auto"},
                      "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
                                {"role": "assistant", "content": "So"}, {"type": "function_call", "call_id": "i", "name": "f", "arguments": "{}"},
                                {"type": "function_call_output", "call_id": "i", "output": "4"}],
                      "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}], "tool_choice": "auto", "include": [], "store": True, "stream": False},
    "/api/chat": {"model": "", "messages": [*TURNS, {"role": "assistant", "content": "So", "thinking": "Hm", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
                                            {"role": "tool", "content": "4", "tool_name": "f"}],
                  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], "options": {"num_predict": 2, "stop": ["x"], "num_ctx": 64}, "think": False,
                  "format": "", "keep_alive": "5m", "stream": False},
    "/api/generate": {"model": "", "prompt": "Hi", "system": "Be.", "options": {"num_predict": 2}, "raw": False, "suffix": "", "format": "", "images": [], "stream": False},
}


def changed(value):
    """A value of JSON with something else in place of one of those in it, for each of these."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for other in (5, "x", True, [], {}, [5], [[]], {"type": 5}, None):
            yield {**value, key: other} if isinstance(value, dict) else [*value[:key], other, *value[key + 1:]]
        for inner in changed(value[key]):
            yield {**value, key: inner} if isinstance(value, dict) else [*value[:key], inner, *value[key + 1:]]


class Bad(serve.Unharmed):
    ARGS = ["--max-queue", 300, {"max_body": 1 << 20, "read_timeout": 1000}]

    # --- JSON and its fields ------------------------------------------------------------------------

    def refused_by(self, path, body):
        reply, form = self.s.post(path, body), PATHS[path]
        if form is None:
            return self.refused(reply, 400)
        self.assertEqual((reply.status, set(reply.json)), (400, {"error", *form}), reply.body)
        self.assertGreater(len(reply.error["message"] if form else reply.error), 10)
        if form:
            self.assertEqual(reply.error["type"], form["error"]["type"])

    def test_other_interfaces(self):
        """Every value of every wrong type: an answer, or an error in the right form."""
        for path, whole in WHOLE.items():
            self.assertEqual(self.s.post(path, whole).status, 200, self.s.post(path, whole).body)
            statuses = set()
            c = self.s.connect()
            for body in changed(whole):
                c.request("POST", path, body=json.dumps({**body, "stream": False} if body["stream"] in (True, None) else body))
                reply = serve.Reply(c.getresponse())
                statuses.add(reply.status)
                self.assertIn(reply.status, (200, 400, 404), (body, reply.body))
                self.assertEqual("error" in reply.json and reply.json["error"] is not None, reply.status != 200, (body, reply.body))
            c.close()
            self.assertLessEqual({200, 400}, statuses)

    def test_json(self):
        bad = [b"", b"{", b"[]", b"1", b"null", b"\"x\"", b"{\"prompt\": }", b"{\"prompt\": \"\xff\xfe\"}", b"{'prompt': 1}",
               b"{\"prompt\": \"\\ud800\"}", b"{\"prompt\": \"a\\u0000b\"}", b"{\"prompt\": \"a\"} x", b"\x00" * 100,
               b"{\"prompt\": \"a\", \"temperature\": NaN}", b"{\"prompt\": \"a\", \"temperature\": 1e999}",
               b"{\"prompt\": \"a\", \"temperature\": Infinity}"]
        for path in PATHS:
            for body in bad:
                with self.subTest(path=path, body=body):
                    self.refused_by(path, body)

    def test_zero_bytes(self):
        """They are JSON, but no text that a model gets; the error names the field."""
        for path, body, name in (("/v1/completions", {"prompt": "a\0b"}, "prompt"), ("/tokenize", {"content": "\0"}, "content"),
                                 ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a\0"}]}, "messages"), ("/v1/completions", {"prompt": "a", "stop": ["\0"]}, "stop")):
            self.assertIn("zero byte", self.refused(self.s.post(path, body), 400, name)["message"])

    def test_depth(self):
        for body in ("[" * 100_000, "{\"a\":" * 100_000, "{\"prompt\": " + "[" * 65 + "]" * 65 + "}"):
            e = self.refused(self.s.post("/v1/completions", body), 400)
            self.assertIn("64", e["message"])
        self.assertEqual(self.s.complete(user="[" * 1000).status, 200)  # brackets in a text are no depth
        self.assertEqual(self.s.complete(prompt=[[1]] * 64, max_tokens=1).status, 200)  # nor is a long list
        deepest = "{\"prompt\": \"a\", \"max_tokens\": 1, \"user\": " + "[" * 63 + "]" * 63 + "}"
        self.assertEqual(self.s.post("/v1/completions", deepest).status, 200)

    def test_wrong_types(self):
        numbers = ["temperature", "top_p", "min_p", "top_k", "presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty", "repeat_last_n",
                   "n", "best_of", "max_tokens", "min_tokens", "seed", "logprobs"]
        flags = ["stream", "echo", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens"]
        lists = ["stop", "stop_token_ids", "logit_bias", "stream_options", "suffix", "tools", "response_format", "model"]
        for name in numbers:
            for value in ("1", True, [], {}, [1]):
                with self.subTest(name=name, value=value):
                    self.refused(self.s.complete(**{name: value}), 400, name)
        for name in flags:
            for value in ("true", 1, [], {}):
                self.refused(self.s.complete(**{name: value}), 400, name)
        for name in lists:
            for value in (1, True, 1.5):
                self.refused(self.s.complete(**{name: value}), 400, name)
        for name in ("n", "max_completion_tokens", "top_logprobs", "logprobs", "stream", "stop", "tools", "response_format"):
            for value in (5.5, {"a": {}}):
                with self.subTest(name=name, value=value):
                    self.refused(self.s.chat(**{name: value}), 400, name)
        for name in ("n", "top_k", "max_tokens", "seed", "logprobs"):
            self.refused(self.s.complete(**{name: 1.5}), 400, name)
        self.assertEqual(self.s.complete(max_tokens=12.0).text, self.want)

    def test_ranges(self):
        bad = {"temperature": [-1, 99999, 1e308], "top_p": [-1, 2], "top_k": [-5, 2 ** 40], "min_p": [-1, 2], "n": [0, -1, 10 ** 6],
               "max_tokens": [0, -2, 10 ** 9, 10 ** 12], "min_tokens": [-1, 13], "seed": [1.5, 1e300, 2.0 ** 64, -1e19], "logprobs": [-1, 21],
               "presence_penalty": [-3, 3], "frequency_penalty": [-3, 3], "repetition_penalty": [0, -1, 3, 1e-300], "repeat_last_n": [-2, 2 ** 40],
               "stop": ["", [""], [1], [None], {}, ["x"] * 100_000, ["x" * 2000]], "stop_token_ids": [[-1], [10 ** 6], [2 ** 40], ["a"], {}],
               "logit_bias": [{"-1": 1}, {"1000000": 1}, {"x": 1}, {"": 1}, {"5": "x"}, {"5": 101}, {"5 ": 1}, {" 5": 1}, {"+5": 1}, {"05": 1}, [1], [[5]], [[-1, 1]], [[5, 101]], [[5, True]], [["a b", "x"]], [["a " * 480, 1]] * 3, [[10 ** 6, 1]], [[5, 1]] * 1025],
               "stream_options": [{"include_usage": True}], "suffix": ["x"],
               "prompt": [[], [[]], [-1], [10 ** 6], [2 ** 40], [1, "a"], [["a"]], [[1], [1.5]], {}, True, 5, [None], ["a"] * 400, "word " * 1000,
                          [1] * 600]}
        for name, values in bad.items():
            for value in values:
                with self.subTest(name=name, value=str(value)[:40]):
                    self.refused(self.s.complete(**{name: value}), 400, name)
        self.refused(self.s.complete(repeat_penalty=1, repetition_penalty=1.1), 400, "repeat_penalty")
        self.refused(self.s.complete(best_of=3), 400, "best_of", "not_supported")
        self.refused(self.s.complete(stream=True, stream_options=5), 400, "stream_options")
        self.refused(self.s.complete(stream=True, stream_options={"include_usage": 5}), 400, "stream_options")
        for prompt in ("word " * 1000, [1] * 512, [1] * 513, [[1], [1] * 600]):
            self.refused(self.s.complete(prompt=prompt), 400, "prompt", "context_length_exceeded")
        r = self.s.complete(prompt=[1] + [300] * 511, max_tokens=0, echo=True, logprobs=0)  # it fills the context, and nothing follows
        self.assertEqual((r.status, len(r.json["choices"][0]["logprobs"]["tokens"])), (200, 512))
        self.refused(self.s.complete(prompt=[1] * 513, max_tokens=0, echo=True), 400, "prompt", "context_length_exceeded")

    def test_numbers_too_large(self):
        """Whole numbers of any size are numbers: the field says its range. More than a double holds is no number."""
        huge = 1 << 64
        for name, value in (("max_tokens", huge), ("max_tokens", 1e30), ("max_tokens", 10 ** 30), ("n", -huge), ("n", 1 << 63), ("seed", 10 ** 30), ("seed", 1 << 64),
                            ("seed", -(1 << 63) - 1), ("temperature", huge), ("stop_token_ids", [1, huge]), ("stop_token_ids", [1e30]),
                            ("logit_bias", {"max_tokens": huge}), ("logit_bias", {"1": huge}), ("prompt", [[1], [huge]]), ("prompt", [huge]), ("top_k", -(10 ** 200))):
            for more in ({}, {"user": "a \"b\" {[", "stop": ["}", "]"]}):
                fields = {"prompt": "a", **more, name: value, "min_tokens": 1}
                e = self.refused(self.s.post("/v1/completions", {**fields, "echo": False}), 400, name)
                self.assertTrue(e["message"].startswith(name), e)
                for word in ("JSON", "column", "whole number"):
                    self.assertNotIn(word, e["message"])
        self.assertIn("n is 9.22337203685478e+18, but must be from 1 to 128", self.s.complete(n=1 << 63).error["message"])
        self.refused(self.s.chat(max_completion_tokens=huge), 400, "max_completion_tokens")
        self.refused(self.s.post("/detokenize", {"tokens": [1, huge]}), 400, "tokens")
        self.assertEqual(self.s.complete(metadata={"unknown \"field\\": [huge, -huge, "18446744073709551616"]}).text, self.want)
        for body in (b'{"prompt": "a", "temperature": 1e999}', b'{"prompt": "a", "x": 18446744073709551616, "temperature": %d}' % (10 ** 400)):
            e = self.refused(self.s.post("/v1/completions", body), 400, "temperature")
            self.assertIn("too large", e["message"])
        e = self.refused(self.s.post("/v1/completions", str(huge).encode()), 400)
        self.assertIsNone(e["param"])

    def test_missing_prompt(self):
        self.refused(self.s.post("/v1/completions", {}), 400, "prompt")
        self.refused(self.s.post("/v1/completions", {"prompt": None}), 400, "prompt")

    def test_empty_prompt(self):
        """It is a prompt all the same: the model begins."""
        r = self.s.complete(prompt="", ignore_eos=True).json
        self.assertEqual((r["usage"]["prompt_tokens"], r["usage"]["completion_tokens"]), (1, 12))

    def test_unknown_model(self):
        self.assertEqual(self.refused(self.s.complete(model="other"), 404, "model")["code"], "model_not_found")

    def test_messages(self):
        for messages in (None, [], {}, "x", [1], [{}], [{"role": 5}], [{"role": "king", "content": "a"}], [{"content": "a"}],
                         [{"role": "user", "content": 5}], [{"role": "user", "content": [5]}],
                         [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": "word " * 1000}]):
            with self.subTest(messages=str(messages)[:60]):
                self.refused(self.s.post("/v1/chat/completions", {"messages": messages}), 400, "messages")
        self.refused(self.s.chat(top_logprobs=2), 400, "top_logprobs")
        self.refused(self.s.chat(top_logprobs=2, logprobs=False), 400, "top_logprobs")
        self.refused(self.s.chat(logprobs=5), 400, "logprobs")
        self.refused(self.s.chat(max_completion_tokens=0), 400, "max_completion_tokens")

    def test_one_long_word(self):
        self.refused(self.s.complete(prompt="a" * 900_000), 400, "prompt")
        r = self.s.post("/tokenize", {"prompt": "a" * 900_000})
        self.assertGreater(r.json["count"], 100_000)

    # --- bodies and headers ---------------------------------------------------------------------------

    def test_encodings(self):
        for path in ("/v1/completions", "/tokenize"):
            for coding in ("gzip", "GZip", "deflate", "zstd", "br", "identity, gzip", "gzip, identity"):
                e = self.refused(self.s.request("POST", path, GOOD_BODY, {"Content-Encoding": coding}), 415)
                self.assertIn(f"'{coding}'", e["message"])
                self.assertIn("uncompressed", e["message"])
        for coding in ("identity", "Identity", ""):
            self.assertEqual(self.s.request("POST", "/v1/completions", GOOD_BODY, {"Content-Encoding": coding}).text, self.want)

    def test_body_too_large(self):
        self.refused(self.s.complete(prompt="a" * 2_000_000), 413)
        self.refused(self.s.post("/v1/completions", b"a" * 100_000_000), 413)
        got = self.s.raw(post(b"", "Content-Length: 100000000000"), enough=b" 413 ")
        self.assertIn(b" 413 ", got)
        chunks = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        got = self.s.raw(post(chunks * 40 + b"0\r\n\r\n", "Transfer-Encoding: chunked"), enough=b" 413 ")
        self.assertIn(b" 413 ", got)

    def test_no_length(self):
        got = self.s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        self.assertIn(b" 400 ", got)

    def test_lengths(self):
        for headers in (["Content-Length: -1"], ["Content-Length: x"], ["Content-Length: 99999999999999999999999"], ["Content-Length: 5, 6"],
                        ["Content-Length: 10", "Transfer-Encoding: chunked"], ["Transfer-Encoding: gzip, x"],
                        [f"Content-Length: {len(GOOD_BODY)}", "Content-Length: 3"]):
            with self.subTest(headers):
                got = self.s.raw(post(GOOD_BODY, *headers))
                self.assertNotIn(b" 200 ", got)

    def test_chunks(self):
        good = b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD_BODY), GOOD_BODY)
        self.assertIn(b" 200 ", self.s.raw(post(good, "Transfer-Encoding: chunked", "Connection: close")))
        for body in (b"zz\r\n" + GOOD_BODY, b"-5\r\n" + GOOD_BODY, b"fffffffffffffffff\r\n" + GOOD_BODY, b"\r\n\r\n"):
            self.assertNotIn(b" 200 ", self.s.raw(post(body, "Transfer-Encoding: chunked")))
        self.assertEqual(self.s.raw(post(b"5\r\nabc", "Transfer-Encoding: chunked"), silence=1), b"")

    def test_headers(self):
        self.assertNotIn(b" 200 ", self.s.raw(post(GOOD_BODY, "X-Long: " + "a" * (1 << 20))))
        self.assertNotIn(b" 200 ", self.s.raw(post(GOOD_BODY, *[f"X-{i}: a" for i in range(10_000)])))
        for line in (b"GET /health", b"GET", b"\r\n\r\n", b"\x00\x01\x02\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n", b"G" * 100_000,
                     b"GET /health HTTP/1.1\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n: x\r\n\r\n"):
            self.s.raw(line, silence=1)

    def test_paths(self):
        for path in ("/../etc/passwd", "/%2e%2e/etc/passwd", "/health%00", "/v1/completions%00x", "//health", "/" + "a" * 10_000, "/%", "*"):
            got = self.s.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            self.assertRegex(got, rb"^HTTP/1.1 4\d\d |^$", path)
        got = self.s.raw(b"GET /v1/\x00models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        self.assertNotIn(b" 200 ", got)

    def test_http_1_0(self):
        got = self.s.raw(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(GOOD_BODY), GOOD_BODY))
        self.assertIn(b" 200 ", got)
        self.assertIn(self.want.encode(), got)

    def test_pipelined(self):
        got = self.s.raw(post(GOOD_BODY) * 2 + post(GOOD_BODY, "Connection: close"))
        self.assertEqual(got.count(b" 200 OK"), 3)

    # --- clients that leave or dawdle -------------------------------------------------------------------

    def test_half_a_request(self):
        whole = post(GOOD_BODY)
        for n in range(0, len(whole), 17):
            with socket.create_connection(("127.0.0.1", self.s.port)) as s:
                s.sendall(whole[:n])
            time.sleep(0.02)  # so that its end is all that is new
        self.s.wait(lambda: self.s.sockets() == 0, "none stays until its time is over")

    def test_half_close(self):
        """Who closes the sending side counts as gone, but for what is answered at once; nothing is left of it."""
        for request in (post(GOOD_BODY), b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", self.s.port), timeout=serve.PATIENCE) as s:
                s.sendall(request)
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
        self.s.wait(lambda: self.s.sockets() == 0, "both are closed")

    def test_leaving_ends_the_work(self):
        """Streamed or not; again if all was done before this program left."""
        for stream in (False, True):
            self.s.wait(lambda stream=stream: self.aborted(stream), "aborted")

    def aborted(self, stream):
        before, ends = self.s.metrics(), 'request_success_total{finished_reason="abort"}'
        body = json.dumps({"prompt": "One day", "max_tokens": 500, "ignore_eos": True, "n": 4, "stream": stream}).encode()
        with socket.create_connection(("127.0.0.1", self.s.port)) as s:
            s.sendall(post(body))
            self.s.until(lambda m: m["requests_started_total"] > before["requests_started_total"], "it has begun")
        self.s.idle()
        return self.s.metrics()[ends] > before[ends]

    def test_many_idle_connections(self):
        conns = []
        try:
            for _ in range(500):
                conns.append(socket.create_connection(("127.0.0.1", self.s.port)))
            self.assertEqual(self.s.complete().text, self.want)
        finally:
            for c in conns:
                c.close()


class Limits(serve.Unharmed):
    ARGS = ["--max-num-seqs", 2, "--max-queue", 2, {"read_timeout": 1}]

    def test_full_queue(self):
        """With --max-num-seqs and --max-queue taken the next is told to come later."""
        def one_more():
            conn, stream = self.s.open_stream(n=4, max_tokens=400, ignore_eos=True)
            r = self.s.complete()  # on a slow day the four have ended by now
            stream.close()
            conn.close()
            self.s.wait(lambda: self.s.complete().status == 200, "the places are free again")
            if r.status == 503:
                self.assertEqual(r.headers["Retry-After"], "1")
                self.refused(r, 503)
            return r.status == 503

        self.s.wait(one_more, "a server whose places are taken")

    def test_more_than_all_places(self):
        """What would never fit is not told to come later."""
        self.assertEqual(self.refused(self.s.complete(n=5), 400)["param"], "n")
        self.assertEqual(self.s.complete(n=4).status, 200)

    def test_slow_sender(self):
        """A byte now and then does not keep a connection for ever."""
        got = b""
        with socket.create_connection(("127.0.0.1", self.s.port), timeout=0.2) as s:
            for byte in b"POST /v1/completions HTTP/1.1\r\n" * 100:
                try:
                    s.sendall(bytes([byte]))
                    got = s.recv(1000)
                    break
                except socket.timeout:
                    pass
                except ConnectionError:
                    break
            else:
                self.fail("it may send for ever")
        self.assertNotIn(b"200", got)


class SlowEngine(serve.TestCase):
    """A watchdog for requests; the reference kernels make a step slow."""
    ARGS = ["--request-timeout", 1, "WEFT_FORCE=gemm=ref,attention=ref", "--max-num-seqs", 2, "--max-queue", 256]

    def test_request_timeout(self):
        r = self.s.complete(max_tokens=500, ignore_eos=True)
        self.assertEqual(self.refused(r, 504)["type"], "timeout_error")
        c, stream = self.s.open_stream(max_tokens=500, ignore_eos=True)
        events = stream.read().decode().split("\n\n")
        c.close()
        self.assertIn('"timeout_error"', events[-3])
        self.assertEqual(events[-2], "data: [DONE]")
        self.s.idle()
        self.s.wait(lambda: self.s.complete(max_tokens=1).status == 200, "what is short enough is answered")

    def test_given_up_before_its_turn(self):
        """Streams wait for longer than they may: both threads compile 128 grammars of some 30 ms."""
        pattern = {"type": "string", "pattern": "^[a-z]{1,40}(x|y){0,30}[0-9]{2,50}$"}
        names = [f"p{i}" for i in range(4000)]
        ask = {**serve.GOOD, "stream": True, "n": 128, "max_tokens": 1,
               "guided_json": {"properties": dict.fromkeys(names, pattern), "required": names}}
        replies = []
        serve.at_once(16, lambda i: replies.append(self.s.request("POST", "/v1/completions", ask)))
        self.assertLessEqual({r.status for r in replies}, {200, 503, 504})
        self.assertIn(504, [r.status for r in replies])
        self.s.idle()


if __name__ == "__main__":
    serve.main()
