"""Drafts (--draft-max) change how long an answer takes, and nothing of it."""
import serve
from serve import Server, at_once

PROMPTS = ["Tom has a red ball. Lily has a red ball. Tom has", "One day, one day, one day, one", "1 2 3 1 2 3 1 2"]
MORE = [{"temperature": 0}, {"temperature": 0.8, "seed": 3}, {"temperature": 1, "seed": 4, "n": 3, "top_k": 20}, {"temperature": 0, "logprobs": 2},
        {"temperature": 0.5, "seed": 5, "repetition_penalty": 1.05}, {"temperature": 0, "stop": [" red", "big"]}, {"temperature": 0, "max_tokens": 2},
        {"temperature": 0, "guided_regex": "( (a|b|ab)){30}", "max_tokens": 200}, {"temperature": 0, "ignore_eos": True, "max_tokens": 400},
        {"prompt": [5, 6, 7, 5, 6, 7, 5, 6], "temperature": 0, "echo": True, "logprobs": 1}]
ARGS = ["--max-num-seqs", 16, "-c", 512, "--deterministic"]


def answers(server):
    """One after another, then all at the same time."""
    asked = [{"prompt": p, "max_tokens": 60, **m} for p in PROMPTS for m in MORE]

    def ask(i):
        reply = server.post("/v1/completions", asked[i])
        assert reply.status == 200, reply.body
        got[i] = [{k: c[k] for k in ("text", "finish_reason", "logprobs")} for c in reply.json["choices"]]

    got = {}
    for i in range(len(asked)):
        ask(i)
    alone, got = got, {}
    at_once(len(asked), ask)
    return alone, got


class Draft(serve.cli.TestCase):
    def test_same_answers(self):
        plain, busy = Server(*ARGS), Server(*ARGS, "--draft-max", 5, env={"WEFT_DRAFT_ALWAYS": "1"})
        try:
            want, got = answers(plain), answers(busy)
            self.assertEqual(want[0], got[0])
            self.assertEqual(want[0], got[1])
            seen = busy.metrics()
            drafted, accepted = (seen[f"spec_decode_num_{w}_tokens_total"] for w in ("draft", "accepted"))
            self.assertGreater(accepted, 200)
            self.assertGreater(drafted, accepted)
            self.assertEqual(plain.metrics()["spec_decode_num_draft_tokens_total"], 0)
        finally:
            plain.end()
            busy.end()

    def test_fewer_steps(self):
        """Where a text repeats itself, steps become fewer by the drafts that are accepted."""
        server = Server(*ARGS, "--draft-max", 8, env={"WEFT_DRAFT_ALWAYS": "1"})
        try:
            ask = {"prompt": "a", "guided_regex": "( (red|green|blue) ball){30}", "temperature": 0, "max_tokens": 120}
            tokens = server.post("/v1/completions", ask).json["usage"]["completion_tokens"]
            self.assertLess(server.metrics()["iteration_tokens_total_count"], 40)
            # Each step gives one token and those that are accepted, but for one that ends with an accepted one. They count behind the answer.
            for stop, least in ((" ball", 61), ("red", 62), (" ball", 64), ("l", 64), (" b", 65), ("l", 66)):
                tokens += server.post("/v1/completions", {**ask, "stop": stop, "min_tokens": least}).json["usage"]["completion_tokens"]

            def ended_with_drafts():
                now = server.metrics()
                return sum(now[k] for k in ("iteration_tokens_total_count", "spec_decode_num_accepted_tokens_total")) - tokens

            server.wait(lambda: ended_with_drafts() > 0, "the last draft counts")
        finally:
            server.end()


if __name__ == "__main__":
    serve.main()
