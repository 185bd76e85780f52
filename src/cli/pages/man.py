"""Manual pages in the macros of man(7)."""
import re
import textwrap

SPECIAL = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}


def escape(text):
    text = "".join(SPECIAL.get(c, c) for c in text)
    return re.sub(r"(?m)^\.", r"\\&.", text)


def filled(text):
    """A paragraph in short lines."""
    return escape(textwrap.fill(text, 64, break_long_words=False, break_on_hyphens=False))


def bold(text):
    return rf"\fB{escape(text)}\fR"


def link(page):
    return f".BR {escape(page)} (1)"


def row(head, text):
    return f".TP\n{head}\n{filled(text)}\n"


def option_head(option):
    head = ", ".join(map(bold, option.spellings))
    return head + (rf" \fI{escape(option.arg)}\fR" if option.arg else "")


def running(text):
    """Text in paragraphs; lines that are indented stay as they are."""
    out = ""
    for indented, block in re.findall(r"((?:^ +.*\n?)+)|((?:^\S.*\n?)+)", text, re.M):
        out += f".PP\n.RS 2\n.nf\n{escape(re.sub('(?m)^  ', '', indented))}.fi\n.RE\n" if indented else f".PP\n{filled(block)}\n"
    return out.removeprefix(".PP\n")


def page(name, version, day, brief, synopsis, body, others):
    also = " ,\n".join(map(link, others))
    title = escape(name.upper())
    return (f".\\\" Made from the tables of the program.\n.TH {title} 1 {day} \"weft {version}\" \"weft\"\n.SH NAME\n{filled(f'{name} - {brief[0].lower()}{brief[1:]}')}\n"
            f".SH SYNOPSIS\n{synopsis}\n{body}.SH SEE ALSO\n{also}\n")


def of_command(command, program, version, day):
    body = f".SH DESCRIPTION\n{filled(command.summary)}\n"
    if command.more:
        body += f".PP\n{running(command.more)}"
    body += ".SH OPTIONS\n"
    for title, options in command.groups:
        body += f".SS {escape(title)}\n" + "".join(row(option_head(option), option.help) for option in options)
    family = [other.page for other in program.commands if other is not command and other.name.split()[0] == command.name.split()[0]]
    synopsis = f"{bold('weft ' + command.name)} {filled(command.usage)}"
    return page(command.page, version, day, command.brief, synopsis, body, ["weft", *family])


def of_program(program, version, day):
    about = re.search(r"^Usage: (weft) (.*)\n\n(.*)", program.help)
    body = f".SH DESCRIPTION\n{filled(about[3])}\n"
    body += ".SH COMMANDS\n" + "".join(f".TP\n{link(command.page)}\n{filled(command.brief)}\n" for command in program.commands)
    for title, note, rows in program.sections():
        if title != "Commands":
            body += f".SH {escape(title.upper())}\n" + (f"{filled(note)}\n" if note else "")
            body += "".join(row(bold(words), text) for words, text in rows)
    synopsis = f"{bold(about[1])} {escape(about[2])}"
    return page("weft", version, day, about[3].rstrip("."), synopsis, body, [command.page for command in program.commands])


def pages(program, version, day):
    yield "weft.1", of_program(program, version, day)
    for command in program.commands:
        yield f"{command.page}.1", of_command(command, program, version, day)
