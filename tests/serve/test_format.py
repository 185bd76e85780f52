"""Answers that are kept to a schema, a pattern or a choice, in the ways in which clients ask for it."""
import enum
import json
import re
import tempfile

import serve
from serve import cli

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 18, "maximum": 99},
                                           "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3}},
          "required": ["name", "age", "tags"], "additionalProperties": False}


class Format(serve.Unharmed):
    def person(self, text):
        p = json.loads(text)
        self.assertEqual(set(p), set(PERSON["required"]))
        self.assertTrue(isinstance(p["name"], str) and len(p["name"]) <= 12)
        self.assertTrue(isinstance(p["age"], int) and 18 <= p["age"] <= 99)
        self.assertTrue(1 <= len(p["tags"]) <= 3 and set(p["tags"]) <= {"red", "green", "blue"})

    def draw(self, **fields):
        r = self.s.complete(**{"temperature": 1, "max_tokens": 300, **fields})
        self.assertEqual(r.status, 200, r.body)
        self.assertEqual(r.json["choices"][0]["finish_reason"], "stop", r.body)
        return r.text

    def test_schemas(self):
        """Each server's way, greedy or sampled, with all that changes the logits."""
        wrapped = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
        ways = [{"response_format": wrapped}, {"response_format": {"type": "json_object", "schema": PERSON}}, {"guided_json": PERSON},
                {"guided_json": json.dumps(PERSON)}, {"structured_outputs": {"json": PERSON}}, {"json_schema": PERSON}]
        more = [{}, {"temperature": 0}, {"logprobs": 2}, {"presence_penalty": 1, "repetition_penalty": 1.2}, {"min_tokens": 5}, {"ignore_eos": True}]
        for way, other in zip(ways, more):
            self.person(self.draw(**way, **other))
        seeded = [self.draw(**ways[0], seed=4) for _ in range(2)]
        self.assertEqual(*seeded)

    def test_chat(self):
        chat = {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 300, "n": 3, "temperature": 1,
                "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}}
        for choice in self.s.post("/v1/chat/completions", chat).json["choices"]:
            self.person(choice["message"]["content"])

    def test_streams(self):
        events = self.s.stream(max_tokens=300, guided_json=PERSON, temperature=1)
        self.person("".join(e["choices"][0]["text"] for e in events))

    def test_no_other_keys(self):
        """Where properties have names: a model that may write any goes on with them."""
        for more in ({}, {"patternProperties": {"^p$": {"type": "null"}}}, {"required": ["n"]}):
            got = json.loads(self.draw(guided_json={"type": "object", "properties": {"n": {"enum": [1, 2]}}, **more}, max_tokens=400))
            self.assertLessEqual(set(got), {"n", "p"})

    def test_any_object(self):
        for fields in ({"response_format": {"type": "json_object"}}, {"guided_json_object": True}, {"guided_json": {"type": "object"}}):
            r = self.s.complete(max_tokens=60, temperature=1, seed=3, **fields)
            self.assertTrue(r.text.lstrip().startswith("{"), r.text)

    def test_patterns_and_choices(self):
        self.assertRegex(self.draw(guided_regex=r"[A-Z][a-z]{2,5}-\d{3}"), r"^[A-Z][a-z]{2,5}-\d{3}$")
        self.assertRegex(self.draw(structured_outputs={"regex": "(ab|cd){1,4}!"}), "^(ab|cd){1,4}!$")
        for way in ({"guided_choice": ["yes", "no", "é?"]}, {"structured_outputs": {"choice": ["yes", "no", "é?"]}}):
            self.assertIn(self.draw(**way), ("yes", "no", "é?"))

    def test_grammars(self):
        rules = 'root ::= "[" item ("," item){0,2} "]"\nitem ::= root | [a-z]{1,3} # nested\n'
        for way in ({"grammar": rules}, {"guided_grammar": rules}, {"ebnf": rules}, {"structured_outputs": {"grammar": rules}}):
            text = self.draw(**way, seed=1)
            self.assertIsInstance(json.loads(re.sub("[a-z]+", "1", text)), list, text)
        self.assertEqual(self.s.complete(grammar="").text, self.want)  # as llama.cpp's clients send none

    def test_cut(self):
        r = self.s.complete(max_tokens=3, guided_json=PERSON)
        self.assertEqual(r.json["choices"][0]["finish_reason"], "length")

    def test_beside_others(self):
        """Those that run in the same steps write what they write alone."""
        def one(i):
            if i % 2:
                self.assertEqual(self.s.complete().text, self.want)
            else:
                self.person(self.draw(guided_json=PERSON))

        serve.at_once(6, one)

    def test_choices_that_come_early(self):
        """Choices may come while the grammar of the next one is compiled: nobody is left waiting."""
        names = {f"k{i}": {"type": "string", "pattern": f"^[a-z]{{1,{20 + i}}}x?[0-9]+$"} for i in range(120)}
        for _ in range(3):
            events = list(self.s.stream(guided_json={"type": "object", "properties": names}, max_tokens=2, n=6, temperature=1))
            self.assertEqual({c["index"] for e in events for c in e["choices"]}, set(range(6)))

    def test_refused(self):
        rows = [({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {"multipleOf": 2}}}}}, "multipleOf"),
                ({"guided_json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
                ({"guided_regex": "(a"}, "group"),
                ({"guided_regex": 5}, "guided_regex"),
                ({"guided_choice": []}, "guided_choice"),
                ({"guided_choice": [1]}, "list of strings"),
                ({"guided_json": {}, "guided_regex": "a"}, "exclude each other"),
                ({"guided_json": "{"}, "schema"),
                ({"response_format": {"type": "json_schema"}}, "json_schema"),
                ({"response_format": {"type": "grammar"}}, "grammar"),
                ({"structured_outputs": {"structural_tag": {}}}, "structural_tag"),
                ({"grammar": "root ::= (item\nitem ::= \"a\""}, "line 2, column 1"),
                ({"guided_grammar": {"root": "a"}}, "string")]
        for fields, word in rows:
            e = self.refused(self.s.complete(**fields), 400)
            self.assertIn(word, e["message"])
            self.assertIn(e["param"].split(".")[0], fields)


class Calls(serve.TestCase):
    """With a template that has a place for tools, but none for how they are called."""

    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
            f.write("{% for m in messages %}{{ m.content }}{% endfor %}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}")
            f.flush()
            cls.s = serve.Server(template=f.name)

    def test_calls_that_have_to_come(self):
        """What is cut is text, as it came."""
        small = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
        tools = [{"type": "function", "function": {"name": n, "parameters": small}} for n in ("put", "get")]
        fields = {"tools": tools, "temperature": 1, "max_tokens": 400, "parallel_tool_calls": False}
        for choice, names in (("required", {"put", "get"}), ({"type": "function", "function": {"name": "get"}}, {"get"})):
            r = self.s.chat(tool_choice=choice, **fields).json["choices"][0]
            self.assertEqual(r["finish_reason"], "tool_calls", r)
            (call,) = r["message"]["tool_calls"]
            self.assertIn(call["function"]["name"], names)
            self.assertIn(json.loads(call["function"]["arguments"]), ({"n": 1}, {"n": 2}))
            self.assertFalse(r["message"]["content"], r)
        events = self.s.stream("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], guided_choice=["no call"], **{**fields, "tool_choice": "required"})
        calls = [c for e in events if e["choices"] for c in e["choices"][0]["delta"].get("tool_calls") or []]
        self.assertIn(json.loads("".join(c["function"].get("arguments") or "" for c in calls)), ({"n": 1}, {"n": 2}))
        cut = self.s.chat(**{**fields, "tool_choice": "required", "max_tokens": 4}).json["choices"][0]
        self.assertEqual(cut["finish_reason"], "length")
        self.assertTrue(cut["message"]["content"].lstrip().startswith("["), cut)

    def test_official_client(self):
        """What it makes of classes: their references lead within each tool's parameters."""
        try:
            import openai
            import pydantic
        except ImportError:
            self.skipTest("the Python package openai is not installed")

        class Colour(str, enum.Enum):
            RED, BLUE = "red", "blue"

        class Thing(pydantic.BaseModel):
            name: str = pydantic.Field(max_length=6)
            colour: Colour

        class Other(Thing):
            pass

        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.s.port}/v1", api_key="none", max_retries=0)
        ask = {"model": client.models.list().data[0].id, "messages": [{"role": "user", "content": "a"}], "max_tokens": 400}
        self.assertIsInstance(client.chat.completions.parse(response_format=Thing, **ask).choices[0].message.parsed, Thing)
        tools = [openai.pydantic_function_tool(t) for t in (Thing, Other)]
        (call,) = client.chat.completions.parse(tools=tools, tool_choice="required", parallel_tool_calls=False, **ask).choices[0].message.tool_calls
        self.assertIsInstance(call.function.parsed_arguments, Thing)


if __name__ == "__main__":
    cli.main()
