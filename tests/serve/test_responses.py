"""OpenAI's Responses API: by its official client, and against what a chat of ours is for the same conversation."""
import json
import typing

import serve
import test_anthropic
import test_tool_calls as calls
from test_anthropic import OWN_TOOL

TOOL = {"type": "function", **OWN_TOOL["function"], "strict": None}


class Responses(test_anthropic.Case):
    def setUp(self):
        try:
            import openai
        except ImportError:
            self.skipTest("the Python package openai is not installed")
        self.openai = openai
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.s.port}/v1", api_key="none", max_retries=0)

    @staticmethod
    def items(response):
        return [(i.type, i.content[0].text if i.type != "function_call" else (i.name, i.arguments)) for i in response.output]

    def check(self, letter, status, items, **fields):
        """What the client makes of an answer, whole, streamed, and put together from events; what is counted."""
        whole = self.client.responses.create(model="", input=letter, **fields)
        with self.client.responses.stream(model="", input=letter, **fields) as stream:
            helped = list(stream)
        events = list(self.client.responses.create(model="", input=letter, stream=True, **fields))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        self.assertEqual([e.type for e in events[:2]], ["response.created", "response.in_progress"])
        last = events[-1]
        self.assertEqual((last.type, helped[-1].type), ("response." + status,) * 2)
        for r in (whole, last.response, helped[-1].response):
            self.assertEqual((r.status, self.items(r)), (status, items))
            self.assertEqual(r.incomplete_details.reason if r.incomplete_details else None, None if status == "completed" else "max_output_tokens")
            self.assertRegex(r.id, "^resp_[0-9a-f]{32}$")
            self.assertEqual((r.usage.output_tokens, r.usage.total_tokens), (whole.usage.output_tokens, whole.usage.total_tokens))
        parts = {}
        for e in events:
            if e.type.endswith(".delta"):
                parts[e.output_index] = parts.get(e.output_index, "") + e.delta
        self.assertEqual([parts[i] for i in sorted(parts)], [text if isinstance(text, str) else text[1] for _, text in items])
        added = [e.item.id for e in events if e.type == "response.output_item.added"]
        self.assertEqual(added, [i.id for i in last.response.output])
        return whole

    def test_answers(self):
        f, g = ("function_call", calls.F_CALL), ("function_call", calls.G_CALL)
        r = self.check("C", "completed", [("message", "One, two, three.")])
        self.assertEqual((r.output_text, r.store), ("One, two, three.", False))
        self.check("C", "incomplete", [("message", "One,")], max_output_tokens=1)
        own = {"instructions": "Be.", "metadata": {"a": "b"}, "max_output_tokens": 9, "tool_choice": "none", "tools": [TOOL]}
        for fields in ({}, own):
            r = self.s.post("/v1/responses", {"input": "C", **fields}).json
            self.assertEqual({k: r[k] for k in own}, {"instructions": None, "metadata": {}, "max_output_tokens": None, "tool_choice": "auto", "tools": [], **fields})
        for wrong in ([], {"a": 1}, {"a": "b" * 513}, {"a" * 65: "b"}, {str(i): "" for i in range(17)}):
            self.assertEqual(self.s.post("/v1/responses", {"input": "C", "metadata": wrong}).status, 400, wrong)
        self.check("A", "completed", [("reasoning", "Hm, \u00e9."), ("message", "Yes.")], store=True, include=["reasoning.encrypted_content"])
        self.check("B", "completed", [("message", "Let me see.\n"), f, g], tools=[TOOL])
        self.check("B", "completed", [("message", "Let me see.\n"), f], tools=[TOOL], parallel_tool_calls=False)
        self.check("L", "completed", [("function_call", ("f", json.dumps({"x": "y\u00e9" * 400}, ensure_ascii=False)))], tools=[TOOL], max_output_tokens=10 ** 6)

    def test_classes(self):
        """Formats and tools that the client makes of classes."""
        import pydantic

        class Thing(pydantic.BaseModel):
            n: typing.Literal[1, 2]

        r = self.client.responses.parse(model="", input="C", text_format=Thing)
        self.assertIsInstance(r.output_parsed, Thing)
        ask = {"tools": [self.openai.pydantic_function_tool(Thing)], "parallel_tool_calls": False}
        for choice in ("required", {"type": "function", "name": "Thing"}):
            (call,) = self.client.responses.parse(model="", input="C", tool_choice=choice, **ask).output
            self.assertIsInstance(call.parsed_arguments, Thing)
        text = self.client.responses.create(model="", input="C", text={"format": {"type": "json_object"}}, max_output_tokens=20).output_text
        self.assertEqual(text.lstrip()[0], "{")

    def test_conversations(self):
        """Each becomes what a chat of ours is."""
        user = {"role": "user", "content": "C"}
        first, second = ({"type": "function_call", "call_id": c, "name": "f", "arguments": "{\"x\": 1}", "id": "fc_1", "status": "completed"} for c in "ij")
        own = [{"id": c, "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}} for c in "ij"]
        thought = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}], "encrypted_content": None}
        for fields, chat in (
                ({"instructions": "Be.", "input": "C"}, {"messages": [{"role": "system", "content": "Be."}, user]}),
                ({"input": [{"role": "developer", "content": "Be."}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "C"}]}]},
                 {"messages": [{"role": "system", "content": "Be."}, user]}),
                ({"input": [user, thought, {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "So", "annotations": []}]},
                            first, second, {"type": "function_call_output", "call_id": "i", "output": "4"},
                            {"type": "function_call_output", "call_id": "j", "output": [{"type": "input_text", "text": "5"}]}, user], "tools": [TOOL]},
                 {"messages": [user, {"role": "assistant", "content": "So", "reasoning_content": "Hm.", "tool_calls": own}, {"role": "tool", "tool_call_id": "i", "content": "4"},
                               {"role": "tool", "tool_call_id": "j", "content": "5"}, user], "tools": [OWN_TOOL]}),
                ({"input": [user, first, {"role": "assistant", "content": "So"}, user]},
                 {"messages": [user, {"role": "assistant", "tool_calls": own[:1]}, {"role": "assistant", "content": "So"}, user]}),
                ({"input": [user, {"role": "assistant", "content": "So"}]}, {"messages": [user, {"role": "assistant", "content": "So"}], "add_generation_prompt": True}),
                ({"input": "C", "reasoning": {"effort": "none", "summary": "auto"}}, {"messages": [user], "enable_thinking": False})):
            want = self.s.post("/v1/chat/completions", {"max_tokens": 1, **chat})
            self.assertEqual(want.status, 200, want.body)
            got = self.client.responses.create(model="", max_output_tokens=1, **fields).usage
            self.assertEqual(got.input_tokens, want.json["usage"]["prompt_tokens"], fields)

    def test_refused(self):
        user = {"role": "user", "content": "C"}
        for fields, param, word in (
                ({"previous_response_id": "resp_1"}, "previous_response_id", "whole conversation"),
                ({"conversation": "c"}, "conversation", "whole conversation"), ({"prompt": {"id": "p"}}, "prompt", "whole conversation"),
                ({"background": True}, "background", "leave it out"),
                ({"tools": [{"type": "web_search"}]}, "tools", "'web_search'"),
                ({"tools": 5}, "tools", "list"), ({"tools": [{"type": "function"}]}, "tools", "name"),
                ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice", "tool_choice must be"),
                ({"include": ["message.output_text.logprobs"]}, "include", "logprobs"),
                ({"input": [{"type": "item_reference", "id": "i"}]}, "input", "'item_reference'"),
                ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "messages", "'input_image'"),
                ({"input": [user, {"role": "user", "content": 5}]}, "input", "content"), ({"input": [5]}, "input", "item"),
                ({"input": []}, "input", "input"), ({"instructions": 5}, "instructions", "string"),
                ({"text": {"format": {"type": "grammar"}}}, "response_format", "grammar"), ({"text": {"frob": 1}}, "text", "frob"), ({"text": 5}, "text", "object"),
                ({"reasoning": {"frob": 1}}, "reasoning", "frob"), ({"top_logprobs": 2}, "top_logprobs", "leave it out"),
                ({"extra_body": {"max_tokens": 5}}, "max_tokens", "max_output_tokens"), ({"extra_body": {"frob": 5}}, "frob", "--allow-unknown-fields"),
                ({"max_output_tokens": 0}, "max_tokens", "at least 1"), ({"temperature": -1}, "temperature", "from 0")):
            with self.subTest(fields):
                with self.assertRaises(self.openai.BadRequestError) as e:
                    self.client.responses.create(**{"model": "", "input": "C", **fields})
                self.assertEqual(e.exception.param, param)
                self.assertIn(word, e.exception.message)


class Waiting(test_anthropic.Waiting):
    PATH, ASK = "/v1/responses", {"max_output_tokens": 1, "input": "C"}

    def test_keys(self):
        self.assertEqual(self.post({}).status, 401)
        self.assertEqual(self.post({"Authorization": "Bearer secret"}).json["status"], "incomplete")

    def check_events(self, events):
        names = [name for name, _ in events]
        self.assertEqual((names[:2], names[2:]), (["response.created", "response.in_progress"], ["response.failed"]))
        response = json.loads(events[-1][1])["response"]
        self.assertEqual((response["status"], response["error"]["code"]), ("failed", "server_error"))


if __name__ == "__main__":
    serve.main()
