#!/usr/bin/env python3
"""Calls of tools and thoughts as real chat templates write them, read back as answers: names, arguments and thoughts come back equal, however the
text is cut. templates.md has the table of what is understood, which --table prints.

calls.py RENDER READ [--table]: the programs that render a template and that take an answer apart."""
import glob
import json
import os
import re
import subprocess
import sys

from conversations import call, user
from reference import rendered

FOLDER = os.path.join(os.environ.get("WEFT_TEST_DATA", os.path.join("..", "shared", "data")), "templates")
TABLE = os.path.join("tests", "jinja", "templates.md")
KINDS = {"text": "string", "more": "string", "list": "array", "place": "object", "n": "integer", "x": "number", "yes": "boolean", "no": "integer"}
ITEMS = {"list": {"items": {"type": "string"}},
         "place": {"properties": {"name": {"type": "string"}, "lat": {"type": "number"}}, "additionalProperties": {"type": "string"}}}


def tool(name, names):
    properties = {n: {"type": KINDS[n], "description": "It is.", **ITEMS.get(n, {})} for n in names}
    return {"type": "function", "function": {"name": name, "description": "It does.", "parameters": {
        "type": "object", "properties": properties, "required": list(names)[:1]}}}


TOOLS = [tool("get_weather", KINDS), tool("now", [])]
ARGUMENTS = {
    "a string": {"text": "Oslo"},
    "a string of digits": {"text": "5", "more": "true"},
    "an empty string": {"text": "", "more": "b"},
    "blanks": {"text": " two  words ", "more": "b"},
    "lines": {"text": "a\nb\n\n  c"},
    "double quotes": {"text": 'say "hi"', "more": '"'},
    "single quotes": {"text": "it's", "more": "b"},
    "backslashes": {"text": "a\\nb\\", "more": "\\"},
    "tags": {"text": "a < b > c <b>d</b> <x", "more": "</x>"},
    "brackets": {"text": "{[(]}) }", "more": "]"},
    "other letters": {"text": "Gr\u00f6\u00dfe \u4f60\u597d \U0001f642", "more": "\u2028"},
    "code": {"text": 'def f(x):\n\treturn {"a": [x < 1]}\n'},
    "numbers": {"n": -7, "x": 0.25},
    "large numbers": {"n": 9007199254740993, "x": 1e+30},
    "a truth": {"yes": True, "n": 1},
    "nothing": {"no": None, "n": 1},
    "a list": {"list": ["a", "b c", "5"]},
    "a list of one": {"list": ["a"]},
    "an object": {"place": {"name": "Oslo", "lat": 59.9}},
    "both": {"list": ["it's", 'a "b"'], "place": {"name": "a, b: {c}", "lat": -1}, "text": "end"},
    "none": {},
}
LOST = {  # by templates themselves
    "CohereForAI-c4ai-command-r-plus-tool_use": {"other letters"},  # their JSON is indented, also behind U+2028
    "LFM2.5-8B-A1B": {"backslashes"},  # strings of Python, but without escapes
    "MiniMax-M3": {"nothing"},  # is left out
    "openai-gpt-oss-120b": {"a call behind text"},  # the text becomes thoughts
}
TEXT, THOUGHT = "Well then.", "Why is that so?"
# The template cannot be rendered with calls, neither here nor by transformers: lists do not change.
PATCHES = {name: (r"\{%- set _ = tool_response_queue\.ids\.append\(formatted_id\) -%\}", "") for name in ("Kimi-K2-Instruct", "Kimi-K2-Thinking")}
REASONED = {"reasoning_content": THOUGHT, "reasoning": THOUGHT, "thinking": THOUGHT}
THINKING = {"enable_thinking": True, "thinking": True}


# --- what templates write ------------------------------------------------------------------------

def as_text(message):
    message = json.loads(json.dumps(message))
    for c in message.get("tool_calls", []):
        c["function"]["arguments"] = json.dumps(c["function"]["arguments"], ensure_ascii=False)
    return message


def turns():
    """{name: (message, the calls in it, kwargs)}"""
    one, two = ARGUMENTS["a string"], ARGUMENTS["numbers"]
    all_turns = {name: (call(a), [("get_weather", a)], None) for name, a in ARGUMENTS.items()}
    several = [*call(one)["tool_calls"], *call({}, "now", number="call67890")["tool_calls"], *call(two, number="callabcde")["tool_calls"]]
    all_turns["several calls"] = {**call(one), "tool_calls": several}, [("get_weather", one), ("now", {}), ("get_weather", two)], None
    all_turns["a call behind text"] = call(one, text=TEXT), [("get_weather", one)], None
    all_turns["a call behind thoughts"] = call(one, **REASONED), [("get_weather", one)], THINKING
    all_turns["text behind thoughts"] = {"role": "assistant", "content": TEXT, **REASONED}, [], THINKING
    return all_turns


def answer_of(prompt, whole):
    """What the model writes of a conversation that has its answer: behind the prompt, as far as both are the same."""
    n = len(os.path.commonprefix([prompt, whole]))
    marker = whole.rfind("<", 0, n)
    if n < len(prompt) and marker > whole.rfind(">", 0, n):
        n = marker
    answer, rest = whole[n:], prompt[n:]
    again = next((k for k in range(len(rest), 0, -1) if answer.startswith(rest[-k:])), 0)
    return whole[:n], answer[again:]


def render_all(program, texts):
    """[(template, name of the turn, arguments as text?, prompt, text up to the answer, answer)], without what fails."""
    cases = [(f, name, text, (t, [user("Hi")], TOOLS, kwargs, True), (t, [user("Hi"), as_text(m) if text else m], TOOLS, kwargs))
             for f, t in texts.items() for name, (m, _, kwargs) in turns().items() for text in (False, True)]
    results = rendered(program, [c for case in cases for c in case[3:]])
    out = []
    for (f, name, text, *_), (prompt, _, _), (whole, _, _) in zip(cases, results[::2], results[1::2]):
        if prompt is not None and whole is not None:
            prompt, whole = prompt.decode(), whole.decode()
            out.append((f, name, text, prompt, *answer_of(prompt, whole)))
    return out


def writes_calls(answer, text):
    """Are they written, and arguments neither as Python shows a dictionary nor as a string of JSON? As the server looks."""
    return "get_weather" in answer and "Oslo" in answer and "text" in answer and "'text'" not in answer and '\\"text' not in answer


# --- what is read --------------------------------------------------------------------------------

def read_all(program, texts, cases):
    record = b"".join(b"%d\n%s" % (len(p), p) for f, _, _, prompt, before, answer in cases
                      for p in (s.encode() for s in (texts[f], json.dumps(TOOLS), prompt, before, answer)))
    out = subprocess.run([program], input=record, stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def flaws(name, answer, want, got):
    """What is wrong with it."""
    if "cut" in got:
        yield f"in pieces: {got['cut']}"
    if THOUGHT in answer and (got["thought_kind"] is None or got["thoughts"].strip() != THOUGHT):
        yield "thoughts"
    calls = [(c[1], json.loads(c[2])) for c in got["calls"]]
    if calls != want:
        yield f"calls: {calls}"
    if answer.find(TEXT) >= 0 and "get_weather" not in answer[:answer.find(TEXT)] and not got["text"].strip().startswith(TEXT):
        yield "text"


def check(texts, kinds, cases, results):
    """{template: (kind of calls, kind of thoughts, does it write calls?)}, [flaws]"""
    table, bad, all_turns, forms = {f: [got["kind"], got["thought_kind"], False] for f, got in zip(texts, kinds)}, [], turns(), {}
    for (f, name, text, _, _, answer), got in zip(cases, results):
        if name == "a string" and writes_calls(answer, text):
            forms.setdefault(f, text)
    for (f, name, text, _, before, answer), got in zip(cases, results):
        want, row = all_turns[name][1], table[f]
        if want and (forms.get(f) != text or answer.count("get_weather") + answer.count("now") < len(want)) or name in LOST.get(f, ()):
            continue
        row[2] |= bool(want)
        bad += [f"{f}, {name}: {what}\n  answer {answer!r}\n  read   {got}" for what in flaws(name, answer, want, got)]
    return table, bad


# --- the table -----------------------------------------------------------------------------------

def rows(table):
    groups = {}
    for f, (calls, thoughts, writes) in table.items():
        calls, thoughts = (f"`{kind}`" if kind else "-" for kind in (calls, thoughts))
        groups.setdefault((calls if writes or calls == "-" else calls + " *", thoughts), []).append(f)
    return [f"| {calls} | {thoughts} | {', '.join(files)} |" for (calls, thoughts), files in sorted(groups.items())]


def main(render, read, *options):
    texts = {os.path.basename(f)[:-len(".jinja")]: open(f, encoding="utf-8", newline="").read() for f in sorted(glob.glob(os.path.join(FOLDER, "*.jinja")))}
    if not texts:
        print(f"skipped: templates: {FOLDER} has none: set WEFT_TEST_DATA")
        sys.exit(77)
    texts = {f: re.sub(*PATCHES[f], t) if f in PATCHES else t for f, t in texts.items()}
    cases = render_all(render, texts)
    kinds = read_all(read, texts, [(f, "", False, "", "", "") for f in texts])
    table, bad = check(texts, kinds, cases, read_all(read, texts, cases))
    lines = rows(table)
    if "--table" in options:
        print("\n".join(lines))
    for b in bad:
        print(b)
    print(f"{len(texts)} templates, {len(cases)} answers, {len(bad)} read otherwise")
    missing = [] if "--table" in options else [line for line in lines if line not in open(TABLE, encoding="utf-8").read().splitlines()]
    for line in missing:
        print(f"{TABLE} lacks the line\n{line}")
    if bad or missing:
        sys.exit("differences")


if __name__ == "__main__":
    main(*sys.argv[1:])
