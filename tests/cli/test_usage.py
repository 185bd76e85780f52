"""Help, and what happens when the command line or a file is wrong."""
import json
import os
import pathlib
import re
import shlex
import tempfile

import cli
from cli import MODEL, RUNTIME, USAGE, weft

COMMANDS = ["run", "serve", "info", "convert", "tokenize", "detokenize", "template", "perplexity", "bench", "bench ops", "bench throughput", "bench serve", "bench ablation", "tune", "calibrate", "plan", "simulate", "selftest", "report", "kernels", "pull", "list", "ps", "kv", "config", "version"]


DEMO = os.path.join(cli.ROOT, "models", "demo.gguf")


class Help(cli.TestCase):
    def test_top(self):
        for word in ("--help", "-h"):
            r = self.ok(word)
            for name in COMMANDS:
                self.assertRegex(r.text, rf"(?m)^  {name} ")
            for code in (0, 1, 2, 3, 4, 5, 130):
                self.assertRegex(r.text, rf"(?m)^  {code}\s")
            self.assertLessEqual(max(map(len, r.text.splitlines())), 80)
            self.assertEqual(r.err, "")

    def test_every_command(self):
        for name in COMMANDS:
            for word in ("--help", "-h"):
                r = self.ok(*name.split(), word)
                self.assertTrue(r.text.startswith(f"Usage: weft {name} "), r.text)
                self.assertIn("--help", r.text)
                self.assertLessEqual(max(map(len, r.text.splitlines())), 80)

    def test_help_as_a_command(self):
        self.assertEqual(self.ok("help").text, self.ok("--help").text)
        for name in COMMANDS:
            self.assertEqual(self.ok("help", *name.split()).text, self.ok(*name.split(), "--help").text)
        for word in ("help", "--help", "-h"):
            self.assertEqual(self.ok("help", word).text, self.ok("--help").text)

    def test_every_documented_option_is_known(self):
        """To the first command that has it: help and parsing go by the same rows."""
        first = {}
        for name in COMMANDS:
            for option in re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", self.ok(*name.split(), "--help").text):
                first.setdefault(option, name)
        self.assertGreater(len(first), 100)
        for option, name in first.items():
            r = weft(*name.split(), option, "--help", "--help")  # a value, or help at once
            self.assertNotIn("unknown option", r.err, f"{name} {option}")

    def test_advanced_options_have_their_heading(self):
        text = self.ok("run", "--help").text
        advanced = text[text.index("\nAdvanced:"):]
        for option in ("--nano-batches", "--plan", "--timeline", "--calibration", "--attention-windows"):
            self.assertIn(f"  {option}", advanced)

    def test_few_options(self):
        """Names of all commands together. What only measuring and testing need is a variable."""
        options = {o["name"] for c in json.loads(self.ok("--tables").text) for g in c["groups"] for o in g["options"]}
        self.assertLessEqual(len(options), 115, sorted(options))
        code = set(re.findall(r'\{0, "(WEFT_\w+)"', cli.open_text("src/cli/environment.c")))
        self.assertEqual(code, set(re.findall(r"(?m)^  (WEFT_\w+)=", self.ok("help", "variables").text)))
        self.assertEqual({name for name in options if name.startswith("WEFT")}, set())

    def test_variables(self):
        """Read as options are; on and off are understood of those without a value."""
        self.assertEqual(self.ok("version", "WEFT_POISON=off", "WEFT_MAX_ALLOC=").text, self.ok("version").text)

    def test_version(self):
        for words in (["--version"], ["version"]):
            self.assertRegex(self.ok(*words).text, r"^weft \d+\.\d+\.\d+ \(\S+\)\n$")

    def test_list_devices(self):
        self.assertRegex(self.ok("--list-devices").text, r"(?m)^cpu ")

    def test_info_devices(self):
        text = self.ok("info").text
        self.assertRegex(text, r"(?m)^cpu$")
        self.assertRegex(text, r"(?m)^  tiers +base")


    def test_info_of_a_shape(self):
        text = self.ok("info", "--shape", "llama3-8b").text
        self.assertTrue(text.startswith("shape            llama3-8b (no file)\n"), text)
        self.assertNotIn("safetensors", text)
        text = self.ok("info", "--shape", "llama-1.1b", "--type", "Q8_0", "WEFT_LAYERS=3").text
        self.assertRegex(text, r"(?m)^layers +3$")
        self.assertRegex(text, r"(?m)^formats +Q8_0 ")
        for name, params in (("gpt3-175b", 174604259328), ("opt-6.7b", 6658465792), ("llama-33b", 32528943616), ("qwen1.5-7b", 7721324544),
                             ("qwen1.5-72b", 72287920128), ("qwen2-72b", 72706203648), ("deepseek-67b", 67425001472)):
            self.assertIn(f"({params})", self.ok("info", "--shape", name).text)  # as their files have, GPT-3 as GPT-2 would

    def test_a_shape_has_no_file_to_read_again(self):
        r = self.fails(1, "the weights need", "bench", "--shape", "llama3-70b", "WEFT_LAYERS=900", "--type", "F32", "--device", "cpu")
        self.assertNotIn("from the file", r.err)

    def test_convert_writes_no_standard_output(self):
        self.assertFalse(os.path.exists("-"))

    def test_a_named_device_loads_no_driver_of_others(self):
        """The loader of OpenCL opens every driver that there is, which takes longer than a short run on the CPU."""
        with tempfile.TemporaryDirectory() as vendors:
            pathlib.Path(os.path.join(vendors, "absent.icd")).write_text("libweft-absent-driver.so\n")
            seen = {}
            for device in ("cpu", "CPU", "auto"):
                env = {"OCL_ICD_VENDORS": vendors, "LD_DEBUG": "libs"}
                seen[device] = "libweft-absent-driver.so" in self.ok("run", "-p", "x", "-n", 1, "--device", device, env=env).err
        self.assertEqual((seen["cpu"], seen["CPU"]), (False, False))
        self.assertEqual(seen["auto"], os.environ.get("WEFT_HAS_OPENCL") != "0")

    def test_verbose_says_why_there_is_no_opencl(self):
        nowhere = {"OCL_ICD_VENDORS": "/nonexistent"}
        r = self.ok("info", "-v", env=nowhere)
        self.assertEqual(len(re.findall("no OpenCL platform|this build of weft has no OpenCL", r.err)), 1, r.err)
        self.assertEqual(self.ok("info", env=nowhere).err, "")


class Wrong(cli.TestCase):
    def test_refused(self):
        """The rows of refused.txt, which explains itself."""
        rows = [line.split("\t") for line in cli.open_text("tests/cli/refused.txt").splitlines() if line and line[0] != "#"]
        self.assertGreater(len(rows), 90)
        for how, message, words in rows:
            with self.subTest(words):
                code, *more = how.split()
                r = self.fails(int(code), message.replace("\\n", "\n"), *shlex.split(words))
                if "help" in more:
                    self.assertIn("--help`", r.err)
                if "meant" in more:
                    self.assertNotIn("expected", r.err)

    def usage(self, message, *args):
        r = self.fails(USAGE, message, *args)
        self.assertIn("--help`", r.err)

    def test_help_behind_a_command(self):
        for command in ("run", "serve", "info", "plan", "bench", "bench ops", "pull"):
            self.assertEqual(self.ok(*command.split(), "help").text, self.ok(*command.split(), "--help").text)
        self.assertNotIn("Usage", self.ok("tokenize", "help").text)
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(DEMO, os.path.join(folder, "help"))
            self.assertIn("demo", self.ok("info", "help", cwd=folder).text)

    def test_options(self):
        for name in ("info", "plan", "bench", "bench ablation"):
            self.usage("--shape and -m conflict", *name.split(), "-m", DEMO, "--shape", "llama3-8b")

    def test_numbers(self):
        for option in ("-n", "-c", "-t", "--top-k", "--seed"):  # those of a kind are read alike: one of them meets all
            for value in ("", "x", "1x", "1.5", "99999999999999999999999", " 1", "0x10") if option in ("-n", "--seed") else ("1.5",):
                self.fails(USAGE, "--", "run", option, value)
        for option in ("--temp", "--top-p", "--min-p", "--repeat-penalty"):
            for value in ("", "x", "1x", "nan", "inf", "-1", "1e999") if option == "--temp" else ("nan", "-1"):
                self.fails(USAGE, option, "run", option, value)
        for option, value in (("-c", "-1"), ("-t", "0"), ("-n", "-2"), ("--top-p", "1.1"), ("--top-p", "-0.1"), ("--seed", "-2"),
                              ("--seed", "18446744073709551616"), ("--top-k", "-1"), ("--temp", "99999")):
            self.fails(USAGE, "--", "run", option, value)
        for option, values, allowed in (("--repeat-penalty", ("0", "2.1"), "0.001 to 2"), ("--presence-penalty", ("-2.1", "3"), "-2 to 2"),
                                        ("--frequency-penalty", ("-2.1", "3"), "-2 to 2")):
            for value in values:  # what requests may ask for (tests/serve/test_bad.py)
                for command in ("run", "serve"):
                    self.fails(USAGE, f"{option}: expected a number from {allowed}, got '{value}'", command, option, value)
        for value in ("x", "0", "1X", "1KK", "-1", "99999999999T"):  # an empty one is none
            self.fails(USAGE, "$WEFT_MAX_ALLOC", "run", "-p", "x", f"WEFT_MAX_ALLOC={value}")
        for value in ("", ",", "1,", "1,,2", "-1", "1;2", "4294967296"):
            self.fails(USAGE, "--n-prompt", "bench", "-p", value)

    def test_detokenize(self):
        for word in ("x", "1.5", "99999999999"):
            self.usage(f"'{word}'", "detokenize", word)


class Meant(cli.TestCase):
    """Mistyped words, and words of other programs, are answered with what was meant."""

    def says(self, message, *args):
        r = self.fails(USAGE, message, *args)
        self.assertNotIn("expected", r.err)

    def test_commands(self):
        for typed, meant in (("rnu", "run"), ("sever", "serve"), ("tokenise", "tokenize or detokenize"), ("tok", "tokenize"), ("bnech", "bench"), ("hlp", "help"), ("hepl", "help")):
            self.says(f"'{typed}'; did you mean {meant}?", typed)
            self.says(f"'{typed}'; did you mean {meant}?", "help", typed)
        self.says("`weft run FILE`", __file__)
        for typed, meant in (("srve", "serve"), ("throuput", "throughput"), ("ablaton", "ablation"), ("op", "ops")):
            self.fails(USAGE, f"unexpected argument '{typed}'; did you mean {meant}?", "bench", typed)
        for typed, meant in (("--verison", "--version"), ("--hlp", "--help"), ("-help", "--help"), ("--list-device", "--list-devices")):
            self.says(f"'{typed}'; did you mean {meant}?\n", typed)
        for option in ("-m", "--temp"):
            self.says("`weft run -m model.gguf", option, "model.gguf")

    def test_options(self):
        for typed, meant in (("--tmp", "--temp or --tp"), ("--modle", "--model"), ("--top", "--tp, --top-k or --top-p"), ("--chat-templates", "--chat-template"), ("-prmpt", "--prompt"), ("--ctx-sze=3", "--ctx-size"),
                             ("--temprature", "--temperature"), ("--max-tokns", "--max-tokens")):  # names in other programs, too
            self.says(f"unknown option {typed.split('=')[0]}; did you mean {meant}?", "run", typed)

    def test_letters_and_values(self):
        """What stands behind a letter is a number or another option, never a text."""
        want = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", "5").out
        for typed in (["-n5"], ["-n=5"], ["-n-predict", 5], ["-n-predict=5"], ["--n_predict", 5]):
            self.assertEqual(self.ok("run", *cli.GREEDY, "-p", "One day", *typed).out, want)
        self.assertEqual(self.ok("tokenize", "--prompt=-p").out, self.ok("tokenize", stdin=b"-p").out)
        self.assertEqual(self.ok("tokenize", "-p", "- item").out, self.ok("tokenize", stdin=b"- item").out)


class OtherPrograms(cli.TestCase):
    """The table of what users of other programs type, row by row."""

    @classmethod
    def setUpClass(cls):
        text = cli.open_text("src/cli/foreign.def").split("*/", 1)[1]
        cls.rows = [(kind, typed.split("|"), (rest or "").replace('\\"', '"').replace("\\\\", "\\"))
                    for kind, typed, rest in re.findall(r'(?m)^(\w+)\("([^"]+)"(?:, "((?:[^"\\]|\\.)*)")*\)$', text)]
        cls.options = {}  # by command: names and letters with the argument's name
        for name in COMMANDS:
            text = cli.weft(*name.split(), "--help").text
            cls.options[name] = {o: arg for pair, arg in re.findall(r"(?m)^  ((?:-\w, )?--[\w-]+)(?: (\S+))?", text) for o in pair.split(", ")}

    def each(self, kind):
        rows = [(word, rest) for k, typed, rest in self.rows if k == kind for word in typed]
        self.assertTrue(rows)
        return rows

    def test_the_table_is_read_whole(self):
        text = cli.open_text("src/cli/foreign.def").split("*/", 1)[1]
        self.assertEqual(len(self.rows), len(re.findall(r"(?m)^\w", text)))
        typed = [(k == "COMMAND", word) for k, words, _ in self.rows for word in words]
        self.assertEqual(len(typed), len(set(typed)))
        for is_command, word in typed:
            if is_command:
                self.assertNotIn(word, COMMANDS)
            else:  # `run` or `serve` must know it from this table
                self.assertFalse(all(word in self.options[c] for c in ("run", "serve")), word)

    def test_same(self):
        for word, ours in self.each("SAME"):
            owners = [name for name in COMMANDS if f"--{ours}" in self.options[name] and word not in self.options[name]]
            self.assertTrue(owners, f"{word}: nobody has --{ours}")
            arg = self.options[owners[0]][f"--{ours}"]
            self.fails(USAGE, f"{word} needs a value: {arg}" if arg else f"{word} takes no value", *owners[0].split(), word if arg else word + "=1")
            stranger = next((name for name in COMMANDS if f"--{ours}" not in self.options[name] and word not in self.options[name]), None)
            if stranger:
                self.fails(USAGE, f"{word}: weft calls it --{ours}, an option of `weft ", *stranger.split(), word, 1)

    def test_keys_and_values_have_one_type(self):
        self.fails(USAGE, "-ctv f16: keys and values have one type, --kv-dtype, which is q8_0 already", "serve", "-ctk", "q8_0", "-ctv", "f16")
        self.fails(USAGE, "unexpected argument 'b'", "serve", "a", "b", "--kv-dtype", "f16", "-ctk", "f16", "-ctv", "f16")

    def test_parts(self):
        """Values of --allow, --temp and --experts by other names, with and without one of their own."""
        for word, part in self.each("PART"):
            if part == "-hf:":
                self.fails(USAGE, f"{word} needs a value: FILE", "run", word)  # test_pull.py does it
                continue
            name = "temp" if word == "--greedy" else "experts" if "moe" in word else "allow"
            self.fails(USAGE, f"{word} needs a value: {'DEVICE' if name == 'experts' else 'WHAT'}" if part[-1] == "=" else f"{word} takes no value", "serve", word if part[-1] == "=" else word + "=1")
            self.fails(USAGE, "unexpected argument 'b'", "serve", "a", "b", *([word, "x"] if part[-1] == "=" else [word]))
            if not word.startswith("--"):
                continue
            r = self.ok("config", env={"WEFT_CONFIG": "allow.conf"}, cwd=self.conf(word[2:] + (" = x" if part[-1] == "=" else "")))
            self.assertIn(f"\n{name} = {part}{'x' if part[-1] == '=' else ''}  # ", r.text)

    def conf(self, line):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        pathlib.Path(os.path.join(folder.name, "allow.conf")).write_text(line + "\n")
        return folder.name

    def test_already(self):
        for word, _ in self.each("ALREADY"):
            self.fails(USAGE, "unexpected argument 'word'", "selftest", word, "word")

    def test_answers(self):
        every = {o for options in self.options.values() for o in options}
        for i, (word, answer) in enumerate(self.each("ANSWER")):
            for option in re.findall(r"(?<![\w-])--?\w[\w-]*", answer):
                self.assertIn(option, every, f"{word}: {answer}")
            name = next(name for name in ("run", "serve", "bench", "info")[i % 4:] + ("run", "serve") if word not in self.options[name])
            self.fails(USAGE, f"{word}: {answer}\n", name, *([word, "99"] if i % 2 else [word + "=99"]))

    def test_harmless(self):
        """With the values of the row they are passed over, with others refused."""
        for typed, values, answer in re.findall(r'(?m)^HARMLESS\("([^"]+)", "([^"]*)", "((?:[^"\\]|\\.)*)"\)$', cli.open_text("src/cli/foreign.def")):
            for word in typed.split("|"):
                for value in ["99"] if values[:1] == "!" else values.split("|"):
                    self.fails(USAGE, "unexpected argument 'b'", "serve", "a", "b", word, *([value] if value else []))
                if values != "!":
                    self.fails(USAGE, f"{word}: " + answer.replace("\\\\", "\\"), "serve", f"{word}={values[1:] if values[:1] == '!' else 'odd'}")

    def test_commands(self):
        for word, answer in self.each("COMMAND"):
            self.fails(USAGE, f"unknown command '{word}': {answer}\n", word)

    def test_as_people_type_it(self):
        for word in ("--dtype", "--no-jinja", "--reasoning", "--top-nsigma"):
            self.assertNotIn("unknown option", self.fails(USAGE, f"{word}: ", "run", word, "on").err)
        pasted = ["-ngl", 99, "-fa", "on", "--mlock", "--no-mmap", "--dtype", "auto", "--enforce-eager", "--trust-remote-code", "-b", 512, "-lv", -1, "-fa"]
        r = self.ok("run", *pasted, "-p", "One day", "-n", 1, *cli.CPU)
        self.assertEqual(re.findall("change nothing here: (.*)", r.err), ["-ngl 99, -fa on, --mlock, --no-mmap, --dtype auto, --enforce-eager, --trust-remote-code, -b 512, -lv -1, -fa"])
        self.assertNotIn("change nothing", self.ok("run", *pasted, "-q", "-p", "One day", "-n", 1, *cli.CPU).err)
        self.ok("run", "-fa", DEMO, "One day", "-n", 1, *cli.CPU)  # its value may be left out
        self.ok("run", "-p", "One day", "-n", 1, *cli.CPU, env={"WEFT_CONFIG": "allow.conf"}, cwd=self.conf("ngl = 99\nmlock\ndtype auto"))
        r = self.fails(USAGE, "weft run: -j: --json-schema FILE", "run", "-j", "x", "-ngl", 0, "--mlock", "--lora-scaled", "a.gguf", "-p", "x")
        self.assertEqual(len(re.findall("(?m)^weft run: -.*: ", r.err)), 3)  # all at once
        self.assertEqual(r.err.count("See `weft run --help`"), 1)
        for args in (["run", "--no-warmup", "--simple-io", "-p", "One day", "-n", 1, *cli.CPU], ["info", "--disable-log-stats", "--async-scheduling"]):
            self.ok(*args)
        draw = ["run", *cli.CPU, "-p", "One day", "-n", "8"]
        self.assertEqual(self.ok(*draw, "--temperature", 1, "-s", 3, "--max-model-len", 64).out, self.ok(*draw, "--temp", 1, "--seed", 3, "-c", 64).out)


    def test_context_of_the_model(self):
        """-c 0, as llama.cpp has it, is all of the model's own context; without -c it is at most 4096."""
        with open(DEMO, "rb") as f, tempfile.NamedTemporaryFile(suffix=".gguf") as long:
            key = b"llama.context_length\x04\0\0\0"
            demo = f.read()
            at = demo.index(key) + len(key)
            long.write(demo[:at] + (8192).to_bytes(4, "little") + demo[at + 4:])
            long.flush()
            run = ["run", "-m", long.name, "-p", "One day", "-n", 1, *cli.CPU]
            self.assertIn("the context is 4096 tokens", self.ok(*run).err)
            self.assertNotIn("the context is", self.ok(*run, "-c", 0).err)
            self.assertIn("less than one chunk of 8192", self.fails(USAGE, "", "perplexity", "-m", long.name, "-p", "One day", "-c", 0, *cli.CPU).err)
            self.assertRegex(self.ok("info", long.name, "-c", 0).text, r"memory need .* with a context of 8192 tokens \(one sequence\)\n")


class Files(cli.TestCase):
    def test_model_files(self):
        with tempfile.TemporaryDirectory() as folder:
            empty, text, fifo = (os.path.join(folder, n) for n in ("empty", "text", "fifo"))
            open(empty, "w").close()
            pathlib.Path(text).write_text("this is no model\n" * 100)
            os.mkfifo(fifo)
            for path in (empty, text, fifo, folder, "/dev/zero", os.path.join(folder, "absent")):
                for command in (["run", "-p", "x"], ["info"], ["tokenize", "-p", "x"], ["detokenize", "1"],
                                ["bench"], ["perplexity", "-p", "x"]):
                    self.fails(MODEL, path, *command, "-m", path)
                said = self.fails(MODEL, path, "convert", "-m", path, "-o", os.path.join(folder, "out"), "--type", "F16").err
                self.assertEqual(said, self.fails(MODEL, path, "info", "-m", path).err)

    def test_pipes_in_folders(self):
        """A pipe in the place of any file of a folder is refused by its name. Nothing waits for somebody who writes to it."""
        for name in ("config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, name)
                for other in ("config.json", "tokenizer.json"):
                    pathlib.Path(os.path.join(folder, other)).write_text("{}")
                if os.path.exists(path):
                    os.unlink(path)
                os.mkfifo(path)
                for command in (["info"], ["run", "-p", "x"], ["convert", "-o", os.path.join(folder, "out"), "--type", "F16"]):
                    self.fails(MODEL, "", *command, "-m", folder)

    def test_converting_to_no_file(self):
        """What is wrong with the output is not the model's fault."""
        with tempfile.TemporaryDirectory() as folder:
            for out in (folder, os.path.join(folder, "absent", "out")):
                self.fails(1, "cannot write " + out, "convert", "-m", DEMO, "-o", out, "--type", "F16")

    def test_what_helps(self):
        """An error names the command that helps with a folder, and says what a file is that is no model."""
        demo = pathlib.Path(DEMO).read_bytes()
        with tempfile.TemporaryDirectory() as folder:
            def put(name, content):
                path = os.path.join(folder, name)
                pathlib.Path(path).write_bytes(content)
                return path
            self.assertIn("`weft pull` fetches one", self.fails(MODEL, "holds no model", "run", folder).err)
            lists = "`weft list` lists your models, and `weft pull` fetches one"
            for content, what in ((b"GGUF\1\0\0\0", "it is of the first version of GGUF: convert the original model anew, with `weft convert`"), (b"\x7fELF", lists), (b"", lists),
                                  (b"Once upon a time\n", "it is a text, which `weft run MODEL -f FILE` continues; " + lists)):
                self.assertIn("\nweft: " + what, self.fails(MODEL, "", "run", put("other", content)).err)
            os.remove(os.path.join(folder, "other"))
            for name, content, what in (("a", b"version https://git-lfs.github.com/spec/v1\n", "`git lfs pull`"), ("b", b"<!DOCTYPE html>\n", "a web page"),
                                        ("c", b"PK\3\4....", "safetensors"), ("d", b"\x80\2}q", "safetensors"), ("e", b"tjgg....", "before GGUF")):
                self.assertIn(what, self.fails(MODEL, "not a GGUF file", "run", put(name, content)).err)
            first = put("a.gguf", demo)
            self.fails(MODEL, f"holds a GGUF file: pass that, {first}", "run", folder)
            put("b.gguf", demo)
            self.fails(MODEL, f"holds 2 GGUF files: pass one of them, such as {first}", "run", folder)
            put("config.json", b'{"architectures": ["MambaForCausalLM"]}')
            self.fails(MODEL, "architecture 'MambaForCausalLM' is not supported", "run", folder)
            config = put("config.json", b"{}")
            self.fails(MODEL, "there is no tokenizer.json", "run", folder)
            for path in (config, put("model.safetensors", b"")):
                self.fails(MODEL, f"`weft run {folder}` runs the folder that it lies in", "run", path)
        self.assertNotIn("first word", self.fails(MODEL, "/absent", "run", "-m", "/absent").err)

    def test_unsupported_architecture(self):
        """Its file is described, and its vocabulary works."""
        demo = pathlib.Path(DEMO).read_bytes()
        key = b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0"
        self.assertEqual(demo.count(key + b"llama"), 1)
        with tempfile.NamedTemporaryFile() as f:
            f.write(demo.replace(key + b"llama", key + b"mamba"))
            f.flush()
            self.assertIn(f"`weft info {f.name}` shows", self.fails(MODEL, "architecture 'mamba' is not supported", "run", f.name).err)
            r = weft("info", f.name)
            self.assertEqual(r.code, MODEL)
            self.assertNotIn("`weft info", r.err)  # which has just run
            self.assertIn("architecture 'mamba' is not supported", r.err)
            self.assertRegex(r.text, r"(?m)^architecture +mamba$")
            self.assertRegex(r.text, r"(?m)^formats +F16 ")
            self.assertNotRegex(r.text, r"(?m)^(layers|memory)")
            self.assertEqual(self.ok("tokenize", "-m", f.name, "One day").out, self.ok("tokenize", "One day").out)

    def test_folder_of_another_format(self):
        """`weft info` cannot read it either, so no command advises it."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (("config.json", "{}"), ("pytorch_model.bin", "x")):
                pathlib.Path(os.path.join(folder, name)).write_text(content)
            for command in ("info", "run"):
                self.assertNotIn("`weft info", self.fails(MODEL, "take the model's safetensors files", command, folder).err)

    def test_chat_template_question(self):
        for command in (["run"], ["serve"], ["template"]):
            self.assertRegex(self.ok(*command, "--chat-template", "?").text, r"(?s)takes a Jinja template in a file.*the built-in model has no template")

    def test_vocabulary_only(self):
        path = cli.data("vocab/llama-spm.gguf")
        self.fails(MODEL, "", "run", "-p", "x", "-m", path, *cli.CPU)
        self.assertIn("only a vocabulary", self.ok("info", "-m", path).text)

    def test_reader_that_left(self):
        """It is no failure; test_plan.py has the commands that need a profile."""
        for args in (["run", "-p", "One day", "-n", 5, *cli.CPU], ["tokenize", "x"], ["info"], ["info", DEMO, "-v"], ["kernels", *cli.CPU], ["config"], ["version"],
                     ["--help"], ["plan", *cli.CPU], ["plan", "--cost", "--on", "h200", "--shape", "llama3-8b"]):
            with self.subTest(args):
                r = cli.weft_unread(*args)
                self.assertEqual(r.code, 0, r.err)
                self.assertNotIn("error", r.err)

    def test_full_disk(self):
        for args in (["run", "-p", "One day", "-n", 5, *cli.CPU], ["tokenize", "x"], ["info"], ["kernels", *cli.CPU], ["config"], ["version"], ["--help"], ["plan", *cli.CPU]):
            with self.subTest(args), open("/dev/full", "wb") as full:
                r = weft(*args, stdout=full)
                self.assertEqual(r.code, RUNTIME)
                self.assertEqual(r.err.count("cannot write to standard output"), 1, r.err)


if cli.sanitized(b"libtsan.so"):
    del Meant, OtherPrograms  # words are read by one thread, and alike in each build


if __name__ == "__main__":
    cli.main()
