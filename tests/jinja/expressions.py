#!/usr/bin/env python3
"""Some hundred small templates, by the program of the first argument and by Python's jinja2: the same text, or both fail. Strings keep
their origin: what is outside of the ranges that are said to come with the data is the template's own."""
import itertools
import sys

from reference import expected, rendered

DATA = {"s": "Hello wörld", "e": "", "n": 7, "m": -3, "f": 2.5, "g": 1e21, "t": True, "z": None, "l": [3, 1, 2], "w": ["b", "A", "c", "a"],
        "d": {"b": 1, "a": {"x": [1, 2]}, "C": None, "items": 5}, "p": " \t pad\n", "lines": "one\ntwo\n\nthree\n", "q": "it's \"q\" \\ \u2028 \x7f é 🙂",
        "o": [{"k": "x", "v": 2, "n": {"y": 1}}, {"k": "Y", "v": 1, "n": {"y": 0}}, {"k": "x", "v": 3}], "num": " 42 ", "big": 9007199254740993, "huge": [2**63, 2**64 - 1, -2**63 - 1, 10**30 + 7], "dup": ["a", "B", "b", "A", "a"]}

OPERANDS = ["n", "m", "f", "t", "z", "s", "l", "d", "nope", "0", "2", "1.5", "'x'", "[1]", "(1, 2)"]
FILTERS = """select|list reject|list selectattr('x')|list rejectattr('x')|list map('upper')|list map(attribute='x')|list sort join unique|list batch(2)|list
slice(2)|list sum first last max min list reverse length groupby('x')|list dictsort items|list wordcount trim striptags int float title replace('a','b') urlencode escape
round abs default('q') string tojson""".split()
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]

EXPRESSIONS = """
1 + 2 * 3 - 4 / 2|2 ** 3 ** 2|-2 ** 2|7 // -2|-7 % 3|7.5 % -2|7.5 // 2|not 1 == 2|1 < 2 < 3|3 > 2 > 2|1 == 1.0 == true|1 ~ 'a' ~ 2.0 ~ none|(1)|(1,)|()|1, 2
[1, 'a', [2.5, none], {'k': (1,)}]|{'a': 1, 2: 'b', none: true}|{}|[1, 2,]|'a' 'b' "c"|'\\n\\t\\'\\x41\\u00e9\\q\\101'|"it's"|1_000 + 0x1f + 0b101 + 0o17|1e3|1.5e-7|123456789012345680.0|0.1 + 0.2|1e16|1e15 + 0.5|-0.0
s[0]|s[-1]|s[99]|s[1:4]|s[:-2]|s[::-1]|s[8:2:-2]|s[20:]|l[0]|l[-1]|l[5]|l[1:]|l[::-1]|l[::2]|(1, 2, 3)[1:]|d.b|d['b']|d.a.x[1]|d['a']['x']|d.items|d['items']|d.nope|d.nope.more|d['nope']|nope|nope.more|nope[0]|z.x|n.x|s.nope|l.0|l['x']|o[0].k|d.get('b')|d.get('q')|d.get('q', 3)|d.keys() .x|d.items()|d.values()|l.append(4)|d.update({})|l.index(2)|l.count(3)|d.clear()|s.upper|'abc'.format
'a' if t else 'b'|'a' if not t|('a' if false) is defined|'x' if n > 5 else 'y' if n > 3 else 'z'|1 if nope else 2|t and n|z or e or 'last'|not z|not nope|n and nope
n is defined|nope is defined|nope is undefined|z is none|z is not none|s is string|n is string|d is mapping|l is mapping|l is iterable|n is iterable|s is sequence|d is sequence|n is number|t is number|f is number|t is integer|n is integer|f is integer|f is float|t is boolean|t is true|n is true|t is false|n is odd|n is even|n is divisibleby 7|n is divisibleby(2)|s is lower|'abc' is lower|'ABC' is upper|n is eq 7|n is equalto(7)|n is in [7, 8]|'a' is in 'abc'|n is sameas n|z is sameas none|n is gt 3|n is lt(3)|n is not ge 8|'upper' is filter|'nope' is filter|n is nope|l is callable|range is callable|'a' is in d|n is defined and s is string|n is defined == true
s|upper|s|lower|s|title|s|capitalize|'hello wORLD-foo (bar) {x} it_is'|title|"it's ok"|title|"they're bill's".title()|s|length|d|length|n|length|nope|length|s|reverse|l|reverse|l|reverse|list|s|first|s|last|l|first|[]|first|nope|first|l|last|p|trim|p|trim|length|'xxaxx'|trim('x')|s|replace('o', '0')|s|replace('o', '0', 1)|s|replace('', '-')|n|replace('7', '8')
l|join|l|join(', ')|w|join('-')|o|join(',', attribute='k')|o|map(attribute='k')|list|o|map(attribute='n.y')|list|o|map(attribute='n.y', default='-')|join(',')|w|map('upper')|list|w|map('replace', 'a', 'z')|join|l|sum|o|sum(attribute='v')|l|sum(start=10)|l|max|l|min|w|max|w|min|[]|max|o|map(attribute='v')|max
l|sort|w|sort|w|sort(case_sensitive=true)|l|sort(reverse=true)|o|sort(attribute='v')|map(attribute='v')|list|o|sort(attribute='k,v')|map(attribute='v')|list|d|dictsort|d|dictsort(true)|{'a': 2, 'b': 1}|dictsort(by='value')|{'a': 2, 'b': 1}|dictsort(reverse=true)|d|items|list|nope|items|list|n|items|dup|unique|list|dup|unique(true)|list|o|unique(attribute='k')|map(attribute='v')|list|[1, 'a']|sort
l|select|list|l|select('odd')|list|l|reject('odd')|list|l|select('gt', 1)|list|o|selectattr('v')|list|length|o|selectattr('v', 'equalto', 2)|map(attribute='k')|list|o|rejectattr('v', 'gt', 1)|map(attribute='v')|list|o|selectattr('nope')|list|o|selectattr('n.y', 'defined')|list|length|[none, 0, 1, '']|select|list
nope|default('x')|e|default('x')|e|default('x', true)|z|default('x')|z|d('x', boolean=true)|nope|default|n|string|l|string|s|list|d|list|'12'|int|'12.7'|int|'x'|int|'x'|int(5)|'0x1f'|int(base=16)|num|int|f|int|z|int|'ff'|int(0, 16)|'1_000'|int|'2.5'|float|'x'|float|'x'|float(1.5)|n|float|'inf'|float|-3|abs|m|abs|f|abs|s|abs|2.5|round|3.5|round|2.567|round(2)|2.1|round(0, 'ceil')|2.9|round(method='floor')|1234|round(-2)|1234.5|round(-2)|7|round|lines|indent|lines|indent(2, true)|lines|indent('>> ', true, true)|lines|indent(width=3, blank=true)|'a'|indent|e|indent(2, true)|lines|wordcount
o|groupby('k')|list|w|groupby(0)|list|dup|groupby(0, case_sensitive=true)|list|o|groupby('n.y', default=-1)|map('list')|list|(o|groupby('k')|first).grouper|(o|groupby('k')|last).list|map(attribute='v')|list|(1, 2).grouper|z|groupby('k')
'<p class="a">x <b>y</b>\n z</p>'|striptags|'a<!-- <b> --> c &lt;&amp;&gt;'|striptags|'a < b'|striptags|n|striptags|z|striptags|' \t'|striptags|'a > b <i'|striptags
'abc'.center(-9223372036854775807 - 1)|'abc'.ljust(-9223372036854775807 - 1)|'abc'.rjust(-5)|'-5'.zfill(-9223372036854775807 - 1)|s|center(-1)
'aXbXc'.rsplit('X', 1)|'aXbXc'.rpartition('X')|'aaaa'.rfind('aa')|'abc'.rfind('')|'xyax'.strip('xy')|'éaé'.strip('é')|dict(**d)|dict(x=1, **{'y': 2})
[1, 2, 3, 4, 5]|batch(2)|list|[1, 2, 3]|batch(2, 'x')|list|[1, 2, 3, 4, 5]|slice(2)|list|[1, 2, 3]|slice(2, 'x')|list|'%s is %d, %.2f'|format('a', 3, 2.5)|'%(a)s'|format(a=1)|'%5d|%-5s|%05.1f|%x|%%' % (3, 'ab', 2.55, 255)|'%s' % n|'%s' % l|'%s %s' % (1,)|'%d' % 'x'|'%s' % d
d|tojson|l|tojson|s|tojson|q|tojson|q|tojson(ensure_ascii=true)|d|tojson(indent=2)|[]|tojson(indent=2)|[[], {}]|tojson(indent=1)|d|tojson(separators=(',', ':'))|d|tojson(sort_keys=true)|{'b': 1, 'a': 2}|tojson(sort_keys=true, indent=4)|1.0|tojson|1e100|tojson|g|tojson|big|tojson|none|tojson|nope|tojson|(1, 2)|tojson|{1: 2, none: 3, true: 4}|tojson|range|tojson|'<a&b>'|tojson|d|tojson(indent='--')
s.split()|'a,b,,c'.split(',')|'a,b,c'.split(',', 1)|' a  b '.split()|'a b c'.split(none, 1)|'a b c d '.split(maxsplit=2)|'a,b,c'.rsplit(',', 1)|''.split()|''.split(',')|'a'.split('')|lines.splitlines()|lines.splitlines(true)|'a=b=c'.partition('=')|'a=b=c'.rpartition('=')|'abc'.partition('-')|'abc'.rpartition('-')
s.startswith('He')|s.startswith(('x', 'H'))|s.endswith('ld')|s.startswith('e', 1)|s.find('o')|s.find('zz')|s.find('o', 6)|s.rfind('l')|s.index('w')|s.index('zz')|s.count('l')|'aaa'.count('aa')|'aaa'.replace('a', 'b', 2)|'abc'.replace('', '-')|p.strip()|p.lstrip()|p.rstrip()|'xxabxx'.strip('x')|'abcxyz'.rstrip('zyx')|'abc'.removeprefix('a')|'abc'.removesuffix('bc')|'-'.join(['a', 'b'])|'-'.join([1])|'ab'.join('xyz')|'ab1'.isalnum()|'12'.isdigit()|'ab'.isalpha()|' '.isspace()|'Ab'.isupper()|'ab'.islower()|'a'.ljust(3) ~ '.'|'a'.rjust(3, '-')|'a'.center(4, '*')|'ab'.center(5, '*')|'-7'.zfill(4)|'aBc dEf'.title()|'aBc'.capitalize()|'ÄÖ'.lower()
'{} {}'.format(1, 'a')|'{0} {1} {0}'.format('a', 'b')|'{x} {y}'.format(x=1, y=2)|'{{}} {}'.format(3)|'{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c')|'{:05d} {:.2f} {:x} {:,}'.format(42, 2.5, 255, 1234567)|'{0[b]} {1[0]}'.format(d, l)|'{}'.format()|'{!r}'.format('a')|'{:*^9}'.format('x')|'{:+d}'.format(3)|'{:.1%}'.format(0.256)
'ß'|upper|'ßa'|title|'ŉx'.capitalize()|'ﬁﬃ ΐ ᾳ'|upper|'ﬁx ᾳ ǆ'.title()|'İI'|lower|'İ'.lower()|'ŉß'|upper|length|q|escape|'<a&\'"b>'|escape|n|escape|q|urlencode|'a b/ü?&=~_.-'|urlencode|d|urlencode|{'a b/': 'ü&', 1: none}|urlencode|n|urlencode
s|center(20) ~ '.'|s|center(14)|s|center(3)|'ab'|center(5)|s|center|length|lines|truncate(5)|s|truncate(8, true, leeway=0)|s|truncate(8, leeway=0)|s|truncate(8)|s|truncate(7, false, '…', 0)|s|truncate(2)|'aaaaaaaaaaaaaaaa'|truncate(9)|'a b c d e f g h i'|truncate(9)|'wörld ' * 60|truncate|'abcdef'|truncate(3, end='', leeway=0)|' abcdefghij'|truncate(4, leeway=0)|s|truncate(5, leeway=-1)
range(3)|list|range(1, 4)|list|range(5, 0, -2)|list|range(0)|list|range(1, 2, 0)|range(1000000)|list|length|dict(a=1, b=2)|dict({'a': 1}, b=2)|dict([('a', 1)])|namespace(a=1).a|strftime_now('%Y-%m-%d')|strftime_now('%d %b %Y')|raise_exception('no')|nope()|n()|s.nope()|bos_token ~ eos_token|messages|tools is none|documents is defined|add_generation_prompt
huge|huge[0]|huge|tojson|huge|join(' ')|huge[1]|string|huge[3] is integer|huge[3] is float|huge[0] is number|huge[2]|int|huge[1]|abs|huge[3] > huge[1]|huge[0] ~ ''|'%d %s' % (huge[3], huge[2])|{'a': huge[1]}|huge[0]|round
3 in l|'x' in l|'Hell' in s|1 in s|'b' in d|1 in nope|nope in l|nope == none|nope == nope2|nope + 1|nope ~ 'x'|[nope]|{'a': nope}|-nope|-s|+n|- n|abs(n)|[1, 2] + [3]|(1,) + (2,)|[1] + (2,)|[1] * 3|'ab' * 3|2 * 'ab'|[1, [2]] == [1, [2.0]]|{'a': 1} == {'a': 1}|'a' < 'b'|[1, 2] < [1, 3]|1 < 'a'|none < 1|true + true|true == 1|1 / 0|1 // 0|1 % 0|9223372036854775807|10 ** 3|2 ** -1|0.5 ** 2|true ~ false|9223372036854775807 % -3|(-9223372036854775807 - 1) % 7|7 % (-9223372036854775807 - 1)
"""

TEMPLATES = [
    "a\n{% if true %}\n  b\n{% endif %}\nc\n", "  {% if true %}x{% endif %}  \n  {{ 1 }}\n  {# c #}\nend\n\n", "a  {%- if true -%}  b  {%- endif -%}  c", "a \n {{- 1 -}} \n b", "x{#- c -#} y",
    "  {%+ if true %}x{% endif +%}\n  y", "{% raw %}{{ x }}{% endraw %}z", " {%- raw -%} {{ x }} {%- endraw -%} z", "a\r\nb\rc\n", "{{ '}}' }}{{ {'a': {}} }}{{ '%}' }}", "{", "{ {", "a{{ 1 }}\n{{ 2 }}\n",
    "{% for x in l %}{{ x }},{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for x in nope %}a{% else %}b{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}|{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}no{% endfor %}",
    "{% for a in l %}{% for b in w %}{{ loop.index }}{{ a }}{{ b }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}{% endfor %}", "{% for c in 'añ🙂' %}[{{ c }}]{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in d %}{{ x }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{{ loop.depth }}{% endfor %}", "{% for (a, b) in [[1, 2], [3, 4]] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for x in l -%}\n {{ x }}\n{%- endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x|length }}",
    "{% set x | upper | replace('A', 'z') %}abc{% endset %}{{ x }}", "{% set x.y = 1 %}", "{% set d.b = 1 %}", "{% if true %}{% set x = 3 %}{% endif %}{{ x }}", "{% if 0 %}a{% elif '' %}b{% elif 1 %}c{% else %}d{% endif %}", "{% if nope %}a{% else %}b{% endif %}", "{% if nope.x %}a{% endif %}",
    "{% macro m(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=5) }}|{{ m(b=3, a=4) }}|{{ m() }}", "{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(3) }}",
    "{% macro m() %}{{ caller() }}!{% endmacro %}{% call m() %}in{% endcall %}", "{% macro m() %}{{ caller('x') }}{% endmacro %}{% call(y) m() %}<{{ y }}>{% endcall %}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }}", "{% set g = 1 %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ m() }}",
    "{% macro m(x) %}  {{ x }}\n{% endmacro %}[{{ m('a') | trim }}]", "{% macro m(a) %}{% set a = a + 1 %}{{ a }}{% endmacro %}{% set a = 5 %}{{ m(1) }}{{ a }}", "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | trim %} aXa {% endfilter %}", "{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% generation %}x{{ n }}{% endgeneration %}", "{% for x in [1] %}{% set y = 1 %}{% endfor %}{{ y is defined }}", "{{ x }}{% set x = 1 %}{{ x }}", "{% set l2 = l + [9] %}{{ l2 }}{{ l }}", "{% set m = messages[0] if messages else 'no' %}{{ m }}", "{{ 1 if true }}{{ '' if false }}|",
    "{% for x in l | sort | reverse %}{{ x }}{% endfor %}", "{% for x in (1, 2) %}{{ x }}{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}", "{%- for x in l %}\n    {{- x }}\n{%- endfor %}\n", "{% for a in o %}{{ a.k }}{{ a['v'] }}{{ a.n.y }}{% endfor %}", "{% set x = [] %}{% set _ = x.append(1) %}{{ x }}",
    "{{", "{{ 1", "{% if %}", "{% endif %}", "{% for x in %}{% endfor %}", "{% if 1 %}", "{% frob %}", "{{ 1 + }}", "{{ 'a }}", "{# open", "{{ a b }}", "{{ (1 }}", "{{ [1 }}", "{% break %}", "{{ 1 | nope }}", "{{ f(a=1, 2) }}", "{{ 1 if }}", "{% set 1 = 2 %}", "{% macro 1() %}{% endmacro %}", "{{ ) }}",
    "{% extends 'x' %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% set x = 1, %}{{ x }}", "{{ ''.__class__ }}", "{{ s.__len__ }}", "{{ [].__class__.__base__ }}", "{{ d.__init__ }}|", "{{ range.__globals__ }}|", "{{ 'a\nb' }}", "{{ \"a\\\nb\" }}", "{%if 1%}a{%endif%}", "{{1}}{{-2}}{{+3}}", "a\n\n{%- if 1 %}\n\nb\n{%- endif %}\n\n",
    "{% if 1 -%}\n\n  x{% endif %}", "\n{% if 1 %}\n{% endif %}\n", "a {% if 1 %} b {% endif %} c", "{#\nc\n#}\nx", "x\n  {#- c #}\ny", "  {{ 1 }}  \n  {% set a = 1 %}  \n  b", "{{ {'a': 1}.a }}{{ [1, 2][0] }}{{ 'abc'[1] }}", "{% for x in l %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
]


def cases():
    flat = [e for line in EXPRESSIONS.strip("\n").split("\n") for e in pieces(line)]
    yield from TEMPLATES
    yield from dict.fromkeys("{{ " + e + " }}" for e in flat)
    yield from ("{{ " + f"{a}|{f}" + " }}" for a, f in itertools.product(["z", "0", "false", "e", "nope", "n"], FILTERS))
    yield from ("{{ " + f"{a} {o} {b}" + " }}" for a, o, b in itertools.product(OPERANDS, OPERATORS, OPERANDS))


def pieces(line):
    """A row's expressions end at each "|" that a filter's name does not follow; so each prefix of filters is one."""
    parts = line.split("|")
    filters = {"upper", "lower", "title", "capitalize", "length", "reverse", "list", "first", "last", "trim", "replace", "join", "map", "sum", "max", "min", "sort", "dictsort", "items",
               "unique", "select", "reject", "selectattr", "rejectattr", "default", "d", "string", "int", "float", "abs", "round", "indent", "wordcount", "center", "truncate", "escape", "urlencode", "batch", "slice", "format", "tojson", "groupby", "striptags"}
    expression = ""
    for p in parts:
        if expression and p.split("(")[0].strip() in filters:
            expression += "|" + p
        elif p:
            expression = p
        else:
            continue
        yield expression


def compare(program):
    all_cases = [(t, [], None, DATA, False) for t in cases()]
    same = refused = bad = 0
    for case, (text, error, _) in zip(all_cases, rendered(program, all_cases)):
        want = expected(*case)
        want = want if want is None else want.encode("utf-8", "surrogatepass")
        same += want is not None and text == want
        refused += want is None and text is None
        if text != want and not known(want):
            bad += 1
            print(f"{case[0]!r}\n  want {expected.why if want is None else want}\n  got  {error if text is None else text}")
    print(f"{same} equal, {refused} refused by both, {bad} differ")
    assert same > 1000 and refused > 300, "too few"
    return bad


def known(want):
    """Where weft differs on purpose: what is no list in Python is one here, functions print otherwise, and there are no complex numbers."""
    ours = (b"<generator", b"<function", b"<built-in", b"dict_", b"range(", b" object at", b"j)")
    return want is not None and any(w in want for w in ours)


MARK = "\u00a4"
ORIGINS = {  # and what is the template's own of what they write
    "{{ c }}": "", "<|{{ c }}|>": "<||>", "{{ '<' ~ c ~ '>' }}": "<>", "{{ ('a' + c + 'b')[1:-1] }}": "", "{{ c | upper }}x": "x", "{{ (c ~ 'x') | title }}": "x",
    "{{ 'x-y' | replace('-', c) }}": "xy", "{{ c | replace('k', 'Z') }}": "Z", "{{ [c, 'x'] | join('|') }}": "|x", "{{ c.split('k') }}": "[, ]", "{{ c | tojson }}": "",
    "{{ {'a': c} | tojson }}": '{"a": }', "{{ [c] }}": "[]", "{% set x %}a{{ c }}b{% endset %}{{ x | trim }}": "ab", "{{ '%s!' % c }}": "!", "{{ '{}!'.format(c) }}": "!",
    "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(c) | indent(2, true) }}": "  <>", "{% filter upper %}a{{ c }}{% endfilter %}": "A", "{{ c | list | join }}": "", "{{ c[::-1] }}": "",
    "{{ messages[0].content }}<|end|>": "<|end|>", "<|{{ messages[0].role }}|>": "<|user|>", "{% for k, v in messages[0].items() %}{{ k }}:{{ v }}\n{% endfor %}": ":user\n:\n",
    "{{ tools | tojson }}!": "!", "{{ c.strip() ~ 'a'.center(3, '*') }}": "*a*", "{{ (c | lower).title().removeprefix('x') }}": "", "{{ n }}<{{ n + 1 }}>{{ loop is defined }}": "<>False",
    "{{ c if c else 'x' }}{{ (c, 'y') | last }}": "y", "{{ d.values() | first }}{{ d | dictsort }}": "[(, )]", "{{ '%5s|' | format(n) }}": "   |", "{{ bos_token }}{{ c }}": "<s>",
    "{{ dict(**k) | tojson }}": "{: , : }", "{{ dict(**k).keys() | last }}|{{ namespace(**k) and '' }}": "|", "{% macro m() %}{{ kwargs.keys() | join(',') }}{% endmacro %}{{ m(**k) }}": ",",
    "{{ '%(a)s<' | format(**k) }}": "<", "{{ (o | groupby('x') | first).grouper }}": "", "{{ ('<b>' ~ c ~ '</b>&lt;') | striptags }}": "<",
}


def origins(program):
    """What is outside of the ranges that came with the data is what the template wrote."""
    content = f"{MARK}k{MARK}K{MARK}"
    tools = [{"type": "function", "function": {"name": content}}]
    all_cases = [(t, [{"role": "user", "content": content}], tools, {"c": content, "n": 12, "d": {"q": content}, "k": {"a": content, content: 1}, "o": [{"x": content}]}, False) for t in ORIGINS]
    bad = 0
    for case, (text, error, ranges), want in zip(all_cases, rendered(program, all_cases), ORIGINS.values()):
        own, at = b"", 0
        for begin, end in [*ranges, (len(text or b""), None)]:
            own, at = own + (text or b"")[at:begin], end
        if text != expected(*case).encode() or own.decode() != want:
            print(f"{case[0]}: {error or text}, its own is {own}, want {want}; {ranges}")
            bad += 1
    return bad


if __name__ == "__main__":
    if compare(sys.argv[1]) + origins(sys.argv[1]):
        sys.exit("differences")
