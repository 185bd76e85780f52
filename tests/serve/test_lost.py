"""The end of a server whose device is lost, here by a step that takes longer than WEFT_WATCHDOG allows."""
import time
import unittest

import serve
from serve import Server, cli
from test_front import ASK, WORDS, small_window

PARTS = 1, 2, 3  # nano-batches of a step

# A step of eight prompts takes many times as long, and what is tested at the start a small part.
SLOW = ["WEFT_FORCE=gemm=ref,attention=ref", "WEFT_WATCHDOG=2000", "--max-num-batched-tokens", 4000]
LONG = {"prompt": [[5 + (i + k) % 9 for i in range(500)] for k in range(8)], "max_tokens": 5}


class Lost(unittest.TestCase):
    def test_exit_code_and_health(self):
        """The request fails and says why, the page of health does not say ok again, and the process ends with its code for this."""
        for parts in PARTS:
            with self.subTest(nano_batches=parts):
                self.loses_its_device("--nano-batches", parts)

    def loses_its_device(self, *options):
        s = Server(*SLOW, *options)
        kept = s.watch()
        r = s.post("/v1/completions", {**serve.GOOD, **LONG})
        self.assertEqual((r.status, r.error["type"]), (500, "server_error"), r.body)
        self.assertTrue(serve.told_that_it_ends(kept))
        code, log = s.end(0)
        self.assertEqual(code, cli.LOST, log)
        self.assertIn("the device failed", log)

    def test_health_while_it_ends(self):
        """As long as clients have not read their replies the server lives, and says on open connections what has happened; here on one
        of those that are kept for this."""
        s = Server(*SLOW, {"connections": 4})
        readers = [small_window(s) for _ in range(3)]
        for r in readers:
            r.send(f"{ASK}\r\n{WORDS}".encode())
        s.until(lambda m: m["bodies_read_total"] == 3, "their replies are there")
        kept, half = [s.connect() for _ in range(6)], small_window(s)
        for c in kept:
            c.request("GET", "/health")
            self.assertEqual(c.getresponse().read(), b'{"status":"ok"}')
        r = s.post("/v1/completions", {**serve.GOOD, **LONG})
        while r.status == 503 and "device" not in r.error["message"]:  # a connection of those kept is not idle yet
            time.sleep(0.05)
            r = s.post("/v1/completions", {**serve.GOOD, **LONG})
        self.assertEqual(r.status, 500, r.body)
        half.send(f"{ASK}\r\n".encode())  # the fourth with a request
        for c in kept:  # at once and while it shuts down
            c.request("GET", "/health")
            r = serve.Reply(c.getresponse())
            self.assertEqual((r.status, r.headers["Retry-After"]), (503, "1"))
            self.assertIn("the device failed", r.error["message"])
            time.sleep(0.05)
        for r in (*readers, half, *kept):
            r.close()
        self.assertEqual(s.end(0)[0], cli.LOST)


if __name__ == "__main__":
    serve.main()
