"""What requests get that do not say it: sampling of the model or of the command line; and what the server says of itself at its start."""
import json
import os
import shutil
import tempfile

import serve
from serve import Server, cli

LLAMA = os.path.join(cli.ROOT, "tests", "model", "data", "llama")


class Sampling(serve.cli.TestCase):
    def setUp(self):
        self.seen = set()

    def model(self, config):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        path = os.path.join(temp.name, "model")
        shutil.copytree(LLAMA, path)
        with open(os.path.join(path, "generation_config.json"), "w") as f:
            json.dump(config, f)
        return path

    def check(self, server, sampling, **same):
        """What it says, and that a request without these fields is one with them."""
        self.assertEqual(server.get("/v1/models").json["data"][0]["default_sampling"], {
            "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1, "repeat_last_n": 0, "presence_penalty": 0, "frequency_penalty": 0, **same})
        self.assertEqual(server.line("sampling of requests that do not say it: (.*)").group(1), sampling)
        ask = {"prompt": "One day", "max_tokens": 12, "seed": 4}
        plain = server.post("/v1/completions", ask).text
        self.assertEqual(plain, server.post("/v1/completions", {**ask, **same}).text)
        server.end()
        return plain

    def test_defaults(self):
        plain = self.check(Server(), "temp 1")
        other = self.check(Server("--temp", 1.5, "--top-p", 0.95, "--presence-penalty", 0.5), "temp 1.5, top-p 0.95, presence-penalty 0.5",
                           temperature=1.5, top_p=0.95, presence_penalty=0.5)
        self.assertNotEqual(other, plain)
        self.check(Server("--greedy"), "greedy", temperature=0)
        self.check(Server("--repeat-penalty", 1.5, "--repeat-last-n", 4), "temp 1, repeat-penalty 1.5, repeat-last-n 4", repetition_penalty=1.5, repeat_last_n=4)

    def test_one_rule_for_all_commands(self):
        """`weft run` and requests, by option or by field, write the same; over more tokens than other programs' window of 64 has."""
        s = Server()
        for args, fields in (([], {}), (["--repeat-last-n", 64], {"repeat_last_n": 64}), (["--repeat-last-n", 5], {"repeat_last_n": 5}), (["--frequency-penalty", 2], {"frequency_penalty": 2})):
            run = cli.weft("run", *serve.ON_CPU, "--greedy", "-q", "-p", "One day", "-n", 120, "--ignore-eos", "--repeat-penalty", 1.3, *args)
            want = run.text.removesuffix("\n")
            answers = {name: s.complete(max_tokens=120, ignore_eos=True, **{name: 1.3}, **fields).text for name in ("repetition_penalty", "repeat_penalty")}
            self.assertEqual({name: text.removesuffix("\n") for name, text in answers.items()}, dict.fromkeys(answers, want), args)
            self.assertNotIn(want, self.seen)
            self.seen.add(want)
        s.end()

    def test_of_the_model(self):
        model = self.model({"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1})
        own = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1}
        self.check(Server(model), "temp 0.6, top-k 20, top-p 0.95, repeat-penalty 1.1", **own)
        self.check(Server(model, "--temp", 2, "--top-k", 0), "temp 2, top-p 0.95, repeat-penalty 1.1", **{**own, "temperature": 2, "top_k": 0})


class Templates(serve.TestCase):
    def test_what_cannot_chat_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            shutil.copytree(LLAMA, model)
            for template, why in ((None, "this model has no chat template"), ("{% frobnicate %}", "line 1, column 4")):
                if template:
                    with open(os.path.join(model, "chat_template.jinja"), "w") as f:
                        f.write(template)
                s = Server(model, template=None)
                self.assertIn(why, s.line("no chats: (.*)").group(1))
                e = self.refused(s.chat(), 400, "messages", "not_supported")
                self.assertIn(why, e["message"])
                self.assertEqual(s.get("/v1/models").json["data"][0]["capabilities"], ["completion"])
                self.assertEqual(s.complete().status, 200)
                s.end()
        s = Server()
        self.assertEqual([line for line in s.lines if "no chats" in line], [])
        s.end()


if __name__ == "__main__":
    cli.main()
