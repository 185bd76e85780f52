"""Signals that end the server, on the OpenCL path, too: drivers bring LLVM, which has handlers of its own."""
import os
import signal
import sys
import unittest

import serve
from serve import Server

TIMES, SIGNALS = 20, 300
LIBRARY = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1].endswith(".so") else None  # handlers.c


def opencl():
    r = serve.cli.weft("info")
    return "opencl:0.0" if "\nopencl:0.0" in "\n" + r.text else None


class Signals(unittest.TestCase):
    def drained(self, s):
        """A row of signals while a stream runs: it gets its end, whether cancelled or done by then, and the server ends as it should."""
        c, r = s.open_stream(max_tokens=400, ignore_eos=True)
        for _ in range(SIGNALS):
            os.kill(s.p.pid, signal.SIGTERM)
        text = r.read()
        c.close()
        code, log = s.end()
        self.assertEqual(code, 0, log)
        self.assertIn("weft: ended", log)
        self.assertTrue(text.endswith(b"data: [DONE]\n\n"), text[-200:])

    def test_on_the_cpu_path(self):
        for _ in range(TIMES):
            self.drained(Server())

    @unittest.skipUnless(LIBRARY, "a build with sanitizers")
    def test_where_a_driver_replaces_the_handlers(self):
        """As LLVM does when it first compiles; where kernels are in a cache it does not even begin."""
        for _ in range(TIMES):
            self.drained(Server(env={"LD_PRELOAD": LIBRARY}))

    @unittest.skipUnless(opencl(), "no OpenCL device is installed")
    def test_on_an_opencl_device(self):
        for _ in range(TIMES):
            self.drained(Server(device=("--device", opencl())))


if __name__ == "__main__":
    serve.main()
