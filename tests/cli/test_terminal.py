"""What others wrote never commands the terminal, what cannot be written is said alike, and what takes long shows how far it is."""
import os
import pathlib
import pty
import re
import shutil
import tempfile

import cli

# ESC as such, its 8-bit form in UTF-8 and alone, a bell, and a line break that would fake a line
DEMO = os.path.join(cli.ROOT, "models", "demo.gguf")
NASTY = b"a\x1b[31mb\xc2\x9b2Jc\x9bd\x07e\nweft: error: f"
CONTROLS = [b"\x1b", b"\xc2\x9b", b"\x9b", b"\x07", b"\nweft: error: f"]


class Terminal(cli.TestCase):
    def harmless(self, *args, shown=b"\\x1b[31m", **more):
        p = cli.subprocess.run([cli.WEFT.encode(), *args], capture_output=True, timeout=240, **more)
        for control in CONTROLS:
            self.assertNotIn(control, p.stdout + p.stderr, args)
        self.assertIn(shown, p.stdout + p.stderr, args)
        return p

    def test_paths_and_words(self):
        nasty = b"/absent/" + NASTY
        cpu = [b"--device", b"cpu"]
        for args in ([b"info", b"-m", nasty], [b"run", b"-m", nasty], [b"run", b"--" + NASTY], [NASTY], [b"run", b"--device", NASTY],
                     [b"run", b"--chat-template", NASTY, b"-p", b"a"], [b"run", *cpu, b"-p", b"a", b"--timeline", nasty],
                     [b"run", *cpu, b"-p", b"a", b"--plan", nasty], [b"serve", b"--host", NASTY, b"--port", b"0"],
                     [b"serve", b"--api-key-file", nasty, b"--port", b"0"]):
            self.assertNotEqual(self.harmless(*args).returncode, 0)

    def test_a_model_file(self):
        """Metadata of a file, its name, and the names of tensors."""
        model = pathlib.Path(cli.data("stories260K.gguf")).read_bytes()
        name = b"\x1b[31m\xc2\x9b2J\x07x"
        self.assertEqual(len(name), len(b"stories260K"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder.encode(), NASTY.replace(b"/", b"") + b".gguf")
            pathlib.Path(os.fsdecode(path)).write_bytes(model.replace(b"stories260K", name, 1))
            p = self.harmless(b"info", b"-m", path, b"-v", shown=b"\\x1b[31m\\xc2\\x9b2J\\x07x")
            self.assertEqual(p.returncode, 0, p.stderr)
            with open(path, "wb") as f:  # a tensor's name, which is then unknown
                f.write(model.replace(b"blk.0.attn_norm.weight", b"blk.0.attn_norm\x1b[31mxy", 1))
            self.assertEqual(self.harmless(b"run", b"-m", path, b"-p", b"a").returncode, cli.MODEL)

    def test_outputs_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = (os.path.join(folder, "absent", "x"), folder, "/dev/full")
            for args in (["run", "-p", "a", "-n", 2, "--timeline"], ["run", "-p", "a", "-n", 2, "WEFT_DUMP_PLAN="], ["plan", "WEFT_DUMP_PLAN="],
                         ["perplexity", "--tokens", "1,2,3", "--logits"], ["calibrate", "-p", "One day there was a little girl who had a red ball.", "-o"],
                         ["convert", "-m", DEMO, "--type", "Q8_0", "-o"]):
                for path in bad:
                    with self.subTest(args=args, path=path):
                        last = [args[-1] + path] if args[-1].endswith("=") else [args[-1], path]
                        r = cli.weft(args[0], *(cli.CPU if args[0] != "convert" else ()), *args[1:-1], *last)
                        self.assertEqual(r.code, cli.RUNTIME, r.err)
                        self.assertIn(f"cannot write {path}: ", r.err)

    def test_a_file_that_is_no_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.gguf")
            shutil.copyfile(__file__, path)
            self.fails(cli.MODEL, path, "run", "-m", path, "-p", "a")


class Progress(cli.TestCase):
    """Work without an end in sight, until its bar is there."""
    def shows(self, bar, *args):
        ours, theirs = pty.openpty()
        p = cli.subprocess.Popen(cli.argv(*args), stdin=cli.subprocess.DEVNULL, stdout=cli.subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        text = b""
        while not re.search(bar, text):
            try:
                text += os.read(ours, 4096)
            except OSError:
                break  # it has ended
        p.kill()
        p.wait()
        os.close(ours)
        self.assertRegex(text, bar)

    def test_bars(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.npy")
            slow = ["WEFT_FORCE=gemm=ref,attention=ref"]
            text = os.path.join(folder, "text")
            pathlib.Path(text).write_text("One day there was a little girl. " * 40000, encoding="utf-8")
            self.shows(rb"perplexity \[[#.]+\] +\d+ %", "perplexity", *cli.CPU, *slow, "--tokens", "1" + ",2" * 9999, "--logits", path)
            self.shows(rb"perplexity \[[#.]+\] +\d+ %", "perplexity", *cli.CPU, *slow, "-f", text, "-c", 10000)

    def test_no_terminal(self):
        r = self.ok("selftest", *cli.CPU)
        self.assertEqual(r.err, "")


if __name__ == "__main__":
    cli.main()
