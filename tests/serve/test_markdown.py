"""Markdown on the page: what becomes of answers, friendly and hostile, whole and as they come."""
import json
import random

import page
import serve

SAFE = ["https://example.org/a?b=c#d", "http://example.org/", "mailto:somebody@example.org"]
UNSAFE = ["javascript:hurt()", "JavaScript:hurt()", " javascript:hurt()", "java\\script:hurt()", "javascript&colon;hurt()", "javascript&#58;hurt()", "\x01javascript:hurt()",
          "data:text/html,<script>hurt()</script>", "data:text/html;base64,PHNjcmlwdD4=", "vbscript:hurt()", "file:///etc/passwd", "blob:null/1", "about:blank",
          "view-source:x", "intent://example.org", "//example.org", "/v1/models", "#weft", "", "https://", "http:", "https:///"]
TICK = "```"
HOSTILE = ["<script>hurt()</script>", "<img src=x onerror=hurt()>", "<svg onload=hurt()>", "<a href='javascript:hurt()'>x</a>", "<iframe srcdoc='<script>hurt()</script>'>",
           "</div></main><script>hurt()</script>", "<style>*{display:none}</style>", "&lt;script&gt;hurt()&lt;/script&gt;", "<!-- <b> -->", "<![CDATA[<script>hurt()]]>",
           "`<script>hurt()</script>`", f"{TICK}html\n<script>hurt()</script>\n{TICK}", f"{TICK}\"onclick=hurt() <b>\nx\n{TICK}", f"{TICK}\n<b>never ended", f"- {TICK}\n  <b>\ny", "~~~\n```\n~~",
           "| <b> | <i> |\n|---|---|\n| <img src=x onerror=hurt()> | [x](javascript:hurt()) |", "# <h1 onclick=hurt()>", "> <b>\n> - <i>", "1. <script>hurt()</script>",
           "[<img src=x onerror=hurt()>](https://example.org)", '[x](https://example.org "\\" onclick=hurt() x=")', '[x](https://example.org/"onclick="hurt())', "![x](x onerror=hurt())",
           "[a [b](https://b.example) c](https://c.example)", "[x](<javascript:hurt()>)", "https://example.org/<script>hurt()</script>", 'https://example.org/"onmouseover="hurt()',
           "<https://example.org/onerror=hurt()>", "<br onclick=hurt()>", "[x](view-source:https://example.org)", "\u202e<script>\u0000hurt()</script>", "[x]\n(javascript:hurt())", "[x](java\nscript:hurt())",
           *(f"[x]({u}) ![x]({u}) <{u}>" for u in UNSAFE)]
# What an answer may be made of: tags and their attributes.
ALLOWED = {"p": "", "br": "", "wbr": "", "hr": "", "em": "", "strong": "", "del": "", "ul": "", "ol": "start", "li": "", "blockquote": "", "h4": "", "h5": "", "h6": "", "code": "",
           "a": "href title rel target", "figure": "class", "figcaption": "", "span": "", "button": "class type aria-label", "pre": "tabindex dir",
           "div": "class tabindex", "table": "", "thead": "", "tbody": "", "tr": "", "th": "class scope", "td": "class"}
RENDER = """
    window.render = (...texts) => {
        const box = document.createElement("div"), view = new markdown.View(box);
        for (const text of texts) view.set(text);
        return box;
    };
    window.depth = e => { let n = 0; for (let level = [e]; level.length; n++) level = level.flatMap(x => [...x.children]); return n; };
"""
LONG = f"""# A title #
Some *text* with **bold ~~gone~~** and `co``de` 😀, [a link](https://example.org "t") and
| a | b |
|:--|--:|
| 1 | `x \\| y` |
| 2

1. one
   - in it
     {TICK}c
     int x;

     y
     {TICK}
2. two

   more
* * *
> quote
> > deeper
***both*** snake_case_word 2*3*4 <br> \\*no\\* https://example.org/a_(b).
{TICK}python
# no title
| a |
{TICK}
- [ ] x\r\n- y\r
~~~
never ended
"""


def code(language, text):
    return (f'<figure class="code"><figcaption><span>{language}</span><button class="plain copy" type="button" aria-label="Copy the {language or "text"} block">Copy</button>'
            f'</figcaption><pre tabindex="0" dir="ltr"><code>{text}</code></pre></figure>')


def link(href, text):
    return f'<a title="{href}" href="{href}" rel="noopener noreferrer" target="_blank">{text}</a>'


# What people see of what models write.
ELEMENTS = [
    ("a *b* **c** ***d*** _e_ __f__ ~~g~~", "<p>a <em>b</em> <strong>c</strong> <em><strong>d</strong></em> <em>e</em> <strong>f</strong> <del>g</del></p>"),
    ("**a *b* c** 2 * 3 * 4 snake_case_x a**b", "<p><strong>a <em>b</em> c</strong> 2 * 3 * 4 snake_case_x a**b</p>"),
    ("`a*b*` ``x ` y`` `` ` `` `open", "<p><code>a*b*</code> <code>x ` y</code> <code>`</code> `open</p>"),
    ("\\*a\\* \\[x\\] c:\\dir &amp; 1<2", "<p>*a* [x] c:\\dir &amp;amp; 1&lt;2</p>"),
    ("first\nsecond<br>third", "<p>first\nsecond<br>third</p>"),
    ("# a\n## b ##\n#### c#\n#d", "<h4>a</h4><h5>b</h5><h6>c#</h6><p>#d</p>"),
    ("a\n\n---\n* * *\nb", "<p>a</p><hr><hr><p>b</p>"),
    ("> a\n> # b\n\n> c", "<blockquote><p>a</p><h4>b</h4></blockquote><blockquote><p>c</p></blockquote>"),
    ("x:\n- a\n  - b\n- c\n\n  d\n+ e", "<p>x:</p><ul><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p><p>d</p></li></ul><ul><li><p>e</p></li></ul>"),
    ("2. a\n   b\n3. c\n  - d\n\nIn\n1984. Not", '<ol start="2"><li><p>a\nb</p></li><li><p>c</p><ul><li><p>d</p></li></ul></li></ol><p>In\n1984. Not</p>'),
    (f"{TICK}c++ x\n  a < b\n\n\tc\n{TICK}\nd", code("c++", "  a &lt; b\n\n\tc") + "<p>d</p>"),
    (f"~~~~\n~~~\n{TICK}\n~~~~~", code("", f"~~~\n{TICK}")),
    (f"- {TICK}sh\n  ls\n  {TICK}", f"<ul><li>{code('sh', 'ls')}</li></ul>"),
    ("T:\n| a | *b* |\n|---|:-:|\n| 1 | `2` \\| 3 |\n| 4 | 5 | 6 |\n| 7\nend\n\n| x |\n|--|--|",
     '<p>T:</p><div class="table" tabindex="0"><table><thead><tr><th scope="col">a</th><th class="middle" scope="col"><em>b</em></th></tr></thead><tbody>'
     '<tr><td>1</td><td class="middle"><code>2</code> | 3</td></tr><tr><td>4</td><td class="middle">5</td></tr><tr><td>7</td></tr><tr><td>end</td></tr></tbody></table></div><p>| x |\n|--|--|</p>'),
    ("[a *b*](https://example.org/x_(y)) ![pic](<https://example.org/p>) (see https://example.org/a_b.)", "<p>" + link("https://example.org/x_(y)", "a <em>b</em>") + " "
     + link("https://example.org/p", "pic") + " (see " + link("https://example.org/a_b", "https://example.org/a_b") + ".)</p>"),
    ("[https://a.example](https://b.example/) [](https://c.example/)", "<p>" + link("https://b.example/", "https://a.example") + " " + link("https://c.example/", "https://c.example/") + "</p>"),
]
# Each repeated to a length at which anything but linear work would not end.
REPEATED = ["*a ", "a* ", "*a **b ", "_a*", "~~a ", "[", "](", "[a](", "[a](b \"", "![", "[*", "*[", "]", "`", "` ", "`a``b```c", "<", "<br ", "\\", "(", "https://", "https://a)", "> ", "- ", "1. ",
            ">- ", "#", "# ", " ", "\t", "\n", " \n", "|", "| a ", "|-", "a|b\n-|-\n", "-", "- \n", "-   x\n\n", "* ", "~~~\n", "```\n", "```a\n", "> a\n", "    ", "&amp;", "[a](https://b.c) ",
            "[x](https://a.b/" + "(" , "[" + " " * 50, "](" + " " * 50, "a\n\n"]


class Markdown(page.TestCase):
    def setUp(self):
        if not self.b.js("window.render !== undefined"):
            super().setUp()
            self.b.js(RENDER)

    def html(self, *texts):
        return self.b.js(f"render(...{json.dumps(texts)}).innerHTML")

    def test_elements(self):
        for text, want in ELEMENTS:
            with self.subTest(text):
                self.assertEqual(self.html(text), want)

    def test_links(self):
        """Only three schemes are followed, and the page that is gone to knows nothing of this one."""
        for address in SAFE:
            self.assertEqual(self.b.js(f"(a => [a.href, a.rel, a.target])(render({json.dumps(f'[x]({address})')}).querySelector('a'))"), [address, "noopener noreferrer", "_blank"])
        for address in UNSAFE:
            for text in (f"[x]({address})", f"[x](<{address}>)", f"![x]({address})", address):
                self.assertEqual(self.b.js(f"render({json.dumps(text)}).querySelectorAll('a').length"), 0, text)

    def test_hostile(self):
        """In the page, nothing of it runs, and every element and attribute is one of those that answers are made of."""
        for text in HOSTILE:
            made = self.b.js(f"""(() => {{
                const box = document.body.appendChild(render({json.dumps(text)}));
                const made = [...box.querySelectorAll("*")].map(e => [e.localName, e.getAttributeNames(), e.protocol ?? "https:"]);
                box.remove();
                return made;
            }})()""")
            for tag, names, protocol in made:
                self.assertLessEqual(set(names), set(ALLOWED[tag].split()), text)
                self.assertIn(protocol, ("https:", "http:", "mailto:"), text)
        self.assertEqual(self.b.js("typeof hurt"), "undefined")

    def test_nothing_is_lost(self):
        """What means nothing is shown as it was written."""
        for text in ("<script>hurt()</script>", "[x](javascript:hurt())", "&lt;b&gt;", "**open", "[open", "a ** b", "<br", "~x~", "****a****"):
            self.assertEqual(self.b.js(f"render({json.dumps(text)}).textContent"), text)

    def same_however_cut(self, text):
        """Behind any beginning, and letter by letter, the whole looks as it does at once."""
        return self.b.js(f"""(() => {{
            const text = {json.dumps(text)}, whole = render(text), cuts = [...text].map((_, i) => i).filter(i => !render(text.slice(0, i), text).isEqualNode(whole));
            return cuts.length || !render(...[...text].map((_, i) => text.slice(0, i + 1)), text).isEqualNode(whole) ? cuts : null;
        }})()""")

    def test_cut_anywhere(self):
        self.assertIsNone(self.same_however_cut(LONG))
        for text in [t for t, _ in ELEMENTS] + HOSTILE:
            self.assertIsNone(self.same_however_cut(text), text)

    def test_cut_anywhere_made_up(self):
        parts = ["\n", "\n", "\n", "\n\n", "  ", "- ", "1. ", "> ", "# ", TICK, "~~~", "|", "|-|-|", "a|b", "--", "---", "*", "**", "_", "`", "[", "](https://a.b)", "a", "b c", "\\", "\r\n", "\t", "😀"]
        draw = random.Random(7)
        for _ in range(150):
            text = "".join(draw.choices(parts, k=24))
            self.assertIsNone(self.same_however_cut(text), repr(text))

    def test_long(self):
        """50 KB of what makes others slow, and never deeper than a browser can draw."""
        for part in REPEATED:
            deep = self.b.js(f"depth(render({json.dumps(part)}.repeat({50_000 // len(part)})))")
            self.assertLess(deep, 100, part)
        lists = "\n".join("  " * i + "- x" for i in range(400))
        self.assertLess(self.b.js(f"depth(render({json.dumps(lists)}))"), 100)
        self.assertLess(self.b.js("depth(render('*a **b _c '.repeat(9999) + 'c_ b** a*'.repeat(9999)))"), 200)

    def test_many_marks(self):
        """All are there, but never so many together that a browser would be busy with them, also where they lie in several elements."""
        for mark in ("\u0301", "\U0001f3fb", "\u200d"):
            for text in ("e" + mark * 9999, f"{TICK}\ne{mark * 999}\n{TICK}", f"**{mark * 40}** [{mark * 40}](https://a.b)".replace(" ", "")):
                runs, shown = self.b.js(f"""(box => {{
                    const shown = box.textContent;
                    for (const e of box.querySelectorAll("wbr")) e.replaceWith(" ");
                    return [(box.textContent.match(/[\\p{{M}}\\p{{EMod}}\\u200d]+/gu) ?? []).map(run => [...run].length), shown];
                }})(render({json.dumps(text)}))""")
                self.assertLessEqual(max(runs), 64)
                self.assertEqual(shown.count(mark), text.count(mark))
        self.assertEqual(self.html("e" + "\u0301" * 64), f"<p>e{chr(0x301) * 64}</p>")

    def test_wide_tables(self):
        for n in (100, 101):
            text = "\n".join("|" + cell * n for cell in (" a |", "-|", " b |"))
            self.assertEqual(self.b.js(f"render({json.dumps(text)}).querySelectorAll('td').length"), n if n <= 100 else 0)
            self.assertEqual(self.b.js(f"render({json.dumps(text)}).textContent").count("b"), n)

    def test_what_is_seen_stays(self):
        """A code block that has the focus keeps it while the answer goes on, also while the block itself grows."""
        self.assertTrue(self.b.js(f"""(() => {{
            const box = document.body.appendChild(document.createElement("div")), view = new markdown.View(box), text = {json.dumps(f"a{chr(10)}{TICK}c{chr(10)}int")};
            view.set(text);
            const button = box.querySelector("button"), letters = box.querySelector("code").firstChild;
            button.focus();
            for (const more of [" x;", " x;\\n{TICK}\\n", " x;\\n{TICK}\\nand\\n\\nmore *text*"]) view.set(text + more);
            const same = document.activeElement === button && letters.data === "int x;" && letters.isConnected;
            box.remove();
            return same;
        }})()"""))


class Streamed(page.TestCase):
    def test_bytes(self):
        """An answer that comes byte by byte, through letters of several bytes, too, looks as it does at once, and after a reload."""
        self.fake()
        answer = LONG + "<script>hurt()</script> é 漢 😀"
        self.ask("Hello")
        data = (page.event(answer) + page.END).encode()
        self.b.js(f"""(async () => {{
            for (const byte of {json.dumps(list(data))}) {{
                stream.enqueue(Uint8Array.of(byte));
                if (byte === 92 || byte > 127) await new Promise(requestAnimationFrame);
            }}
            stream.close();
        }})()""")
        self.until_answered(1)
        whole = self.b.js(RENDER + f"render({json.dumps(answer)}).innerHTML")
        self.assertEqual(self.b.js("document.querySelector('.answer .words').innerHTML"), whole)
        self.reload()
        self.assertEqual(self.b.js("document.querySelector('.answer .words').innerHTML"), whole)

    def test_slow_to_draw(self):
        """What grows is drawn once a frame, and no sooner than after four times what that took the last time."""
        self.fake()
        self.b.js("""window.clock = 1000, performance.now = () => clock += 0.001, window.drawn = 0,
                     (real => { markdown.View.prototype.set = function (text) { drawn++; clock += 100; real.call(this, text); }; })
                     (markdown.View.prototype.set)""")
        self.ask("Hello")
        for passed, drawn in ((0, 1), (0, 1), (350, 1), (60, 2), (350, 2), (60, 3)):
            self.b.js(f"clock += {passed}")
            for _ in range(5):
                self.feed(page.event("a") * 9)
                self.b.js("new Promise(requestAnimationFrame).then(() => 1)")
            self.b.until(f"drawn >= {drawn}")
            self.assertEqual(self.b.js("drawn"), drawn)
        self.feed(page.END)
        self.b.js("stream.close()")
        self.until_answered(1)
        self.assertEqual(self.b.js("[drawn, document.querySelector('.answer .words').textContent.length]"), [4, 6 * 5 * 9])

    def test_many_marks(self):
        """Nor in what is no Markdown: messages, thoughts and texts that are continued."""
        self.fake()
        many = "e" + "\u0301" * 1000
        self.ask(many)
        self.feed(page.event(reasoning_content=many) + page.event("Yes") + page.END)
        self.b.js("stream.close()")
        self.until_answered(1)
        self.b.js("document.querySelector('#mode-text').click()")
        self.ask(many)
        self.feed("data: " + json.dumps({"choices": [{"index": 0, "text": many}]}) + "\n\ndata: [DONE]\n\n")
        self.b.js("stream.close()")
        self.until_answered(2)
        for where in (".user .words", ".thoughts div", ".given", ".given + span"):
            self.assertEqual(self.b.js(f"(e => [e.textContent.length, e.querySelectorAll('wbr').length])"
                                       f"([...document.querySelectorAll('{where}')].findLast(e => e.textContent))"), [1001, 15])

    def test_pieces(self):
        """Drawn after each piece."""
        self.fake()
        self.ask("Hello")
        for at in range(0, len(LONG), 9):
            self.feed(page.event(LONG[at:at + 9]))
            self.b.js("new Promise(requestAnimationFrame).then(() => 1)")
        self.feed(page.END)
        self.b.js("stream.close()")
        self.until_answered(1)
        self.assertEqual(self.b.js("document.querySelector('.answer .words').innerHTML"), self.b.js(RENDER + f"render({json.dumps(LONG)}).innerHTML"))


if __name__ == "__main__":
    serve.main()
