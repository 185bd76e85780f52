"""Options set for all runs: WEFT_MODEL, WEFT_DEVICE, the settings file; and the folder of models."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import cli
from cli import MODEL, USAGE

DEMO = os.path.join(cli.ROOT, "models", "demo.gguf")


class TestCase(cli.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name
        self.home = {"HOME": self.folder, "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": ""}

    def put(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        pathlib.Path(path).write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


class Settings(TestCase):
    def test_variables(self):
        want = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", 5)
        self.fails(MODEL, "/absent", "run", "-p", "x", env={"WEFT_MODEL": "/absent"})
        self.fails(cli.DEVICE, "no-such-device", "run", "-p", "x", env={"WEFT_DEVICE": "no-such-device"})
        env = {"WEFT_MODEL": "/absent", "WEFT_DEVICE": "no-such-device"}
        for words in (["-m", DEMO, "-p", "One day"], [DEMO, "One day"]):  # what is typed goes before
            self.assertEqual(self.ok("run", *words, "-n", 5, *cli.GREEDY, env=env).out, want.out)
        self.assertEqual(self.ok("run", "-p", "One day", "--greedy", "-n", 5, env={"WEFT_MODEL": "", "WEFT_DEVICE": "cpu"}).out, want.out)

    def test_file(self):
        path = self.put("weft.conf", f"# a comment\n\n  n-predict = 5\ndevice cpu\nmodel={DEMO}\nport = 1\nlog-json\nno-prefix-cache = off\n")
        env = {"WEFT_CONFIG": path}
        want = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", 5).out
        self.assertEqual(self.ok("run", "-p", "One day", "--greedy", env=env).out, want)
        self.assertEqual(self.ok("run", "-p", "One day", "--greedy", "-n", 5, env={**env, "XDG_CONFIG_HOME": "/absent"}).out, want)
        short = self.ok("run", "-p", "One day", "--greedy", "-n", 2, env=env).out  # the command line goes before
        self.assertTrue(len(short) < len(want))
        self.fails(cli.DEVICE, "no-such-device", "run", "-p", "x", env={**env, "WEFT_DEVICE": "no-such-device"})  # and variables

    def test_values(self):
        """Comments, quotes, ~, what editors put in front and at the ends of lines, and the names of other programs."""
        path = self.put("weft.conf", b"\xef\xbb\xbfnum_predict = 5 # a comment\r\n-c 64\t# one\r\nmodel = ~/my model.gguf\r\njinja\r\nmin-p=0.25\r\n"
                        b"served-model-name = \"model #1\"  # one\r\nmetrics-prefix = a#b\r\n")
        os.symlink(DEMO, os.path.join(self.folder, "my model.gguf"))
        env = {"WEFT_CONFIG": path, "HOME": self.folder}
        text = self.ok("config", env=env).text
        for name, value, line in (("n-predict", "5", 1), ("ctx-size", "64", 2), ("model", f"{self.folder}/my model.gguf", 3), ("min-p", "0.25", 5),
                                  ("served-model-name", "model #1", 6), ("metrics-prefix", "a#b", 7)):
            self.assertIn(f"{name} = {value}  # {path}:{line}\n", text)
        self.assertEqual(self.ok("run", "-p", "One day", *cli.GREEDY, env=env).out, self.ok("run", *cli.GREEDY, "-n", 5, "-p", "One day").out)
        self.fails(USAGE, f"{path}:3: model: there is no HOME to take for ~", "run", "x", env={**env, "HOME": ""})
        self.assertIn("system =   # ", self.ok("config", env={"WEFT_CONFIG": self.put("weft.conf", "system = ''")}).text)  # an empty text

    def test_where_the_file_is(self):
        self.put(".config/weft/weft.conf", "n-predict = 1\n")
        self.put("other/weft/weft.conf", "n-predict = 2\n")
        for env, n in ((dict(self.home), 1), ({**self.home, "XDG_CONFIG_HOME": os.path.join(self.folder, "other")}, 2)):
            r = self.without_own("run", *cli.GREEDY, "-p", "One day", env=env)
            self.assertIn(f"generated {n} tokens", r.err)
        self.fails(cli.RUNTIME, "/absent", "run", "-p", "x", env={"WEFT_CONFIG": "/absent"})

    def without_own(self, *args, env):
        """Without WEFT_CONFIG, which keeps the file of whoever tests out of all other tests."""
        own = os.environ.pop("WEFT_CONFIG", None)
        try:
            return self.ok(*args, env=env)
        finally:
            if own is not None:
                os.environ["WEFT_CONFIG"] = own

    def test_wrong(self):
        for text, told in (("frob = 1", "1: there is no option 'frob'; `weft help COMMAND`"), ("\nhelp = on", "2: there is no option 'help' for all runs: it only holds where it is typed, so leave the line out\n"),
                           ("ctx-szie = 1", "1: there is no option 'ctx-szie'; did you mean ctx-size"), ("ignore-eos = perhaps", "1: ignore-eos: expected on or off, got 'perhaps'"),
                           ("profile = times", "1: profile: expected on or off, got 'times'; --profile PROFILE is an option of `weft tune` that is only set where it is typed\n"),
                           ("jinja = off", "1: jinja: expected on, got 'off': weft always does it"), ("metrics = perhaps", "1: metrics: expected on, got 'perhaps'"),
                           ("\r\nngl = 0", "2: ngl: weft puts all layers on one device"), ("--num_gpu_blocks_override 9", "1: num_gpu_blocks_override: `weft serve` takes"),
                           ("temp = hot", "1: --temp: expected a number from 0 to 100, got 'hot'"), ("temperature = hot # or not", "1: --temp: expected a number from 0 to 100, got 'hot'"),
                           ("temp =", "1: temp needs a value: T"), ("temp", "1: temp needs a value: T"), ("system = # x", "1: system needs a value: TEXT"),
                           ("system = \"x", "1: system: a value that begins with a quote"), ("system = 'x' y", "1: system: a value that begins with a quote"),
                           ("temp = 1\ntop-k = 4\0", "2: there is a zero byte"), ("temp = 1\0\ntop-k = 4", "1: there is a zero byte"),
                           ("# " + "x" * 8191 + "\ntemp = 1", "1: the line is longer than 8192 bytes")):
            path = self.put("weft.conf", text)
            with self.subTest(text[:40]):
                self.fails(USAGE, f"{path}:{told}", "run", "-p", "x", env={"WEFT_CONFIG": path})
        self.assertRegex(self.ok("run", "--help", env={"WEFT_CONFIG": self.put("weft.conf", "frob")}).text, "^Usage")  # help always comes

    def test_applies_where_it_means_the_same(self):
        """--model of `bench serve` is a name in the API, and without -m `info` lists devices and `tune` takes --shape."""
        env = {"WEFT_MODEL": "/absent"}
        self.assertRegex(self.ok("info", env=env).text, r"(?m)^cpu$")
        self.fails(MODEL, "/absent", "tokenize", "x", env=env)
        self.assertIn("-m is required", self.fails(USAGE, "", "convert", "--type", "Q8_0", "-o", os.path.join(self.folder, "x"), env=env).err)
        self.assertNotIn("conflict", cli.weft("bench", "--shape", "absent", *cli.CPU, env=env).err)
        self.assertNotIn("/absent", cli.weft("bench", "serve", "--port", 1, "--num-prompts", 1, env=env).err)
        env = {"WEFT_CONFIG": self.put("weft.conf", "dataset = /absent\nctx-size = 64\ndeterministic\nmax-num-seqs = 2\n")}  # of loads, and of engines
        self.ok("tune", *cli.CPU, "--shape", "N=8,K=32", "WEFT_TUNE_SIZE=1", "-r", 1, "-f", os.path.join(self.folder, "x.tune"), env=env)

    def test_what_is_typed_or_piped_goes_before(self):
        """A setting that conflicts with something typed is left out."""
        text = self.put("text", "One day")
        env = {"WEFT_CONFIG": self.put("weft.conf", "quiet\nprompt = Bob\nn-predict = 5\ngreedy\ndevice = cpu\n")}
        of_file = {"WEFT_CONFIG": self.put("file.conf", f"file = {self.put('other', 'Bob')}\nn-predict = 5\ngreedy\ndevice = cpu\nshape = absent\n")}
        want = self.ok("run", *cli.GREEDY, "-n", 5, "-p", "One day").out
        with self.subTest("-v"):
            self.assertIn("tokens/s", self.ok("run", "-v", "-p", "One day", env=env).err)
        for words in (["-f", text], ["-p", "One day"]):
            with self.subTest(words):
                self.assertEqual(self.ok("run", *words, env=env).out, want)
                self.assertEqual(self.ok("run", *words, env=of_file).out, want)
        for which in (env, of_file):
            self.assertEqual(self.ok("run", stdin=b"One day", env=which).out, want)
            ids = self.ok("tokenize", "One day", env=which).text
            self.assertEqual(ids, self.ok("tokenize", "One day").text)
            self.assertEqual(self.ok("detokenize", *ids.split(), env=which).out, self.ok("detokenize", *ids.split()).out)
            r = subprocess.run([cli.WEFT, "run"], stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, **which}, check=True)  # nothing typed nor piped
            self.assertEqual(r.stdout, self.ok("run", *cli.GREEDY, "-n", 5, "-p", "Bob").out)

    def test_needs_another(self):
        """A setting that needs an option that is not there is left out; one whose option is set as well holds."""
        quick = ["-p", 8, "-n", 0, "-r", 1, *cli.CPU]
        env = {"WEFT_CONFIG": self.put("weft.conf", "type = Q8_0\nctx-size = 64\nlogits = x\n")}
        self.ok("bench", *quick, env=env)
        self.assertRegex(self.ok("info", env=env).text, r"(?m)^cpu$")
        self.ok("kernels", env=env)
        logits = os.path.join(self.folder, "logits.npy")
        self.ok("perplexity", *cli.CPU, env={"WEFT_CONFIG": self.put("both.conf", f"tokens = 1,2,3\nlogits = {logits}\n")})
        self.assertTrue(os.path.exists(logits))
        shape = {"WEFT_CONFIG": self.put("shape.conf", "shape = absent\ntype = Q8_0\n")}
        self.ok("bench", "-m", DEMO, *quick, env=shape)  # type goes with the shape that -m goes before

    def test_config_prints_what_holds_and_where_from(self):
        path = self.put("weft.conf", "temp = 0.5\ndevice = gpu\ntemp = 0.7\n")
        env = {"WEFT_CONFIG": path, "WEFT_DEVICE": "cpu", "WEFT_MODELS": "/absent"}
        text = self.ok("config", env=env).text
        self.assertIn(f"# settings file  {path}\n", text)
        self.assertIn("# models         /absent (not there)\n", text)
        self.assertIn(f"temp = 0.7  # {path}:3\n", text)
        self.assertIn("device = cpu  # $WEFT_DEVICE\n", text)
        self.assertEqual(len(re.findall("(?m)^[a-z]", text)), 2)
        self.assertIn("# settings file  none\n", self.ok("config", env={"WEFT_CONFIG": ""}).text)


    def test_config_says_which_values_cannot_be(self):
        path = self.put("weft.conf", "temp = hot\ntop-k = 4\nport = 99999\nn-predict = -5\n")
        r = cli.weft("config", env={"WEFT_CONFIG": path})
        self.assertEqual(r.code, USAGE)
        self.assertIn(f"top-k = 4  # {path}:2\n", r.text)
        self.assertEqual(re.findall(rf"weft config: {path}:(\d): --([\w-]+): expected ", r.err), [("1", "temp"), ("3", "port"), ("4", "n-predict")])

    def test_version_needs_no_settings(self):
        for text in ("frob = 1", "temp = hot", "quiet = perhaps"):
            path = self.put("weft.conf", text)
            self.assertRegex(self.ok("version", env={"WEFT_CONFIG": path}).text, "^weft ")
            self.fails(USAGE, path, "run", "-p", "x", env={"WEFT_CONFIG": path})


class Models(TestCase):
    def setUp(self):
        super().setUp()
        self.models = os.path.join(self.folder, "models")
        os.mkdir(self.models)
        self.env = {"WEFT_MODELS": self.models}

    def test_by_name(self):
        shutil.copyfile(DEMO, os.path.join(self.models, "story.gguf"))
        want = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", 5).out
        for name in ("story", "story.gguf"):
            self.assertEqual(self.ok("run", name, "One day", "-n", 5, *cli.GREEDY, env=self.env).out, want)
        self.assertEqual(self.ok("run", "One day", "-n", 5, *cli.GREEDY, "-m", "story", env=self.env).out, want)
        self.assertEqual(self.ok("run", "-p", "One day", "--greedy", "-n", 5, *cli.GREEDY, env={**self.env, "WEFT_MODEL": "story"}).out, want)
        self.assertIn(os.path.join(self.models, "story.gguf"), self.ok("info", "story", env=self.env).text)
        self.fails(MODEL, "by its name in `weft list`", "run", "stroy", env=self.env)
        self.fails(MODEL, "./story", "run", "./story", env=self.env)  # a path is a path

    def test_list(self):
        empty = self.ok("list", env=self.env)
        self.assertEqual(empty.out, b"")
        self.assertIn(f"no models in {self.models}: put GGUF files", empty.err)
        size = os.path.getsize(DEMO)
        shutil.copyfile(DEMO, os.path.join(self.models, "story.gguf"))
        for part in (1, 2, 3):
            self.put(f"models/big-0000{part}-of-00003.gguf", "x" * 1024)
        self.put("models/llama/config.json", "{}")
        self.put("models/llama/model.safetensors", "x" * 2046)
        self.put("models/notes.txt", "x")
        self.put("models/.hidden.gguf", "x")
        self.put("models/nothing/x", "x")
        rows = [line.split() for line in self.ok("list", env=self.env).text.splitlines()]
        self.assertEqual([row[:-1] for row in rows[1:]], [["big-00001-of-00003", "GGUF", "3.00", "KiB"], ["llama", "safetensors", "2.00", "KiB"],
                                                          ["story", "GGUF", f"{size / 2**20:.2f}", "MiB"]])
        self.assertTrue(all(re.fullmatch(r"\d{4}-\d\d-\d\d", row[-1]) for row in rows[1:]))

    def test_a_file_is_no_folder(self):
        self.fails(USAGE, f"{DEMO} is no folder: WEFT_MODELS names the folder of models", "list", env={"WEFT_MODELS": DEMO})

    def test_where_the_folder_is(self):
        self.put(".local/share/weft/models/a.gguf", "x")
        self.put("other/weft/models/b.gguf", "x")
        self.assertRegex(self.ok("list", env={**self.home, "WEFT_MODELS": ""}).text, r"(?m)^a ")
        self.assertRegex(self.ok("list", env={**self.home, "XDG_DATA_HOME": os.path.join(self.folder, "other"), "WEFT_MODELS": ""}).text, r"(?m)^b ")


if __name__ == "__main__":
    cli.main()
