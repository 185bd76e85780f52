"""Anthropic's Messages API: by its official client, and against what a chat of ours is for the same conversation."""
import json
import os
import tempfile

import answers
import serve
import test_fair
import test_thoughts as thoughts
import test_tool_calls as calls

ANSWERS = {
    "A": [thoughts.THINK, "\nHm, \u00e9.\n", thoughts.THOUGHT, "\n\nYes."],
    "B": ["Let me see.\n" + calls.OPEN + calls.F + calls.SHUT + "\n" + calls.OPEN + calls.G + calls.SHUT],
    "C": ["One, two, three."],
    "L": [calls.OPEN + calls.LONG.replace("y\u00e9" * 500, "y\u00e9" * 400) + calls.SHUT],
}
# All that a template is given becomes tokens, mostly one a byte: two conversations with as many of them say the same.
TEMPLATE = "{# <tool_call> </think> #}{% if tools %}{{ tools | tojson }}{% endif %}{{ messages | tojson }}{{ enable_thinking }}{{ messages[-1].content }}"
TOOL = {"name": "f", "description": "It does.", "input_schema": {"type": "object", "properties": {"x": {"type": "string"}}}}
OWN_TOOL = {"type": "function", "function": {"name": "f", "description": "It does.", "parameters": TOOL["input_schema"]}}


class Case(serve.TestCase):
    """With a model that says what the test wants."""
    ARGS = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model, template = (os.path.join(cls.folder.name, name) for name in ("answers.gguf", "t.jinja"))
        answers.write(model, ANSWERS, control=(thoughts.THINK, thoughts.THOUGHT), size=4)
        with open(template, "w", encoding="utf-8") as f:
            f.write(TEMPLATE)
        cls.s = serve.Server("-m", model, *cls.ARGS, template=template)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()


class Messages(Case):
    def setUp(self):
        try:
            import anthropic
        except ImportError:
            self.skipTest("the Python package anthropic is not installed")
        self.errors = anthropic
        self.client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{self.s.port}", api_key="none", max_retries=0)

    def ask(self, letter, **fields):
        return {"model": "", "max_tokens": 400, "messages": [{"role": "user", "content": letter}], **fields}

    def check(self, letter, reason, content, sequence=None, **fields):
        """What the client makes of an answer, whole and streamed; its usage."""
        whole = self.client.messages.create(**self.ask(letter, **fields))
        with self.client.messages.stream(**self.ask(letter, **fields)) as stream:
            kinds = [e.type for e in stream]
            streamed = stream.get_final_message()
        for m in (whole, streamed):
            self.assertEqual([b.model_dump(include={"type", "text", "thinking", "name", "input"}, exclude_none=True) for b in m.content], content)
            self.assertEqual((m.stop_reason, m.stop_sequence, m.role, m.type), (reason, sequence, "assistant", "message"))
            self.assertRegex(m.id, "^msg_[0-9a-f]{32}$")
        self.assertEqual(streamed.usage.output_tokens, whole.usage.output_tokens)
        total = [m.usage.input_tokens + m.usage.cache_read_input_tokens for m in (whole, streamed)]
        self.assertEqual(*total)
        self.assertEqual((kinds[0], kinds[-1]), ("message_start", "message_stop"))
        return total[0]

    def test_answers(self):
        text, call = {"type": "text", "text": "Let me see.\n"}, {"type": "tool_use", "name": "f", "input": {"x": "\u00e9 }"}}
        self.check("C", "end_turn", [{"type": "text", "text": "One, two, three."}])
        self.check("C", "max_tokens", [{"type": "text", "text": "One,"}], max_tokens=1)
        self.check("C", "stop_sequence", [{"type": "text", "text": "One, "}], "two", stop_sequences=["zwei", "two"])
        self.check("A", "end_turn", [{"type": "thinking", "thinking": "Hm, \u00e9."}, {"type": "text", "text": "Yes."}])
        self.check("B", "tool_use", [text, call, {"type": "tool_use", "name": "g", "input": {}}], tools=[TOOL])
        self.check("B", "tool_use", [text, call], tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
        self.check("B", "end_turn", [{"type": "text", "text": "".join(ANSWERS["B"])}], tools=[TOOL], tool_choice={"type": "none"})
        self.check("L", "tool_use", [{"type": "tool_use", "name": "f", "input": {"x": "y\u00e9" * 400}}], tools=[TOOL])
        self.check("C", "end_turn", [{"type": "text", "text": "One, two, three."}], max_tokens=20_000)  # more than the context holds

    def test_calls_that_have_to_come(self):
        small = {"name": "f", "input_schema": {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}}
        for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "f"}):
            m = self.client.messages.create(**self.ask("C", tools=[small], tool_choice=choice))
            self.assertEqual(([(b.type, b.name) for b in m.content], m.stop_reason), ([("tool_use", "f")], "tool_use"))
            self.assertIn(m.content[0].input, ({"n": 1}, {"n": 2}))

    def test_format(self):
        schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
        m = self.client.messages.create(**self.ask("C", output_config={"format": {"type": "json_schema", "schema": schema}}))
        self.assertIn(json.loads(m.content[0].text), ({"n": 1}, {"n": 2}))

    def test_conversations(self):
        """Each becomes what a chat of ours is."""
        user, said = {"role": "user", "content": "C"}, {"type": "text", "text": "Hm"}
        use = {"type": "tool_use", "id": "i1", "name": "f", "input": {"x": "1"}}
        own_call = {"id": "i1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": \"1\"}"}}
        for fields, own in (
                ({"system": "Be."}, {"messages": [{"role": "system", "content": "Be."}, user]}),
                ({"system": [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "."}]},
                 {"messages": [{"role": "system", "content": "Be."}, user]}),
                ({"system": "", "tools": [{**TOOL, "type": "custom"}]}, {"messages": [user], "tools": [OWN_TOOL]}),
                ({"messages": [user, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}, said, use]},
                               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i1", "content": "4"}, {"type": "text", "text": "C"}]}], "tools": [TOOL]},
                 {"messages": [user, {"role": "assistant", "content": "Hm", "reasoning_content": "Hm.", "tool_calls": [own_call]},
                               {"role": "tool", "tool_call_id": "i1", "content": "4"}, user], "tools": [OWN_TOOL]}),
                ({"messages": [user, {"role": "assistant", "content": [use]}, {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "i1", "is_error": False, "content": [{"type": "text", "text": "4C"}]}]}]},
                 {"messages": [user, {"role": "assistant", "tool_calls": [own_call]}, {"role": "tool", "tool_call_id": "i1", "content": "4C"}]}),
                ({"messages": [user, {"role": "assistant", "content": "So"}]}, {"messages": [user, {"role": "assistant", "content": "So"}]}),
                ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"messages": [user], "reasoning_effort": "high"}),
                ({"thinking": {"type": "disabled"}}, {"messages": [user], "enable_thinking": False})):
            want = self.s.post("/v1/chat/completions", {"max_tokens": 1, **own})
            self.assertEqual(want.status, 200, want.body)
            want = want.json["usage"]["prompt_tokens"]
            ask = self.ask("C", **{"max_tokens": 1, **fields})
            usage = self.client.messages.create(**ask).usage
            counted = self.client.messages.count_tokens(**{k: v for k, v in ask.items() if k != "max_tokens"}).input_tokens
            self.assertEqual((usage.input_tokens + usage.cache_read_input_tokens, counted), (want, want), fields)

    def test_refused(self):
        """By name, in Anthropic's form."""
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
        for fields, word in (
                ({"messages": [{"role": "user", "content": [image]}]}, "'image' is not supported"),
                ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [image]}]}]}, "'image' is not supported"),
                ({"messages": [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}]}, "'redacted_thinking'"),
                ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'web_search_20250305'"),
                ({"tools": [{**TOOL, "defer_loading": True}]}, "defer_loading"),
                ({"tools": [{"name": "f"}]}, "input_schema"),
                ({"tool_choice": {"type": "some"}}, "tool_choice"),
                ({"tool_choice": {"type": "any"}}, "needs tools"),
                ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "disable_parallel_tool_use"),
                ({"thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}}, "thinking"),
                ({"thinking": 5}, "thinking"),
                ({"system": 5}, "system"), ({"system": [image]}, "'image'"), ({"messages": []}, "messages"), ({"messages": 5}, "messages"),
                ({"stop_sequences": "x"}, "stop_sequences"), ({"stop_sequences": [""]}, "empty"),
                ({"extra_body": {"n": 2}}, "n is not supported"), ({"extra_body": {"stop": ["x"]}}, "stop_sequences"),
                ({"extra_body": {"frobnicate": 1}}, "frobnicate"), ({"extra_body": {"output_config": 1}}, "output_config"),
                ({"extra_body": {"output_config": {"format": {"type": "regex"}}}}, "json_schema"),
                ({"max_tokens": 0}, "max_tokens"), ({"extra_body": {"temperature": -1}}, "temperature")):
            with self.subTest(fields):
                with self.assertRaises(self.errors.BadRequestError) as e:
                    self.client.messages.create(**self.ask("C", **fields))
                self.assertEqual((set(e.exception.body), e.exception.body["type"]), ({"type", "error"}, "error"))
                self.assertEqual(e.exception.body["error"]["type"], "invalid_request_error")
                self.assertIn(word, e.exception.body["error"]["message"])
        r = self.s.post("/v1/messages", {"messages": [{"role": "user", "content": "C"}]})
        self.assertEqual((r.status, r.error), (400, {"type": "invalid_request_error", "message": "max_tokens is missing"}))
        with self.assertRaises(self.errors.NotFoundError) as e:
            self.client.messages.create(**self.ask("C", model="claude"))
        self.assertEqual(e.exception.body["error"]["type"], "not_found_error")


class Waiting(serve.TestCase):
    """Keys come as the client sends them; a stream that waits is told so, and one that takes too long says why."""
    ARGS = (*test_fair.SLOW, "--api-key", "secret", "--max-num-seqs", "1", "--request-timeout", "4", {"beat": 1})

    PATH, ASK = "/v1/messages?beta=true", {"max_tokens": 1, "messages": [{"role": "user", "content": "C"}]}

    def post(self, headers, **fields):
        return self.s.request("POST", self.PATH, {**self.ASK, **fields}, headers)

    def test_keys(self):
        r = self.post({"anthropic-version": "2023-06-01"})
        self.assertEqual((r.status, r.error["type"]), (401, "authentication_error"))
        for headers in ({"X-Api-Key": "secret"}, {"Authorization": "Bearer secret"}):
            self.assertEqual(self.post({**headers, "anthropic-version": "2023-06-01"}).json["stop_reason"], "max_tokens")

    def test_waiting(self):
        key = {"X-Api-Key": "secret"}
        first, _ = self.s.open_stream(key, **test_fair.LONG)
        text = self.post(key, stream=True).body.decode()
        first.close()
        events = [[line.split(": ", 1)[1] for line in e.split("\n")] for e in text.split("\n\n")[:-1] if e != ": waiting"]
        self.assertEqual([name for name, _ in events], [json.loads(data)["type"] for _, data in events])
        self.check_events(events)

    def check_events(self, events):
        names = [name for name, _ in events]
        self.assertEqual((names[0], names[-1], set(names[1:-1])), ("message_start", "error", {"ping"}))
        self.assertEqual(json.loads(events[-1][1])["error"]["type"], "timeout_error")


if __name__ == "__main__":
    serve.main()
