"""Large bodies: what they may take of the server's memory, and of the time of others. After each a good request gets the same answer
as before."""
import contextlib
import json
import random
import socket
import threading

import serve

MIB = 1 << 20


def words(n, seed=1):
    """n bytes that no tokenizer finds easy."""
    rng = random.Random(seed)
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz     ", k=n))


def body_of(size):
    """Parsed for long, then tokenised for long."""
    return json.dumps({"prompt": words(size), "user": [0] * (size // 3)})


class Memory(serve.Unharmed):
    """The parser and the answers may take a few times the memory of a body, not a hundred times, and give it back."""

    def limited(self, work, most, rest=64 * MIB):
        self.s.forget_peak()
        before = self.s.memory()
        work()
        self.assertLess(self.s.peak() - before, most)
        self.assertLess(self.s.memory() - before, rest)

    def test_pieces_of_a_long_text(self):
        text = words(MIB)

        def ask():
            for fields in ({"with_pieces": True}, {"return_token_strs": True}):
                r = self.s.post("/tokenize", {"prompt": text, "add_special_tokens": False, **fields})
                self.assertEqual(r.status, 200)
                got = r.json
                self.assertEqual(got["count"], len(got["tokens"]))
                texts = got["token_strs"] if "token_strs" in got else [t["piece"] for t in got["tokens"]]
                self.assertEqual("".join(texts).strip(), text.strip())
                self.assertEqual(self.s.post("/detokenize", {"tokens": [t["id"] if isinstance(t, dict) else t for t in got["tokens"]]})
                                 .json["content"].strip(), text.strip())

        self.limited(ask, 100 * MIB, 16 * MIB)

    def test_pieces_that_nobody_reads(self):
        """An answer of 30 MB takes the memory of its ids until its client reads it."""
        body = json.dumps({"prompt": words(MIB), "with_pieces": True})
        conns = [self.s.connect() for _ in range(12)]

        def ask():
            for c in conns:
                c.request("POST", "/tokenize", body=body)
                self.assertEqual(c.getresponse().status, 200)

        self.limited(ask, 200 * MIB, 100 * MIB)
        for c in conns:
            c.close()

    def test_text_too_long_to_tokenize(self):
        e = self.refused(self.s.post("/tokenize", {"prompt": "a" * (2 * MIB + 1)}), 400, "prompt")
        self.assertIn("2097152", e["message"])
        e = self.refused(self.s.post("/detokenize", {"tokens": [1] * (MIB + 1)}), 400)
        self.assertIn("1048576", e["message"])
        e = self.refused(self.s.post("/detokenize", {"tokens": [self.longest()] * 900_000}), 400, "tokens")
        self.assertIn("2097152", e["message"])

    def longest(self):
        """The id of a long token."""
        got = self.s.post("/tokenize", {"prompt": " there was a little", "with_pieces": True}).json["tokens"]
        return max(got, key=lambda t: len(t["piece"]))["id"]

    def test_values_of_little_text(self):
        """8 MB that would become gigabytes."""
        empty = ",".join(["{}"] * (8 * MIB // 3 - 100))
        zeros = ",".join(["0"] * (4 * MIB - 100))
        names = ",".join([f'"{i:x}":0' for i in range(600_000)])
        bodies = [f'{{"prompt":[{empty}]}}', f'{{"prompt":[{zeros}]}}', f'{{"x":{{{names}}}}}', "{}" * (4 * MIB - 8)]

        def ask(i):
            self.refused(self.s.post("/v1/completions", bodies[i % len(bodies)]), 400)

        self.limited(lambda: serve.at_once(8, ask), 300 * MIB)

    def test_too_many_values(self):
        for values, what in (("{}," * MIB + "1", "names and values"), ("[]," * MIB + "1", "names and values"), ("1," * MIB + "1", "names and values")):
            e = self.refused(self.s.post("/v1/completions", f'{{"prompt":"a","user":[{values}]}}'), 400)
            self.assertIn(what, e["message"])

    def test_values_that_are_possible(self):
        for body in ('{"prompt":"a","max_tokens":1,"user":[%s0]}' % ("0," * (MIB - 100)), '{"prompt":"a","max_tokens":1,"user":[%s{}]}' % ("{}," * 65_500)):
            self.assertEqual(self.s.post("/v1/completions", body).status, 200)

    def test_more_bytes_than_the_context_has(self):
        """Said before it is tokenized: the error tells bytes, not tokens."""
        for r in (self.s.complete(prompt=words(4 * MIB)), self.s.complete(prompt=["a", words(4 * MIB)])):
            e = self.refused(r, 400, "prompt")
            self.assertRegex(e["message"], r"has \d+ bytes, but at most \d+ fit")
            self.assertEqual(e["code"], "context_length_exceeded")
        self.assertIn("bytes", self.refused(self.s.chat(words(4 * MIB)), 400, "messages")["message"])


class Others(serve.Unharmed):
    """While a large body is read everybody else is served: on each of the HTTP threads, which connections are spread over."""
    ARGS = ["--log-json", "--max-num-seqs", 8]
    THREADS = 8  # a multiple of the server's

    def setUp(self):
        self.health = [self.s.connect() for _ in range(self.THREADS)]
        for c in self.health:
            self.ask_health(c)
        self.counting, self.ended = False, False
        self.events = [0] * self.THREADS
        self.readers = [threading.Thread(target=self.read_streams, args=(i,)) for i in range(self.THREADS)]
        for t in self.readers:
            t.start()
        self.s.wait(lambda: self.s.metrics()["num_requests_running"] > 0, "streams run")

    def tearDown(self):
        self.ended = True
        for t in self.readers:
            t.join()
        for c in self.health:
            c.close()
        super().tearDown()

    @staticmethod
    def ask_health(c):
        c.request("GET", "/health")
        r = c.getresponse()
        assert r.status == 200, r.read()
        r.read()

    def read_streams(self, i):
        """One stream after the other on one connection; events that come while a body is read are counted."""
        c = self.s.connect()
        while not self.ended:
            c.request("POST", "/v1/completions", body=json.dumps({**serve.GOOD, "stream": True, "ignore_eos": True, "max_tokens": 400}))
            r = c.getresponse()
            while line := r.readline():
                self.events[i] += self.counting and line.startswith(b"data: ")
        c.close()

    def large(self):
        """A connection that has sent a large body, and an event that is set when its answer begins."""
        c, answered = self.s.connect(), threading.Event()
        c.request("POST", "/tokenize", body=self.body)

        def wait():
            try:
                self.status = c.getresponse().status
            finally:
                answered.set()

        t = threading.Thread(target=wait)
        t.start()
        return c, answered, t

    body = body_of(1_300_000)

    def test_all_go_on(self):
        """However few of a body's moments this program gets: bodies are sent until there were enough."""
        healthy, most = [0] * self.THREADS, 0

        def one_more():
            nonlocal most
            c, answered, t = self.large()
            self.counting = True
            before, i = healthy.copy(), sum(healthy)
            while not answered.is_set():
                self.ask_health(self.health[i % self.THREADS])
                healthy[i % self.THREADS] += not answered.is_set()
                i += 1
            self.counting = False
            t.join()
            self.assertEqual(self.status, 200)
            c.close()
            most = max(most, min(now - then for now, then in zip(healthy, before, strict=True)))
            return min(*healthy, *self.events) >= 10 and most >= 3

        self.s.wait(one_more, "ten answers and ten events on each thread while bodies are read, three answers of one body")


class Replies(serve.Unharmed):
    """A reply with a hundred thousand log probabilities is written while everybody else is served."""
    ARGS = ["--max-num-seqs", 16]
    ASK = {"messages": [{"role": "user", "content": "Hi"}], "n": 24, "max_tokens": 300, "ignore_eos": True, "logprobs": True, "top_logprobs": 20,
           "temperature": 1, "seed": 3}

    def check(self, choices):
        self.assertEqual(len(choices), 24)
        for tokens in choices.values():
            self.assertEqual(len(tokens), 300)
            self.assertEqual({len(t["top_logprobs"]) for t in tokens}, {20})

    def test_whole(self):
        """From the last token on until the first byte of the reply, on each of the HTTP threads; again if this program looked too late."""
        health, n = [self.s.connect() for _ in range(Others.THREADS)], 0

        def enough():
            nonlocal n
            c, answered, before = self.s.connect(), threading.Event(), self.s.metrics()["generation_tokens_total"]
            c.request("POST", "/v1/chat/completions", body=json.dumps(self.ASK))
            t = threading.Thread(target=lambda: (c.sock.recv(1, socket.MSG_PEEK), answered.set()))
            t.start()
            self.s.until(lambda m: m["generation_tokens_total"] >= before + 24 * 300, "all is generated")
            while not answered.is_set():
                Others.ask_health(health[n % len(health)])
                n += not answered.is_set()
            t.join()
            self.check({x["index"]: x["logprobs"]["content"] for x in json.loads(c.getresponse().read())["choices"]})
            return n >= 10 * len(health)

        self.s.wait(enough, "ten answers on each thread while a reply is written")

    def test_stream_read_late(self):
        """What has gathered comes in many events of a limited length."""
        c = self.s.connect()
        c.sock = socket.socket()
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.sock.connect(("127.0.0.1", self.s.port))
        c.request("POST", "/v1/chat/completions", body=json.dumps({**self.ASK, "stream": True}))
        self.s.wait(lambda: self.s.metrics()["num_requests_running"] == 0, "all is generated")
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        choices, texts, longest = {}, {}, 0
        for line in c.getresponse():
            if not line.startswith(b"data: {"):
                continue
            longest = max(longest, len(line))
            for x in json.loads(line[6:])["choices"]:
                choices.setdefault(x["index"], []).extend(x["logprobs"]["content"] if x["logprobs"] else [])
                texts[x["index"]] = texts.get(x["index"], "") + x["delta"].get("content", "")
        self.check(choices)
        self.assertLess(longest, 200_000)
        for i, text in texts.items():
            tokens = [bytes(t["bytes"]) for t in choices[i] if t["token"] not in ("<s>", "</s>")]
            self.assertEqual(b"".join(tokens).decode("utf-8", "replace"), text)

    def test_stream_of_a_prompt(self):
        """So do the log probabilities of a prompt, which are all there at once: no event has all of them."""
        with contextlib.closing(self.s.connect()) as c:
            c.request("POST", "/v1/completions", body=json.dumps({"prompt": words(300), "echo": True, "logprobs": 20, "max_tokens": 1, "stream": True}))
            events = [json.loads(line[6:]) for line in c.getresponse() if line.startswith(b"data: {")]
        tokens = [len(x["logprobs"]["tokens"]) for e in events for x in e["choices"] if x["logprobs"]]
        self.assertGreater(sum(tokens), 200)
        self.assertLess(max(tokens), 60)


class Leaving(serve.Unharmed):
    ARGS = ["--log-json", "--shutdown-timeout", 60]

    def test_who_leaves_is_not_read(self):
        """Of many only those are read that a thread had begun with; again if they did not leave in time."""
        def few_are_read():
            conns = [self.s.connect() for _ in range(16)]
            before = self.s.metrics()["bodies_read_total"]
            for c in conns:
                c.request("POST", "/tokenize", body=Others.body)
            self.s.until(lambda m: m["num_bodies_waiting"] > 8 or m["bodies_read_total"] - before >= 8, "they wait")
            for c in conns:
                c.close()
            self.s.until(lambda m: m["num_bodies_waiting"] == 0, "nobody waits")
            self.s.wait(lambda: self.s.sockets() == 0, "all are gone")
            return self.s.metrics()["bodies_read_total"] - before < 8

        self.s.wait(few_are_read, "fewer than half are read")

    def test_who_leaves_in_the_middle(self):
        """The tokenizer stops. Whether one is in the middle of its text when all leave is a matter of luck, so they come again."""
        body = json.dumps({"prompt": words(1_300_000)})  # parsed at once, tokenised for long

        def leave():
            conns = [self.s.connect() for _ in range(12)]
            for c in conns:
                c.request("POST", "/tokenize", body=body)
            self.s.until(lambda m: m["num_bodies_waiting"] > 4, "others are being read")
            for c in conns:
                c.close()
            self.s.until(lambda m: m["body_memory_bytes"] == 0, "it has been left")
            return self.s.metrics()["bodies_given_up_total"] > 0

        self.s.wait(leave, "a text is tokenised in part")

    def test_bodies_that_wait_are_read_before_the_end(self):
        """Asks another server if this program looked when all were read, or before all had come: with smaller bodies if they took longer than a
        server has at its end, with larger ones if they were read at once."""
        self.size = 1_000_000
        self.s.wait(self.ended_while_some_wait, "a server that is ended while bodies wait")

    def ended_while_some_wait(self):
        s = serve.Server(*self.ARGS)
        conns = [s.connect() for _ in range(8)]
        for i, c in enumerate(conns):
            body = body_of(self.size) if i < 6 else json.dumps({**serve.GOOD, "user": "x" * 1_200_000})
            c.request("POST", "/tokenize" if i < 6 else "/v1/completions", body=body)
        s.until(lambda m: m["num_bodies_waiting"] + m["bodies_read_total"] > 4, "most have come")
        m = s.metrics()
        s.p.terminate()
        try:
            got = [c.getresponse() for c in conns]
        except ConnectionError:  # of one that had not come
            self.assertLess(m["num_bodies_waiting"] + m["bodies_read_total"], 8)
            return self.assertEqual(s.end()[0], 0)
        if 503 in [r.status for r in got]:  # the end came before it, or to read it took longer than the half second that is left
            self.size = max(self.size // 2, 30_000)
            return self.assertEqual(s.end()[0], 0)
        self.size += self.size // 3
        self.assertEqual([r.status for r in got], [200] * 8)
        self.assertEqual([json.loads(r.read())["count"] > 1000 for r in got[:6]], [True] * 6)
        self.assertEqual(json.loads(got[7].read())["choices"][0]["text"], self.want)
        self.assertEqual(s.end()[0], 0)
        return m["num_bodies_waiting"] > 2


class Turns(serve.Unharmed):
    """Bodies that wait are read in turns of their clients."""

    def test_after_many_of_another(self):
        """Again if this program looked when there were few left."""
        self.s.wait(self.before_half_of_another, "an answer before half of another client's bodies were read")

    def before_half_of_another(self):
        body, read = json.dumps({"prompt": words(1_000_000)}).encode(), self.s.metrics()["bodies_read_total"]
        conns = []
        for _ in range(40):
            conns.append(socket.create_connection(("127.0.0.1", self.s.port), source_address=("127.0.0.9", 0)))
            conns[-1].sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.s.until(lambda m: m["num_bodies_waiting"] >= 20 or m["bodies_read_total"] - read > 20, "many wait")
        before = self.s.metrics()["num_bodies_waiting"]
        self.assertEqual(self.s.complete(user="x" * 40_000).text, self.want)
        after = self.s.metrics()["num_bodies_waiting"]
        for c in conns:
            c.close()
        self.s.until(lambda m: m["num_bodies_waiting"] == 0, "nobody waits")
        return before >= 20 and after > before / 2


class Budget(serve.Unharmed):
    """Bodies and replies of all requests together; what is small has its place beside them."""
    ARGS = [{"max_body": MIB, "bodies": 4 * MIB, "replies": 256 * 1024}]
    HEAD = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"

    def busy(self, r):
        self.refused(r, 503)
        self.assertEqual(r.headers["Retry-After"], "1")
        return r.error["message"]

    def test_bodies(self):
        conns = [socket.create_connection(("127.0.0.1", self.s.port)) for _ in range(8)]
        for i, c in enumerate(conns):  # one after the other: of those that grow together more may be refused than must be
            c.sendall(self.HEAD.encode() + b" " * 900_000)
            if i < 4:
                self.s.until(lambda m, i=i: m["body_memory_bytes"] >= (i + 1) * 900_000, "its body has come")
        large = json.dumps({**serve.GOOD, "user": "x" * 800_000})
        self.s.until(lambda m: 3_600_000 <= m["body_memory_bytes"] <= 4 * MIB, "as much has come as is possible")
        self.assertIn("requests take the 4194304 bytes", self.busy(self.s.post("/v1/completions", large)))
        self.assertEqual(self.s.complete(user="x" * 10_000).text, self.want)
        self.assertLessEqual(self.s.metrics()["body_memory_bytes"], 4 * MIB + 40_000)
        for c in conns:
            c.close()
        self.s.until(lambda m: m["body_memory_bytes"] == 0, "all is given back")
        self.assertEqual(self.s.post("/v1/completions", large).text, self.want)

    def test_prompts_that_wait(self):
        """While a request runs, or waits, its prompts are held and its body is not."""
        prompts = [[7] * 400] * 32
        c, stream = self.s.open_stream(prompt=prompts, max_tokens=100, ignore_eos=True, user="x" * 500_000)
        self.assertEqual(self.s.metrics()["body_memory_bytes"], 32 * 400 * 4)
        stream.close()
        c.close()
        self.s.until(lambda m: m["body_memory_bytes"] == 0, "all is given back")

    def test_replies(self):
        ask = {"n": 8, "max_tokens": 400, "ignore_eos": True, "logprobs": 20}
        self.assertIn("replies that are not read yet take the 262144 bytes", self.busy(self.s.complete(**ask)))
        c, stream = self.s.open_stream(**ask)
        events = stream.read().decode().split("\n\n")
        c.close()
        self.assertIn("replies that are not read yet take the 262144 bytes", json.loads(events[-3][6:])["error"]["message"])
        self.s.idle()
        self.s.until(lambda m: m["reply_memory_bytes"] == 0, "all is given back")
        self.assertEqual(self.s.complete(max_tokens=200, ignore_eos=True, logprobs=5).status, 200)

    def test_replies_without_generation(self):
        ids = self.s.post("/tokenize", {"prompt": words(200_000)}).json["tokens"]
        self.assertIn("replies that are not read yet take the 262144 bytes", self.busy(self.s.post("/detokenize", {"tokens": ids})))
        self.assertEqual(self.s.post("/detokenize", {"tokens": ids[:1000]}).status, 200)

    def test_bodies_of_another(self):
        """A client that takes all that it can leaves others enough for a body."""
        conns = []
        for i in range(5):
            conns.append(socket.create_connection(("127.0.0.1", self.s.port), source_address=("127.0.0.9", 0)))
            conns[-1].sendall(self.HEAD.encode() + b" " * 900_000)
            if i < 4:
                self.s.until(lambda m, i=i: m["body_memory_bytes"] >= (i + 1) * 900_000, "its body has come")
        self.assertEqual(self.s.complete(user="x" * 800_000).text, self.want)
        for c in conns:
            c.close()
        self.s.until(lambda m: m["body_memory_bytes"] == 0, "all is given back")


if __name__ == "__main__":
    serve.main()
