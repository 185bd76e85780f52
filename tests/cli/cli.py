"""What the tests of the program share: running it, finding test data, reporting as meson wants it.

Environment: WEFT is the program, WEFT_TEST_DATA the folder of test data. Where the data is absent a test
is skipped; tests/count.py makes that a failure where CI is set. All models run on the CPU path, which every build has.
"""
import glob
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WEFT = os.environ.get("WEFT", os.path.join(ROOT, "build", "src", "cli", "weft"))
DATA = os.environ.get("WEFT_TEST_DATA", os.path.join(ROOT, "..", "shared", "data"))
CHATML = os.path.join(ROOT, "tests", "support", "chatml.jinja")
CPU = ["--device", "cpu"]
GREEDY = [*CPU, "--greedy"]  # texts that are compared
NEEDS_HARDWARE = "needs other hardware: "  # how a reason to skip begins that tests/count.py takes where CI is set

os.environ.setdefault("WEFT_CONFIG", "")  # no settings of whoever tests
for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):  # by whoever tests: nohup ignores the first
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)

OK, RUNTIME, USAGE, MODEL, DEVICE, LOST, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


def data(name):
    path = os.path.join(DATA, name)
    if os.path.exists(path):
        return path
    raise unittest.SkipTest(f"{path} is missing: set WEFT_TEST_DATA")


def sanitized(*libraries):
    """Is the program built with a sanitizer, or with one of these? It keeps what is freed then, and takes ten times as long."""
    program = pathlib.Path(WEFT).read_bytes()
    return any(library in program for library in libraries or (b"libasan.so", b"libtsan.so"))


def documents():
    """README.md and those in docs/ by their paths."""
    paths = ["README.md", *sorted(glob.glob("docs/*.md", root_dir=ROOT))]
    return {path: open_text(path) for path in paths}


def open_text(path):
    return pathlib.Path(ROOT, path).read_text(encoding="utf-8")


def write_with_template(f, text):
    """The built-in model with a chat template; what is added keeps the alignment of its tensors."""
    key = b"tokenizer.chat_template"
    model = pathlib.Path(ROOT, "models", "demo.gguf").read_bytes()
    (n_meta,) = struct.unpack_from("<Q", model, 16)
    head = struct.pack("<Q", len(key)) + key + struct.pack("<I", 8)  # a text
    text = text.encode() + b" " * (-(len(head) + 8 + len(text.encode())) % 32)
    f.write(model[:16] + struct.pack("<Q", n_meta + 1) + head + struct.pack("<Q", len(text)) + text + model[24:])
    f.flush()


def model_of_holes(shape, kind="F16", arch="llama", name="holes", pieces=(), change=lambda w: None, **tensors):
    """A temporary GGUF file whose weights are a hole in it: zeros that take no room. shape: as of tests/model/tiny.py; change: of its metadata, before the
    vocabulary; tensors: options of gguf_write.model_tensors()."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "model"))
    import gguf_write as gw
    w, f = gw.Writer(), tempfile.NamedTemporaryFile(suffix=".gguf")
    gw.add_model(w, arch, name, shape, kind)
    change(w)
    gw.add_vocab(w, pieces, shape["vocab"])
    for tensor, dims, own in gw.model_tensors(shape, kind, **tensors):
        w.reserve(tensor, dims, own)
    head, _, size = w.layout()
    f.write(head)
    f.truncate(size)
    f.flush()
    return f


class Result:
    def __init__(self, p):
        self.code, self.out, self.err = p.returncode, p.stdout, p.stderr.decode("utf-8", "replace")

    @property
    def text(self):
        return self.out.decode("utf-8")


def argv(*args, program=WEFT):
    """The words that run the program. Those such as WEFT_POISON=1 are variables for it, as in a shell."""
    words = [str(a) for a in args]
    variables = [w for w in words if re.match("WEFT_[A-Z0-9_]+=", w)]
    programs = [program] if isinstance(program, str) else program
    return [*(["env", *variables] if variables else []), *programs, *(w for w in words if w not in variables)]


# For mpirun in a container: as root, more processes than cores, none bound to a core, and no memory of other processes read.
MPI_ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
           "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_btl": "vader,self", "OMPI_MCA_orte_tmpdir_base": "/tmp",
           "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def mpirun(n, program=WEFT, *options):
    """What starts so many processes of it; one that ends does not end the others."""
    if not shutil.which("mpirun"):
        raise unittest.SkipTest("mpirun is missing: install openmpi-bin")
    os.environ.update(MPI_ENV)
    return ["mpirun", *options, "-n", str(n), program]


def weft(*args, stdin=b"", env=None, timeout=240, program=WEFT, **more):
    """Runs the program to its end. Standard input is a pipe, so no terminal."""
    p = subprocess.run(argv(*args, program=program), input=stdin, stdout=more.pop("stdout", subprocess.PIPE),
                       stderr=subprocess.PIPE, timeout=timeout, env={**os.environ, **(env or {})}, **more)
    return Result(p)


def weft_unread(*args, **more):
    """The same with a standard output whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return weft(*args, stdout=writer, **more)
    finally:
        os.close(writer)


def catches_interrupts(p):
    return int(re.search(r"SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{p.pid}/status").read_text()).group(1), 16) >> (signal.SIGINT - 1) & 1


def await_interrupts(p):
    """Waits until this process ends in its own way on Ctrl-C."""
    while not catches_interrupts(p):
        assert p.poll() is None, f"ended with {p.returncode}"
        time.sleep(0.01)


class TestCase(unittest.TestCase):
    maxDiff = None

    def ok(self, *args, **more):
        r = weft(*args, **more)
        self.assertEqual(r.code, OK, f"{args}: {r.err}")
        return r

    def fails(self, code, message, *args, **more):
        """Fails with the code and a message on stderr that has the text; nothing on stdout."""
        r = weft(*args, **more)
        self.assertEqual(r.code, code, f"{args}: {r.err}")
        self.assertIn(message, r.err)
        self.assertEqual(r.out, b"", f"{args} wrote to stdout")
        return r


def main():
    """Runs the tests of the calling program; 77 when every one was skipped. What was and why is for tests/count.py."""
    result = unittest.main(verbosity=2, exit=False).result
    for test, reason in result.skipped:
        print(f"skipped: {test.id().removeprefix('__main__.')}: {reason}")
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun and len(result.skipped) == result.testsRun else 0)
