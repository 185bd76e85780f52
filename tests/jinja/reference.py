"""Python's jinja2 with the settings of transformers (utils/chat_template_utils.py), and the renderer under test beside it."""
import datetime
import functools
import json
import os
import subprocess

import sys

try:
    import jinja2
    import jinja2.ext
except ImportError:
    print("skipped: jinja: Python's jinja2 is missing: apt install python3-jinja2, or ./setup.sh --test")
    sys.exit(77)
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1721995200


class Generation(jinja2.ext.Extension):
    """{% generation %}, which transformers uses for training; what is in it is written as it is."""
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("write"), [], [], body).set_lineno(lineno)

    def write(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW).strftime(form)
    return env


ENV = environment()
compiled = functools.lru_cache(None)(ENV.from_string)


def expected(template, messages=(), tools=None, kwargs=None, generate=False):
    """The text; None: it fails."""
    try:
        return compiled(template).render(bos_token="<s>", eos_token="</s>", **{**(kwargs or {}), "messages": list(messages), "tools": tools,
                                                "documents": None, "add_generation_prompt": generate})
    except Exception as e:  # of any kind: a template is a program
        expected.why = f"{type(e).__name__}: {e}"
        return None


def record(template, messages=(), tools=None, kwargs=None, generate=False):
    parts = [template, json.dumps(list(messages)), tools and json.dumps(tools), kwargs and json.dumps(kwargs), "1" if generate else ""]
    parts = [(p or "").encode("utf-8", "surrogatepass") for p in parts]
    return b"".join(b"%d\n%s" % (len(p), p) for p in parts)


def rendered(program, cases):
    """[(text, None or message, ranges of data)] of cases, which are arguments of expected()."""
    out = subprocess.run([program], input=b"".join(record(*c) for c in cases), stdout=subprocess.PIPE, check=True,
                         env={**os.environ, "LC_ALL": "C"}).stdout
    results, at = [], 0
    for _ in cases:
        end = out.index(b"\n", at)
        kind, n, *ranges = out[at:end].split()
        body, at = out[end + 1:end + 1 + int(n)], end + 1 + int(n)
        pairs = [(int(a), int(b)) for a, b in zip(ranges[::2], ranges[1::2])]
        results.append((body if kind == b"ok" else None, None if kind == b"ok" else body.decode(), pairs))
    assert at == len(out)
    return results
