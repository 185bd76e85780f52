"""Tools: what of a request reaches the chat template, and what is refused. Templates of these tests tell what they were given by the error that
they raise."""
import os
import tempfile
import unittest

import serve
from serve import Server

TELL = "{%- if messages[0].content == 'tell' %}{{ raise_exception('<' + (WHAT) + '>') }}{% endif %}"
TURNS = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}{{ CALL }}{% endfor %}\n{% endfor %}"
TOOLS = "{% if tools %}{{ tools | tojson }}\n{% endif %}"
AS_JSON, AS_OBJECT = "c.function | tojson", "c.function.name ~ (c.function.arguments | tojson)"
AS_TEXT, AS_PYTHON = "c.function.name + c.function.arguments", "c.function.name ~ c.function.arguments"


def function(name="f", **more):
    return {"type": "function", "function": {"name": name, **more}}


def call(arguments, name="f", **more):
    return {"role": "assistant", "tool_calls": [{"id": "abc", "type": "function", "function": {"name": name, "arguments": arguments}}], **more}


class Case(serve.cli.TestCase):
    refused = serve.TestCase.refused

    def server(self, template, *args):
        file = tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8")
        self.addCleanup(file.close)
        file.write(template)
        file.flush()
        self.s = Server(*args, template=file.name)
        self.addCleanup(lambda: self.assertEqual(self.s.end()[0], 0))
        return self.s

    def told(self, *turns, **fields):
        """What the template was given, as it says it."""
        e = self.refused(self.s.chat(messages=[{"role": "user", "content": "tell"}, *turns], **fields), 400, "messages")
        return e["message"].split("<", 1)[1].rsplit(">", 1)[0]


class Messages(Case):
    def test_all_members(self):
        self.server(TELL.replace("WHAT", "messages[1:] | tojson") + TOOLS + TURNS.replace("CALL", AS_JSON))
        want = '[{"role": "tool", "content": "a\\n\\"b\\"", "name": "f", "tool_call_id": "abc"}]'
        self.assertEqual(self.told({"role": "tool", "content": 'a\n"b"', "tool_call_id": "abc", "name": "f", "unknown": 1}), want)
        want = '[{"role": "assistant", "content": "", "reasoning_content": "so", "tool_calls": [{"type": "function", "id": "abc", "function": {"name": "f", "arguments": {"x": [1, 0.1, null, "é"]}}}]}]'
        self.assertEqual(self.told(call('{"x": [1, 0.1, null, "\\u00e9"]}', reasoning_content="so")), want)
        self.assertEqual(self.told(call({"x": [1, 0.1, None, "é"]}, reasoning_content="so", content=None)), want)
        for names in ({"reasoning": "so"}, {"reasoning": "so", "reasoning_content": "no"}, {"reasoning": "", "reasoning_content": "so"}):
            self.assertEqual(self.told(call('{"x": [1, 0.1, null, "\\u00e9"]}', **names)), want)
        former = [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"x": 1}'}}, {"role": "function", "name": "f", "content": "2"}]
        self.assertEqual(self.told(*former), '[{"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "call00001", "function": {"name": "f", "arguments": {"x": 1}}}]}, '
                         '{"role": "tool", "content": "2", "name": "f", "tool_call_id": "call00001"}]')
        self.assertIn('"arguments": {}', self.told(call("")))
        self.assertIn('"arguments": {}', self.told(call(None)))
        self.assertIn('"content": "ab"', self.told({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}))
        self.assertIn('"role": "system"', self.told({"role": "developer", "content": "x"}))

    def test_numbers_keep_their_digits(self):
        numbers = [0.1, 0.1234567890123456, 1.0000000000000002, 12345678901234567, 1 << 63, -10 ** 30 - 7]
        want = str(numbers)
        self.server(TELL.replace("WHAT", "(x or messages[1:] or tools) | tojson") + TOOLS + TURNS.replace("CALL", AS_JSON))
        self.assertEqual(self.told(chat_template_kwargs={"x": numbers}), want)
        self.assertIn(want, self.told(tools=[function(parameters={"enum": numbers})]))
        self.assertIn('"arguments": {"x": %s}' % want, self.told(call({"x": numbers})))
        self.assertIn('"arguments": {"x": %s}' % want, self.told(call(str({"x": numbers}).replace("'", '"'))))

    def test_developer(self):
        self.server("{# developer #}" + TELL.replace("WHAT", "messages[1].role"))
        self.assertEqual(self.told({"role": "developer", "content": "x"}), "developer")

    def test_arguments_as_templates_want_them(self):
        for wanted, seen in ((AS_OBJECT, "object"), (AS_TEXT, "text"), (AS_PYTHON, "text"), ("c.function.name", "object")):
            with self.subTest(wanted):
                self.server(TELL.replace("WHAT", "'text' if messages[1].tool_calls[0].function.arguments is string else 'object'") + TOOLS + TURNS.replace("CALL", wanted))
                self.assertEqual(self.told(call('{"x": 1}')), seen)
                self.assertEqual(self.told(call({"x": 1})), seen)

    def test_content_as_templates_want_it(self):
        with_none = "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}" + "{{ " + AS_OBJECT + " }}{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
        self.server(TELL.replace("WHAT", "messages[1:] | tojson") + with_none)
        self.assertIn('"content": null', self.told(call("{}", content=None)))
        self.assertIn('"content": "x"', self.told(call("{}", content="x")))
        self.assertIn('"content": ""', self.told({"role": "assistant", "content": None}, {"role": "user", "content": "x"}))
        self.server(TELL.replace("messages[0]", "messages[1]").replace("WHAT", "messages[2:] | tojson") + with_none)
        self.assertIn("tool_call", self.told(call("{}", content=None), tools=[function()]))  # calls as text are its content

    def test_refused(self):
        self.server(TURNS.replace("CALL", AS_JSON))
        for message in (5, {}, {"role": 1}, {"role": "frob", "content": "x"}, {"role": "user", "content": 5}, {"role": "user", "content": {"a": 1}},
                        {"role": "user", "content": ["x"]}, {"role": "user", "content": [{"type": "text"}]}, {"role": "user", "content": "x", "name": 5},
                        {"role": "tool", "content": "x", "tool_call_id": 5}, {"role": "assistant", "tool_calls": 5}, {"role": "assistant", "tool_calls": [5]},
                        {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}, {"role": "assistant", "content": "", "reasoning_content": []}, {"role": "assistant", "content": "", "reasoning": []},
                        {"role": "assistant", "function_call": 5}, {"role": "assistant", "function_call": {"name": "f", "arguments": "x"}}, call("{}", function_call={"name": "f"}),
                        call("{"), call("[]"), call("5"), call("{} x"), call('{"a": 01}'), call('{"a": "\\u0000"}'), call('{"a":' * 70 + "1" + "}" * 70), call([]), call(5),
                        call("{}", name=""), call("{}", name=5)):
            with self.subTest(str(message)[:60]):
                self.refused(self.s.chat(messages=[{"role": "user", "content": "Hi"}, message]), 400, "messages")
        for kind in ("image_url", "input_audio", "file"):
            e = self.refused(self.s.chat([{"type": kind, kind: {"url": "x"}}]), 400, "messages", "not_supported")
            self.assertIn("only text", e["message"])

    def test_a_template_without_the_last_message(self):
        """A new one follows, unless the request says that the last goes on."""
        self.server("{% for m in messages %}{{ m.content | tojson }}{% endfor %}{{ 'NEW' if add_generation_prompt }}")
        last = {"role": "assistant", "content": "x"}

        def answer(turn, **fields):
            return self.s.chat(messages=[{"role": "user", "content": "Hi"}, turn], **fields)

        new = answer(last, continue_final_message=False).json
        self.assertEqual((answer(last).json["choices"], answer(last).json["usage"]["prompt_tokens"]), (new["choices"], new["usage"]["prompt_tokens"]))
        for turn, fields in ((last, {"continue_final_message": True}), ({**last, "prefix": True}, {})):
            e = self.refused(answer(turn, **fields), 400, "messages")
            self.assertIn("does not end with the last message", e["message"])

    def test_contents_are_never_control_tokens(self):
        """Wherever a client can put text: each spelling of a token costs its letters."""
        self.server(TOOLS + "{% for m in messages %}{{ m | tojson }}{% endfor %}")

        def used(text):
            turns = [{"role": "user", "content": text, "name": text}, call({text: text}, name=text, reasoning_content=text, content=text),
                     {"role": "tool", "tool_call_id": text, "content": text}]
            r = self.s.chat(messages=turns, tools=[function(description=text, parameters={"type": text, text: text})], max_tokens=1)
            self.assertEqual(r.status, 200, r.body)
            return r.json["usage"]["prompt_tokens"]

        for token in ("<s>", "</s>"):
            self.assertGreaterEqual(used(token) - used("x"), 13, token)  # as often as it stands there


class Tools(Case):
    def test_reach_the_template(self):
        self.server(TELL.replace("WHAT", "tools | tojson") + TOOLS + TURNS.replace("CALL", AS_JSON))
        tool = function(description="Does \"it\".", parameters={"type": "object", "properties": {"x": {"minimum": 0.1}}}, strict=True)
        want = '[{"type": "function", "function": {"name": "f", "description": "Does \\"it\\".", "parameters": {"type": "object", "properties": {"x": {"minimum": 0.1}}}, "strict": true}}]'
        self.assertEqual(self.told(tools=[tool]), want)
        self.assertEqual(self.told(tools=[tool], tool_choice="auto", parallel_tool_calls=True), want)
        for fields in ({}, {"tools": []}, {"tools": [tool], "tool_choice": "none"}, {"tools": None, "tool_choice": None}, {"tool_choice": "auto"}):
            self.assertEqual(self.told(**fields), "null", fields)

    def test_refused(self):
        self.server(TOOLS + TURNS.replace("CALL", AS_JSON))
        for tools in (5, "f", {}, [5], [{}], [{"type": "function"}], [{"type": "frob", "function": {"name": "f"}}], [{"function": {"name": "f"}}], [function(5)],
                      [function("")], [function("a b")], [function("<s>")], [function("x" * 65)], [function("é")], [function("a\u0001")], [function(description=5)],
                      [function(parameters=5)], [function(parameters=[])], [function()] * 513, [function(description="x" * (1 << 20))]):
            with self.subTest(str(tools)[:60]):
                self.refused(self.s.chat(tools=tools), 400, "tools")
        self.assertEqual(self.s.chat(tools=[function("x" * 64, parameters=None, description=None)]).status, 200)
        tools = [function()]
        for choice in (5, "frob", {}, [], {"type": "function"}, {"type": "function", "function": {}}, {"type": "function", "function": {"name": "g"}}):
            self.refused(self.s.chat(tools=tools, tool_choice=choice), 400, "tool_choice")
        self.refused(self.s.chat(tools=[function(parameters={"uniqueItems": True})], tool_choice="required"), 400, code="not_supported")
        self.refused(self.s.chat(tool_choice="required"), 400, "tool_choice")
        self.refused(self.s.chat(tools=tools, parallel_tool_calls="no"), 400, "parallel_tool_calls")
        self.refused(self.s.complete(tools=tools), 400, "tools")

class Generic(Case):
    """Templates that know no tools, or no system messages: what the model is told all the same."""
    PLAIN = "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"
    STRICT = "{% for m in messages %}{% if m.role not in ('user', 'assistant') or (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles') }}{% endif %}[{{ m.role }}|{{ m.content }}]{% endfor %}"

    def seen(self, *turns, **fields):
        r = self.s.post("/tokenize", {"messages": list(turns), **fields})
        self.assertEqual(r.status, 200, r.body)
        return self.s.post("/detokenize", {"tokens": r.json["tokens"]}).json["content"].removeprefix("<s>").lstrip(" ")

    def test_tools(self):
        user, after = {"role": "user", "content": "Hi"}, [call('{"x": 1}', content="So"), {"role": "tool", "tool_call_id": "abc", "content": "5"}, {"role": "tool", "tool_call_id": "abd", "content": "6"}]
        written = '[assistant|So\n<tool_call>\n{"name":"f","arguments":{"x": 1}}\n</tool_call>][user|<tool_response>\n5\n</tool_response>\n\n<tool_response>\n6\n</tool_response>'
        told = r'<tools>\n{"type":"function","function":{"name":"f"}}\n</tools>\n.*</tool_call>'
        for template in (self.PLAIN, self.STRICT):
            self.server(template)
            self.s.line("knows no tools")
            self.assertEqual(self.seen(user, tools=[function()], tool_choice="none"), "[user|Hi]")
            self.assertEqual(self.seen(user, *after), "[user|Hi]" + written + "]")
            former = {"role": "assistant", "content": "So", "function_call": {"name": "f", "arguments": '{"x": 1}'}}, {"role": "function", "name": "f", "content": "5"}
            self.assertEqual(self.seen(user, *former), "[user|Hi]" + written[:written.index("\n\n")] + "]")
            self.assertEqual(self.seen(user, *after, user), "[user|Hi]" + written + "\n\nHi]")
            front, back = (r"\[system\|", r"\]\[user\|Hi\]") if template == self.PLAIN else (r"\[user\|", r"\n\nHi\]")
            self.assertRegex(self.seen(user, tools=[function()]), rf"(?s)^{front}You may .*{told}{back}$")
            both = self.seen({"role": "system", "content": "Be brief."}, user, tools=[function()])
            self.assertRegex(both, rf"(?s)^{front}(Be brief\.\n\nYou may .*{told}|You may .*{told}\n\nBe brief\.){back}$")
        long = "ab " * 600
        self.assertEqual(self.seen(user, call({"x": long}, content=None), {"role": "tool", "content": long}), '[user|Hi][assistant|<tool_call>\n{"name":"f","arguments":{"x":"%s"}}\n</tool_call>]' % long +
                         f"[user|<tool_response>\n{long}\n</tool_response>]")
        self.refused(self.s.chat(messages=[user, call("{")]), 400, "messages")

    def test_system(self):
        user, answer = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "assistant", "content": "So"}
        for template in (self.STRICT, "{% for m in messages if m.role != 'system' %}[{{ m.role }}|{{ m.content }}]{% endfor %}"):
            self.server(template)
            self.s.line("no system messages")
            for role in ("system", "developer"):
                brief = {"role": role, "content": "Be brief."}
                self.assertEqual(self.seen(brief, user, answer), "[user|Be brief.\n\nHi][assistant|So")
                self.assertEqual(self.seen(brief, user, answer, add_generation_prompt=False), "[user|Be brief.\n\nHi][assistant|So]")
                self.assertEqual(self.seen(user, answer, brief), "[user|Hi][assistant|So][user|Be brief.]")
                self.assertEqual(self.seen(brief), "[user|Be brief.]")
            long = "Be brief. " * 200
            self.assertEqual(self.seen({"role": "system", "content": long}, user), f"[user|{long}\n\nHi]")
            self.refused(self.s.chat(messages=[{"role": "system", "content": 5}, user]), 400, "messages")


class Thinking(Case):
    """What clients of other servers say of thoughts becomes the variables that a template reads."""
    OFF, ON = ({"thinking": {"type": "disabled"}}, {"enable_thinking": False}, {"think": False}, {"reasoning_effort": "none"}, {"reasoning": {"enabled": False}},
               {"reasoning": {"effort": "none", "exclude": False}}), ({"thinking": {"type": "enabled"}}, {"enable_thinking": True}, {"think": True}, {"reasoning": {"enabled": True}})

    def seen(self, **fields):
        messages = [{"role": "user", "content": "Hi"}]
        r, again = (self.s.post(path, {"messages": messages, **fields}) for path in ("/tokenize", "/v1/chat/completions"))
        self.assertEqual((r.status, again.status), (200, 200), r.body + again.body)
        self.assertEqual(again.json["usage"]["prompt_tokens"], r.json["count"])
        return self.s.post("/detokenize", {"tokens": r.json["tokens"]}).json["content"]

    def test_variables(self):
        for name, on, off in (("enable_thinking", "True", "False"), ("thinking", "True", "False"), ("thinking_mode", "enabled", "disabled"), ("reasoning", "True", "False")):
            self.server("{{ %s if %s is defined else 'unset' }}" % (name, name))
            self.assertIn("unset", self.seen())
            self.assertIn("unset", self.seen(thinking={"type": "auto"}))
            for fields in self.OFF:
                self.assertIn(off, self.seen(**fields), fields)
            for fields in (*self.ON, {"reasoning_effort": "high"}, {"think": "low"}):
                self.assertIn(on, self.seen(**fields), fields)
            self.assertIn("own", self.seen(enable_thinking=True, chat_template_kwargs={name: "own"}))

    def test_efforts(self):
        self.server("{{ reasoning_effort | default('unset') }}")
        for effort in ("none", "minimal", "low", "medium", "high"):
            for fields in ({"reasoning_effort": effort}, {"think": effort}, {"reasoning": {"effort": effort}}):
                self.assertIn(effort, self.seen(**fields))
        self.assertIn("unset", self.seen(enable_thinking=True))

    def test_without_variables(self):
        """What the model does anyway is taken: not to think, or to think."""
        for template, same, other in (("{{ messages[0].content }}", self.OFF, self.ON), ("{{ messages[0].content }}{# <think> </think> #}", self.ON, self.OFF)):
            self.server(template)
            for fields in (*same, {"reasoning_effort": "medium"}):
                self.assertIn("Hi", self.seen(**fields), fields)
            for fields in other:
                self.refused(self.s.chat(**fields), 400, next(iter(fields)), "unsupported_parameter")

    def test_refused(self):
        self.server("{{ enable_thinking }}")
        for fields in ({"thinking": 5}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": {"type": "frob"}}, {"reasoning": {"exclude": True}},
                       {"reasoning": {"max_tokens": 5}}, {"reasoning_effort": "frob"}, {"reasoning_effort": 5}, {"enable_thinking": "yes"}, {"think": "frob"}):
            self.refused(self.s.chat(**fields), 400, next(iter(fields)))
            self.refused(self.s.post("/tokenize", {"messages": [{"role": "user", "content": "Hi"}], **fields}), 400, next(iter(fields)))

    def test_tokens_of_a_chat(self):
        self.server(TOOLS + TURNS.replace("CALL", AS_JSON) + "{% if add_generation_prompt %}assistant:{% endif %}")
        self.assertIn("assistant:", self.seen(tools=[function("frob")]))
        chat = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": False, "return_token_strs": True}
        self.assertNotIn(":", self.s.post("/tokenize", chat).json["token_strs"][-2:])
        self.refused(self.s.post("/tokenize", {**chat, "messages": []}), 400, "messages")
        self.refused(self.s.post("/tokenize", {**chat, "frob": 1}), 400, "frob", "unsupported_parameter")
        self.refused(self.s.post("/detokenize", {"tokens": [1], "frob": 1}), 400, "frob", "unsupported_parameter")


class Real(Case):
    """Templates of models: which know tools, and how calls reach them."""

    def test_calls(self):
        folder = os.path.join(serve.cli.DATA, "templates") if serve.cli.DATA else ""
        if not os.path.isdir(folder):
            self.skipTest("no test data")
        for name in ("Qwen-Qwen3-0.6B", "meta-llama-Llama-3.2-3B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407", "meetkai-functionary-medium-v3.2"):
            with self.subTest(name), open(os.path.join(folder, name + ".jinja"), encoding="utf-8") as f:
                self.server(f.read())
                one = call('{"x": 1}')
                one["tool_calls"][0]["id"] = "abcdefghi"
                turns = [{"role": "user", "content": "Hi"}, one, {"role": "tool", "tool_call_id": "abcdefghi", "content": "2"}]
                r = self.s.chat(messages=turns, tools=[function(description="d", parameters={"type": "object", "properties": {}})], max_tokens=1)
                if r.status != 200:  # it was written, and is longer than the little model can read
                    self.assertEqual((r.status, r.error["code"]), (400, "context_length_exceeded"), r.body)


if __name__ == "__main__":
    serve.main()
