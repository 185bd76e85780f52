"""Many clients at once: nothing mixes, nobody waits for another who does not read, and memory stays."""
import json
import random
import socket

import serve
from serve import PROMPTS, at_once


class Many(serve.Unharmed):
    ARGS = ["--max-num-seqs", 16, "-c", 256, *serve.ONE_ROUNDING]

    def test_answers_do_not_mix(self):
        """Sixteen streams interleave, and each gets what it gets alone."""
        fields = [{"prompt": PROMPTS[i % len(PROMPTS)], "temperature": 1, "seed": i, "n": 2, "max_tokens": 40, "ignore_eos": True} for i in range(8)]
        alone = [[c["text"] for c in self.s.complete(**f).json["choices"]] for f in fields]
        before = self.s.metrics()

        def one(i):
            texts = ["", ""]
            for event in self.s.stream(**fields[i]):
                for choice in event["choices"]:
                    texts[choice["index"]] += choice["text"]
            self.assertEqual(texts, alone[i])

        at_once(8, one)
        after = self.s.metrics()
        steps = after["iteration_tokens_total_count"] - before["iteration_tokens_total_count"]
        rows = after["iteration_tokens_total_sum"] - before["iteration_tokens_total_sum"]
        self.assertGreater(rows, 1.5 * steps)  # two choices run together however late the other clients come

    def test_clients_of_which_a_third_leaves(self):
        want = {p: self.s.complete(prompt=p).text for p in PROMPTS}
        left = []

        def one(i):
            rng = random.Random(i)
            prompt = PROMPTS[i % len(PROMPTS)]
            if rng.random() < 1 / 3:
                left.append(i)
                c, r = self.s.open_stream(prompt=prompt, max_tokens=200, ignore_eos=True)
                r.fp.read1(rng.randrange(1, 2000))
                r.close()
                c.close()
            elif rng.random() < 0.5:
                self.assertEqual(self.s.complete(prompt=prompt).text, want[prompt])
            else:
                self.assertEqual("".join(e["choices"][0]["text"] for e in self.s.stream(prompt=prompt)), want[prompt])

        at_once(120, one)
        self.assertGreater(len(left), 20)
        self.s.idle()

    def test_many_that_leave_at_once(self):
        def leave(i):
            body = json.dumps({"prompt": "One day", "max_tokens": 200, "ignore_eos": True, "stream": i % 2 == 0})
            with socket.create_connection(("127.0.0.1", self.s.port)) as s:
                s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                if i % 3 == 0:
                    s.settimeout(5)
                    try:
                        s.recv(100)
                    except socket.timeout:
                        pass

        at_once(60, leave)
        self.s.idle()

    def test_slow_readers_hold_up_nobody(self):
        socks = []
        body = json.dumps({"prompt": "One day", "max_tokens": 200, "ignore_eos": True, "stream": True, "n": 2, "logprobs": 20})
        for _ in range(6):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
            s.connect(("127.0.0.1", self.s.port))
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            socks.append(s)
        self.s.idle()  # the engine ends them, though nobody reads
        self.assertEqual(self.s.complete().status, 200)
        got = b""
        while b"[DONE]" not in got:
            part = socks[0].recv(65536)
            self.assertTrue(part)
            got += part
        for s in socks:
            s.close()

    def test_memory_stays(self):
        def round_of():
            at_once(8, lambda i: self.s.complete(n=2, logprobs=5, echo=True, max_tokens=20))
            at_once(8, lambda i: self.s.complete(prompt="word " * 2000))
            self.s.idle()

        for _ in range(2):
            round_of()
        warm = self.s.memory()
        for _ in range(4):
            round_of()
        if not serve.cli.sanitized():
            self.assertLess(self.s.memory() - warm, 8 << 20)


if __name__ == "__main__":
    serve.main()
