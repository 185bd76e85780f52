"""Answers that are kept to a schema, a pattern or a choice, in the ways in which clients ask for it."""
import json

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

    def test_any_object(self):
        for fields in ({"response_format": {"type": "json_object"}}, {"guided_json_object": True}, {"guided_json": {"type": "object"}}):
            r = self.s.complete(max_tokens=60, temperature=1, seed=3, **fields)
            self.assertTrue(r.text.lstrip().startswith("{"), r.text)

    def test_patterns_and_choices(self):
        self.assertRegex(self.draw(guided_regex=r"[A-Z][a-z]{2,5}-\d{3}"), r"^[A-Z][a-z]{2,5}-\d{3}$")
        self.assertRegex(self.draw(structured_outputs={"regex": "(ab|cd){1,4}!"}), "^(ab|cd){1,4}!$")
        for way in ({"guided_choice": ["yes", "no", "é?"]}, {"structured_outputs": {"choice": ["yes", "no", "é?"]}}):
            self.assertIn(self.draw(**way), ("yes", "no", "é?"))

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

    def test_refused(self):
        rows = [({"response_format": {"type": "json_schema", "json_schema": {"schema": {"contains": {"type": "null"}}}}}, "contains"),
                ({"guided_json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
                ({"guided_regex": "(a"}, "group"),
                ({"guided_regex": 5}, "guided_regex"),
                ({"guided_choice": []}, "guided_choice"),
                ({"guided_choice": [1]}, "list of strings"),
                ({"guided_json": {}, "guided_regex": "a"}, "exclude each other"),
                ({"guided_json": "{"}, "schema"),
                ({"response_format": {"type": "json_schema"}}, "json_schema"),
                ({"response_format": {"type": "grammar"}}, "grammar"),
                ({"structured_outputs": {"grammar": "root ::= \"a\""}}, "grammar"),
                ({"grammar": "root ::= \"a\""}, "grammar")]
        for fields, word in rows:
            e = self.refused(self.s.complete(**fields), 400)
            self.assertIn(word, e["message"])


if __name__ == "__main__":
    cli.main()
