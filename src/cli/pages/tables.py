"""The tables of the program: what `weft --tables` and `weft --help` say, and what the names of arguments mean to a shell."""
import json
import re
import subprocess


class Option:
    def __init__(self, row):
        self.letter, self.name, self.arg, self.help, self.listed = row["letter"], row["name"], row["arg"], row["help"], row["words"]
        self.spellings = ([f"-{self.letter}"] if self.letter else []) + [f"--{self.name}"]

    @property
    def kind(self):
        """What a shell offers for its value: None for a flag, "" for nothing, "model", "device", "folder", "file", or words."""
        if self.listed:
            return self.listed.strip()
        if self.arg is None or self.arg == "DEVICE":
            return self.arg and "device"
        parts = self.arg.split("|")
        words = [part for part in parts if re.fullmatch(r"[a-z][a-z0-9-]*", part)]
        if "FILE" in (part.partition(".")[0] for part in parts):
            return "model" if self.name == "model" else "file"
        return "folder" if "FOLDER" in parts else " ".join(words) if len(words) == len(parts) else ""

    @property
    def brief(self):
        """The beginning of its help, for one line of a list."""
        return re.split(r"[;(]|, e\.g\.|\. ", self.help)[0].strip()


class Command:
    def __init__(self, row):
        self.name, self.usage, self.summary, self.more = row["name"], row["usage"], row["summary"], row["more"] or ""
        self.groups = [(group["title"], [Option(option) for option in group["options"]]) for group in row["groups"]]
        self.options = [option for _, options in self.groups for option in options]
        self.page = "weft-" + self.name.replace(" ", "-")
        self.function = "_weft_" + re.sub(r"\W", "_", self.name)
        self.words = [self.option(name) for name in row["words"]]
        self.rest = "file" if row["takes_args"] else ""  # kind of further words

    def option(self, name):
        return next(option for option in self.options if option.name == name)

    @property
    def brief(self):
        return re.split(r"\.(?: |$)", self.summary)[0]


class Program:
    def __init__(self, weft):
        say = lambda word: subprocess.run([weft, word], stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout
        self.commands = [Command(row) for row in json.loads(say("--tables"))]
        self.help = say("--help")

    def sections(self):
        """Those of `weft --help`: a title, what it adds in parentheses, and rows of words and text."""
        for title, note, body in re.findall(r"^(\w[^:(\n]*?)(?: \((.*)\))?:\n((?:  .*\n)+)", self.help, re.M):
            rows = re.findall(r"^  (\S.*?)  +(\S.*(?:\n {5,}.*)*)", body, re.M)
            yield title, note, [(words, re.sub(r"\s+", " ", text)) for words, text in rows]

    def options(self):
        """Of the program itself, without a command: spellings and help."""
        return next([(words.split(", "), text) for words, text in rows] for title, _, rows in self.sections() if title == "Options")
