"""Clients that share a server: they take turns, whoever they are is read where nobody can lie, and one may be urgent."""
import tempfile
import unittest
from concurrent import futures

import serve
from serve import Server

# So that something still runs when it is looked at, however late that is: minutes for LONG, of a context that the model was not made for.
SLOW = ["WEFT_FORCE=gemm=ref,attention=ref", "--no-prefix-cache", "-c", 20000]
LONG = {"max_tokens": 19000, "ignore_eos": True}
A_WHILE = {"max_tokens": 60, "ignore_eos": True}  # a second
PROXY = ["--trusted-proxy", "127.0.0.1", "--trusted-proxy", "10.0.0.0/9", "--trusted-proxy", "2001:db8::/33"]


def by(address):
    return {"X-Forwarded-For": address}


def behind(s, first, waiting, ask):
    """What is answered to `ask`, which joins those that wait for the first ones; these leave when it is there."""
    with futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask)
        s.until(lambda m: m["num_requests_waiting"] == waiting + 1, "it waits, too")
        first.close()
        return answer.result()


def n_answered(s):
    return s.metrics()['request_success_total{finished_reason="length"}']


class Turns(unittest.TestCase):
    def test_who_queues_much_does_not_make_others_wait(self):
        """Counted in requests: of those that came before, few have ended when the answer is there."""
        s = Server("--max-num-seqs", 2, *SLOW, *PROXY)
        first, queue = serve.Queue(s), serve.Queue(s)
        first.send(by("192.0.2.77"), n=2, **LONG)
        s.until(lambda m: m["num_requests_running"] == 2, "both places are taken")
        for i in range(4):
            queue.send(by(f"192.0.2.{i}"), n=12, **A_WHILE)
        s.until(lambda m: m["num_requests_waiting"] == 48, "all wait")
        m = s.metrics()
        self.assertEqual(m["num_clients_waiting"], 4)
        self.assertGreater(m["longest_wait_seconds"], 0)
        r = behind(s, first, 48, lambda: s.post("/v1/completions", {**serve.GOOD, "max_tokens": 5}, **by("192.0.2.9")))
        self.assertEqual(r.status, 200)
        self.assertLess(n_answered(s), 16)  # each of 4 clients has one turn
        queue.leave()
        self.assertEqual(s.metrics()["longest_wait_seconds"], 0)
        self.assertEqual(s.end()[0], 0)

    def test_who_fills_his_places_leaves_some(self):
        """One may have as many as there are with one client; he is refused, and others are not."""
        s = Server("--max-num-seqs", 2, "--max-queue", 6, *SLOW, *PROXY)
        a, b, c = (by(f"192.0.2.{i}") for i in range(3))
        queue = serve.Queue(s)
        queue.send(a, n=8, **LONG)
        s.until(lambda m: m["num_requests_waiting"] == 6, "all his places are taken")
        r = s.post("/v1/completions", serve.GOOD, **a)
        self.assertEqual((r.status, r.headers["Retry-After"]), (503, "1"))
        self.assertIn("8 sequences run or wait, 8 of them of this client", r.error["message"])
        self.assertEqual(s.post("/v1/completions", {**serve.GOOD, "n": 5}, **b).status, 503)
        queue.send(b, n=4, **LONG)
        s.until(lambda m: m["num_requests_waiting"] == 10, "half of the others are taken")
        self.assertEqual(behind(s, queue, 10, lambda: s.post("/v1/completions", {**serve.GOOD, "max_tokens": 2}, **c)).status, 200)
        queue.leave()
        self.assertEqual(s.end()[0], 0)

    def test_limit_per_client(self):
        s = Server("--max-num-seqs", 4, "--max-num-seqs-per-client", 1, *SLOW, *PROXY)
        queue = serve.Queue(s)
        queue.send(by("192.0.2.1"), n=4, **LONG)
        queue.send(by("192.0.2.2"), n=4, **LONG)
        s.until(lambda m: m["num_requests_waiting"] == 6, "each has one that runs")
        self.assertEqual(s.metrics()["num_requests_running"], 2)
        queue.leave()
        self.assertEqual(s.end()[0], 0)


    def test_a_place_for_who_has_none(self):
        """One of many sequences of another makes room; it goes on later, to the same text."""
        s = Server("--max-num-seqs", 4, *SLOW, *PROXY)
        fields = {**serve.GOOD, "max_tokens": 400, "ignore_eos": True, "temperature": 0}
        want = s.post("/v1/completions", fields).text
        with futures.ThreadPoolExecutor(1) as pool:
            many = pool.submit(lambda: s.post("/v1/completions", {**fields, "n": 12}, **by("192.0.2.1")))
            s.until(lambda m: m["num_requests_running"] == 4, "all places are taken")
            self.assertEqual(s.post("/v1/completions", serve.GOOD, **by("192.0.2.2")).status, 200)
            self.assertFalse(many.done())
            self.assertEqual({c["text"] for c in many.result().json["choices"]}, {want})
        self.assertEqual(s.metrics()["num_preemptions_total"], 1)
        self.assertEqual(s.end()[0], 0)

    def test_prompts_of_others_are_not_told(self):
        """In the prefix cache each key finds its own prompts, and with a salt those who know it each other's."""
        s = serve.Server("--api-key", "one", "--api-key", "two")

        def cached(key, salt=None):
            r = s.post("/v1/completions", {**serve.GOOD, "prompt": "Once there was a little dog. " * 9, "cache_salt": salt}, Authorization=f"Bearer {key}")
            return r.json["usage"]["prompt_tokens_details"]["cached_tokens"] > 0

        for key, salt, want in (("one", None, False), ("two", None, False), ("one", None, True), ("two", "x", False), ("one", "y", False), ("one", "x", True), ("two", None, True)):
            self.assertEqual(cached(key, salt), want, (key, salt))
        for salt in ("", 5, ["x"]):
            self.assertIn("cache_salt must be a string", s.post("/v1/completions", {**serve.GOOD, "cache_salt": salt}, Authorization="Bearer one").error["message"])
        self.assertEqual(s.end()[0], 0)


class Names(unittest.TestCase):
    def clients(self, s, headers):
        """As how many clients these count: one more request runs while they wait."""
        queue = serve.Queue(s)
        queue.send({"X-Forwarded-For": "203.0.113.77", **headers[0]} if "Authorization" in headers[0] else by("203.0.113.77"), **LONG)
        s.until(lambda m: m["num_requests_running"] == 1, "it runs")
        for h in headers:
            queue.send(h, **LONG)
        s.until(lambda m: m["num_requests_waiting"] == len(headers), "the others wait")
        n = s.metrics()["num_clients_waiting"]
        queue.leave()
        return n

    def test_behind_a_proxy(self):
        s = Server("--max-num-seqs", 1, *SLOW, *PROXY)
        for n, headers in (
                (2, ["192.0.2.1", "192.0.2.2"]),
                (1, ["192.0.2.1", "198.51.100.7, 192.0.2.1", "nonsense, 192.0.2.1"]),  # what a client writes itself
                (1, ["192.0.2.1", "192.0.2.1, 10.127.1.2", "192.0.2.1,10.1.1.1 , 2001:db8:7fff::1", " 192.0.2.1:80 ", "::ffff:192.0.2.1"]),
                (2, ["192.0.2.1", "192.0.2.1, 10.128.1.2"]),  # not one of the proxies: nobody knows whom it speaks for
                (1, ["2001:db8:8000:1::1", "[2001:db8:8000:1::2]:443"]),  # one subscriber
                (2, ["2001:db8:8000:1::1", "2001:db8:8000:2::1"]),
                (1, ["", "nonsense", "192.0.2.1, 1.2.3", "192.0.2.1, 127.0.0.1x"]),  # the proxy's own
                (2, ["198.51.100.7, " * 300 + "192.0.2.1", "198.51.100.7, " * 300 + "192.0.2.2"])):
            self.assertEqual(self.clients(s, [by(h) for h in headers]), n, headers)
        self.assertEqual(s.end()[0], 0)

    def test_two_lines(self):
        """A proxy may add a line of its own to that of its client."""
        s = Server("--max-num-seqs", 1, *SLOW, *PROXY)
        lines = "X-Forwarded-For: {}\r\nX-Forwarded-For: {}\r\n"
        body = serve.json.dumps({**serve.GOOD, **LONG, "stream": True})
        queue = serve.Queue(s)
        for pair in (("203.0.113.77", "203.0.113.77"), ("192.0.2.1", "192.0.2.9"), ("192.0.2.2", "192.0.2.9")):
            c = serve.socket.create_connection(("127.0.0.1", s.port))
            c.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{lines.format(*pair)}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            queue.add(c)
        self.assertEqual(s.metrics()["num_clients_waiting"], 1)
        queue.leave()
        self.assertEqual(s.end()[0], 0)

    def test_who_waits_hears(self):
        """The header comes at once, then a comment now and then; its answer is the usual one."""
        s = Server("--max-num-seqs", 1, *SLOW, {"beat": 1})
        (first, r), (second, waits) = s.open_stream(**LONG), s.open_stream()
        self.assertEqual((r.status, waits.status), (200, 200))
        self.assertEqual([waits.readline() for _ in range(4)], [b": waiting\n", b"\n"] * 2)
        first.close()
        text = waits.read().decode().replace(": waiting\n\n", "")
        events = [serve.json.loads(e[6:]) for e in text.split("\n\n")[:-2]]
        self.assertEqual("".join(e["choices"][0]["text"] for e in events), s.complete().text)
        second.close()
        self.assertEqual(s.end()[0], 0)

    def test_nobody_is_believed(self):
        s = Server("--max-num-seqs", 1, *SLOW)
        self.assertEqual(self.clients(s, [by("192.0.2.1"), by("192.0.2.2"), {}]), 1)
        self.assertEqual(s.end()[0], 0)

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            f.write("one\ntwo\n")
            f.flush()
            s = KeyServer("--api-key-file", f.name, "--max-num-seqs", 1, *SLOW, *PROXY)
            one, two = ({"Authorization": f"Bearer {k}"} for k in ("one", "two"))
            self.assertEqual(self.clients(s, [one, {**one, **by("192.0.2.1")}, two]), 2)
            self.assertEqual(s.end()[0], 0)

    def test_bad_networks(self):
        for bad in ("localhost", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/+8", "::1/129", "1.2.3", "", "10.0.0.0/8x", "1" * 100):
            r = serve.cli.weft("serve", "--port", 0, "--trusted-proxy", bad)
            self.assertEqual(r.code, serve.cli.RUNTIME, bad)
            self.assertIn("--trusted-proxy", r.err)


class KeyServer(Server):
    def get(self, path, **headers):
        return super().get(path, Authorization="Bearer one", **headers)


class Priority(serve.TestCase):
    ARGS = ["--max-num-seqs", 1, *SLOW, "--scheduling-policy", "priority"]

    def test_urgent(self):
        """Lower is earlier, also than what the same client has sent before."""
        first, queue = serve.Queue(self.s), serve.Queue(self.s)
        first.send(**LONG)
        self.s.until(lambda m: m["num_requests_running"] == 1, "the place is taken")
        queue.send(n=24, **A_WHILE)
        self.s.until(lambda m: m["num_requests_waiting"] == 24, "all wait")
        before = n_answered(self.s)
        self.assertEqual(behind(self.s, first, 24, lambda: self.s.complete(max_tokens=5, priority=-1)).status, 200)
        self.assertLess(n_answered(self.s) - before, 12)
        queue.leave()

    def test_ranges(self):
        self.refused(self.s.complete(priority=1001), 400, "priority")
        self.refused(self.s.complete(priority=0.5), 400, "priority")
        self.assertEqual(self.s.chat(priority=-1000).status, 200)


class NoPriority(serve.TestCase):
    def test_refused(self):
        self.refused(self.s.complete(priority=-1), 400, "priority")
        self.refused(self.s.chat(priority=1), 400, "priority")
        self.assertEqual(self.s.complete(priority=0).status, 200)


if __name__ == "__main__":
    serve.main()
