"""The end of a server whose device is lost, here by a step that takes longer than --watchdog allows."""
import unittest

import serve
from serve import Server, cli

SLOW = ["--force", "gemm=ref,attention=ref", "--watchdog", 50]
LONG = {"prompt": [5 + i % 9 for i in range(500)], "max_tokens": 5}


class Lost(unittest.TestCase):
    def test_exit_code_and_health(self):
        """The request fails and says why, the page of health does not say ok again, and the process ends with its code for this."""
        s = Server(*SLOW)
        kept = s.connect()
        kept.request("GET", "/health")
        self.assertEqual(kept.getresponse().read(), b'{"status":"ok"}')
        r = s.post("/v1/completions", {**serve.GOOD, **LONG})
        self.assertEqual((r.status, r.error["type"]), (500, "server_error"), r.body)
        try:
            kept.request("GET", "/health")
            self.assertEqual(kept.getresponse().status, 503)
        except (serve.http.client.HTTPException, ConnectionError):
            pass  # it has ended already
        kept.close()
        code, log = s.end(0)
        self.assertEqual(code, cli.LOST, log)
        self.assertIn("the device failed", log)


if __name__ == "__main__":
    serve.main()
