"""grammar check: schemas and instances of MaskBench, and those of the official suite that are kept to the letter."""
import json
import lzma
import tarfile

import cli


class Check(cli.TestCase):
    def check(self, lines):
        text = "\n".join(json.dumps(line) for line in lines)
        rows = [json.loads(row) for row in self.ok("grammar", "check", "--json", stdin=text.encode()).text.splitlines()]
        self.assertEqual([r["name"] for r in rows], [line["name"] for line in lines])
        return list(zip(lines, rows))

    def wrong(self, pairs, valid):
        """Instances that are accepted or refused, where the other is right."""
        return [(line["name"], test["data"]) for line, row in pairs for test, ok in zip(line["tests"], row["accepted"])
                if test["valid"] == valid and ok != valid]

    def test_maskbench(self):
        with lzma.open(cli.data("schemas/maskbench-tenth.jsonl.xz"), "rt", encoding="utf-8") as f:
            pairs = self.check([json.loads(line) for line in f])
        self.assertEqual(self.wrong(pairs, False), [])
        self.assertEqual(self.wrong(pairs, True), [])
        self.assertGreater(sum(row["compiled"] for _, row in pairs), 0.95 * len(pairs))
        for _, row in pairs:
            self.assertEqual(bool(row["reason"]), not row["compiled"])

    def test_official_suite(self):
        """Formats, which the suite takes for annotations, numbers of more than 64 digits and 1.0 as an integer are ours."""
        ours = {"float and integers are equal up to 64-bit representation limits", "a float with zero fractional part is an integer"}
        lines = []
        with tarfile.open(cli.data("schemas/json-schema-test-suite-2020-12.tar.xz")) as tar:
            for member in tar:
                name = member.name.rsplit("/", 1)[-1]
                if not name.endswith(".json") or "/optional/" in member.name or name in ("format.json", "vocabulary.json"):
                    continue
                for group in json.load(tar.extractfile(member)):
                    tests = [t for t in group["tests"] if t["description"] not in ours]
                    lines.append({"name": f"{name}: {group['description']}", "schema": group["schema"], "tests": tests})
        pairs = self.check(lines)
        self.assertGreater(len(pairs), 250)
        self.assertEqual(self.wrong([p for p in pairs if p[1]["compiled"]], False), [])
        self.assertEqual(self.wrong([p for p in pairs if p[1]["compiled"]], True), [])
        self.assertGreater(sum(row["compiled"] for _, row in pairs), 0.73 * len(pairs))


class Refused(cli.TestCase):
    def test_by_name(self):
        deep = {"type": "string"}
        for _ in range(50):
            deep = {"type": "array", "items": {"anyOf": [deep, {"type": "null"}]}}
        endless = {"type": "object", "properties": {"a": {"$ref": "#/$defs/endless"}}, "required": ["a"]}
        rows = {"more than one contains": {"allOf": [{"contains": {"type": "null"}}, {"contains": {"type": "string"}}]},
                "uniqueItems of items that are not strings": {"uniqueItems": True},
                "uniqueItems beside prefixItems": {"uniqueItems": True, "prefixItems": [{}]},
                "unevaluatedProperties beside anyOf": {"anyOf": [{}], "unevaluatedProperties": False},
                "unevaluatedItems beside contains": {"contains": {}, "unevaluatedItems": False},
                "newer than the schema": {"$schema": "http://json-schema.org/draft-07/schema#", "unevaluatedProperties": False},
                "values have no end": {"$defs": {"endless": endless}, "items": True, "$ref": "#/$defs/endless"},
                "another document": {"$ref": "https://example.com/other.json"},
                "the schema does not have": {"$ref": "#/$defs/none"},
                "refers to itself": {"$ref": "#"},
                "unknown name": {"type": "strange"},
                "required that is no list": {"properties": {"a": {"required": True}}},
                "enum that is no list": {"not": {"enum": {"a": 1}}},
                "anyOf that is no list": {"anyOf": {"type": "string"}},
                "uniqueItems that is no boolean": {"uniqueItems": 1},
                "looks behind": {"type": "string", "pattern": "(?<=a)b"},
                "refers to a group": {"type": "string", "pattern": r"(a)\1"},
                "word boundary": {"type": "string", "pattern": r"\bword\b"},
                "neither an object": {"properties": {"a": 5}},
                "no value satisfies": {"type": "string", "minLength": 3, "maxLength": 2},
                "too many": {"type": "string", "pattern": "^(a|b)*a(a|b){40}$", "not": {"pattern": "^(b|a)*b(a|b){40}$"}},
                "combinations": {"allOf": [{"anyOf": [{"required": [f"k{i}{k}"]} for k in range(12)]} for i in range(12)]}}
        text = "\n".join(json.dumps({"name": name, "schema": schema, "tests": []}) for name, schema in rows.items())
        r = self.ok("grammar", "check", "--json", stdin=text.encode())
        for row in map(json.loads, r.text.splitlines()):
            self.assertFalse(row["compiled"], row)
            self.assertIn(row["name"], row["reason"])
        self.assertTrue(json.loads(self.ok("grammar", "check", "--json", stdin=json.dumps({"schema": deep}).encode()).text)["compiled"])

    def test_files(self):
        self.fails(cli.USAGE, "line 1 of the file", "grammar", "check", stdin=b'{"schema":')
        self.fails(cli.USAGE, "has no schema", "grammar", "check", stdin=b'{"name":"a"}')
        self.assertIn("1 schemas, 1 compiled", self.ok("grammar", "check", stdin=b'{"schema":{}}').text)


if __name__ == "__main__":
    cli.main()
