"""Sampling that nobody asked for: the model's, else weft's default; what the command line says goes before both."""
import json
import os
import pathlib
import re
import shutil
import tempfile

import cli

LLAMA = os.path.join(cli.ROOT, "tests", "model", "data", "llama")
NEUTRAL = "temp 1, top-k 0, top-p 1, min-p 0, repeat-penalty 1 (default)"


class Sampling(cli.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.temp, self.n = temp.name, 0

    def folder(self, config):
        """The folder of a model with this generation_config.json; None: with none."""
        self.n += 1
        path = os.path.join(self.temp, f"model{self.n}")
        shutil.copytree(LLAMA, path)
        os.unlink(os.path.join(path, "generation_config.json"))
        if config is not None:
            with open(os.path.join(path, "generation_config.json"), "w") as f:
                json.dump(config, f)
        return path

    def file(self, **keys):
        """A GGUF file that states these."""
        shape = dict(width=64, layers=1, heads=2, kv_heads=2, head_dim=32, ffn=64, vocab=300, context=64)
        f = cli.model_of_holes(shape, "F32", change=lambda w: [w.add(f"general.sampling.{key}", value) for key, value in keys.items()])
        self.addCleanup(f.close)
        return f.name

    def info(self, path):
        """The lines about sampling, and the warnings."""
        r = self.ok("info", path)
        named = {"model's": "the model's", "default": "default"}
        return [f"{said} ({named[who]})" for who, said in re.findall("(?m)^(model's|default) sampling (.*)$", r.text)], r.err

    def test_folders(self):
        ids = {"eos_token_id": 257, "_from_model_config": True}
        for config, want in ((None, [NEUTRAL]), (ids, [NEUTRAL]),
                             ({"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": None},
                              ["temp 0.6, top-k 20, top-p 0.95 (the model's)", "min-p 0, repeat-penalty 1 (default)"]),
                             ({"do_sample": False, "temperature": 0.6}, ["temp 0 (the model's)", "top-k 0, top-p 1, min-p 0, repeat-penalty 1 (default)"]),
                             ({"temperature": 0.6, "repetition_penalty": 1.1}, ["temp 0, repeat-penalty 1.1 (the model's)", "top-k 0, top-p 1, min-p 0 (default)"]),
                             ({"do_sample": True}, [NEUTRAL]), ({"do_sample": True, "top_k": -1}, ["top-k 0 (the model's)", NEUTRAL.replace("top-k 0, ", "")])):
            self.assertEqual(self.info(self.folder(config)), (want, ""), config)

    def test_a_converted_model_keeps_it(self):
        out = os.path.join(self.temp, "out.gguf")
        for config in ({"do_sample": True, "temperature": 0.6, "top_k": 20}, {"do_sample": False}):
            path = self.folder(config)
            self.ok("convert", "-m", path, "-o", out, "--type", "F16", "--force")
            self.assertEqual(self.info(out), self.info(path))

    def test_files(self):
        self.assertEqual(self.info(self.file()), ([NEUTRAL], ""))
        lines, _ = self.info(self.file(temp=0.8, top_k=40, top_p=0.9, min_p=0.05, penalty_repeat=1.1, mirostat=2))
        self.assertEqual(lines, ["temp 0.8, top-k 40, top-p 0.9, min-p 0.05, repeat-penalty 1.1 (the model's)"])

    def test_repeat_last_n_is_shown_where_it_is_stated(self):
        lines, _ = self.info(self.file(penalty_repeat=1.1, penalty_last_n=64))
        self.assertEqual(lines[0], "repeat-penalty 1.1, repeat-last-n 64 (the model's)")

    def test_bad_advice_is_not_followed(self):
        for keys, key in (({"temp": -1.0}, "temp"), ({"top_p": 1.5}, "top_p"), ({"top_k": 2.5}, "top_k"), ({"temp": "hot"}, "temp"), ({"min_p": float("nan")}, "min_p")):
            lines, err = self.info(self.file(**keys))
            self.assertEqual(lines, [NEUTRAL], keys)
            self.assertRegex(err, rf"general.sampling.{key} is no (whole )?number from .*: it is ignored")
        lines, err = self.info(self.folder({"do_sample": True, "temperature": "hot", "top_p": 7}))
        self.assertEqual(lines, [NEUTRAL])
        self.assertIn("'top_p' of generation_config.json is no number from", err)
        self.assertIn("'temperature' of generation_config.json is no number from", err)

    def test_chats_take_the_fields(self):
        """Where the model states none; completions and requests keep the neutral one."""
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            cli.write_with_template(f, cli.open_text(cli.CHATML))
            self.assertEqual(self.info(f.name)[0], [NEUTRAL])
            self.assertIn("chat's sampling  temp 0.8, top-k 40, top-p 0.95, min-p 0.05, repeat-penalty 1 (", self.ok("info", f.name).text)
            said = [*cli.CPU, "-m", f.name, "--chat", "-n", 1]
            self.assertIn("sampling: temp 0.8, top-k 40, top-p 0.95, min-p 0.05\n", self.ok("run", *said, stdin=b"/info\n").err)
            self.assertIn("sampling: temp 0.8, top-k 3, top-p 0.95, min-p 0.05\n", self.ok("run", *said, "--top-k", 3, stdin=b"/info\n").err)
        self.assertNotIn("chat's", self.ok("info", self.file()).text)

    def written(self, *args, env=None):
        r = self.ok("run", *cli.CPU, "-p", "One day", "-n", 12, "--seed", 5, *args, env=env)
        return r.out

    def test_who_goes_before_whom(self):
        """Options before settings, settings before the model, the model before the default."""
        greedy, hot = self.folder({"do_sample": False}), self.folder({"do_sample": True, "temperature": 1.5})
        best, drawn = self.written(greedy), self.written(hot)
        self.assertNotEqual(best, drawn)
        self.assertEqual(self.written(hot, "--greedy"), best)
        self.assertEqual(self.written(hot, "--temp", 0.7, "--temp", 0), best)
        self.assertEqual(self.written(greedy, "--temp", 1.5), drawn)
        self.assertEqual(self.written(self.folder(None)), self.written(hot, "--temp", 1))
        settings = os.path.join(self.temp, "weft.conf")
        for line, want in (("temp = 1.5", drawn), ("greedy", best)):
            pathlib.Path(settings).write_text(line + "\n")
            env = {"WEFT_CONFIG": settings}
            for model in (greedy, hot):
                self.assertEqual(self.written(model, env=env), want)
                self.assertEqual(self.written(model, "--greedy", env=env), best)
                self.assertEqual(self.written(model, "--temp", 1.5, env=env), drawn)

    def test_the_seed_is_said_where_there_is_one(self):
        run = ["run", *cli.CPU, "-p", "One day", "-n", 2]
        self.assertRegex(self.ok(*run).err, r"(?m)^weft: seed \d+$")
        self.assertNotIn("seed", self.ok(*run, "--greedy").err)
        drawn = self.ok(*run, "-s", -1, "--temp", 2).err  # llama.cpp's word for a random one
        seed = re.search(r"(?m)^weft: seed (\d+)$", drawn)[1]
        self.assertNotIn(f"weft: seed {seed}\n", self.ok(*run, "--seed=-1", "--temp", 2).err)
        self.assertNotIn("seed", self.ok(*run, "--seed", -1, "--seed", 3).err)

    def test_top_p_0_is_greedy(self):
        run = ["run", *cli.CPU, "-p", "One day", "-n", 12, "-q"]
        self.assertEqual(self.ok(*run, "--top-p", 0, "--temp", 3).out, self.ok(*run, "--greedy").out)

    def test_greedy_is_another_word(self):
        """For a temperature of 0: the last one counts, of options and of settings."""
        run = ("run", *cli.CPU, "-p", "One day", "-n", 1)
        for args, drawn in ((["--greedy"], False), (["--temp", 0.7, "--greedy"], False), (["--greedy", "--temp", 0.7], True)):
            self.assertEqual("seed" in self.ok(*run, *args).err, drawn, args)
        self.fails(cli.USAGE, "takes no value", *run, "--greedy=1")


if __name__ == "__main__":
    cli.main()
