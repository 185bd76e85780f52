"""PTX as cl/nvidia/ptx.c prints it: scopes resolved, and what their comments say held against their statements.

A scope is a line "{" to a line "}". The last line of its comment says what it reads and writes of the registers around it:

    // Where this work-item reads W.
    // Reads n, m0, a*; writes from_w.
"""
import re

OPERANDS = re.compile(r"(?<![\w.%])[A-Za-z_]\w*")


def declared(line):
    """Registers of a line of .reg: (kind, names)."""
    kind, names = re.fullmatch(r"\.reg \.(\w+) (.*);", line).groups()
    for name in names.split(","):
        stem, count = re.fullmatch(r"(\w+?)(?:<(\d+)>)?", name.strip()).groups()
        for register in [stem] if count is None else [f"{stem}{i}" for i in range(int(count))]:
            yield kind, register


def flat(text):
    """The program without comments and inner scopes, whose registers get names of their own."""
    lines = [line.split("//")[0].strip() for line in text[text.index("\n{") + 2:text.rindex("}")].splitlines()]
    scopes, n, out = [{}], 0, []
    for line in lines:
        if line == "{":
            n += 1
            scopes.append({})
        elif line == "}":
            scopes.pop()
        elif line.startswith(".reg"):
            mine = list(declared(line))
            if len(scopes) > 1:
                scopes[-1].update({name: f"{name}__{n}" for _, name in mine})
                for kind, name in mine:
                    out.append(f".reg .{kind} {name}__{n};")
            else:
                out.append(line)
        elif line:
            known = {name: new for scope in scopes for name, new in scope.items()}
            out.append(OPERANDS.sub(lambda m: known.get(m[0], m[0]), line))
    return text[:text.index("\n{")] + "\n{\n" + "\n".join(out) + "\n}\n"


def operands(statement):
    """(destinations, sources, whether it always happens) of a statement, as names of registers or variables."""
    predicate, rest = re.match(r"(?:@!?(\w+)\s+)?(.*?);?$", statement).groups()
    operation, _, rest = rest.partition(" ")
    parts = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)
    names = [OPERANDS.findall(part) for part in parts]
    condition = [predicate] if predicate else []
    if not names or operation.startswith(("bra", "bar.")):
        return [], condition + (sum(names, []) if operation.startswith("bar.") else []), False
    none = operation.startswith(("st.", "red.", "cp.", "fence", "mbarrier.init", "mbarrier.arrive", "wgmma.fence", "wgmma.co", "wgmma.wait", "setmaxnreg", "membar"))
    to = [] if none else [name for name in names[0] if name != "_"]
    sources = sum(names[0 if none else 1:], []) + (to if operation.startswith("wgmma.mma") else [])
    return to, sources + condition, not predicate


def scopes(text):
    """(title, said to read, said to write, reads, writes) of each inner scope; outer registers only."""
    lines = [line.strip() for line in text[text.index("\n{") + 2:text.rindex("}")].splitlines()]
    stack, done, comment, listed = [], [], [], {}  # listed: the name under which a comment lists a register
    for line in lines:
        line = line.split("//")[0].strip()
        if line.startswith(".reg"):
            for _, name in declared(line):
                stem = re.sub(r"\d+$", "", name)
                listed[name] = stem + "*" if f"{stem}<" in line else name
    for line in lines:
        if line.startswith("//"):
            comment.append(line[2:].strip())
            continue
        code = line.split("//")[0].strip()
        if code == "{":
            stack.append({"comment": comment, "local": set(), "reads": set(), "writes": set(), "known": set()})
        elif code == "}":
            done.append(stack.pop())
        elif code.startswith(".reg") and stack:
            stack[-1]["local"].update(name for _, name in declared(code))
        elif code and not code.endswith(":") and not code.startswith("."):
            to, sources, always = operands(code)
            for names, kind in ((sources, "reads"), (to, "writes")):
                for name in names:
                    for scope in reversed(stack):
                        if name in scope["local"]:
                            break
                        if name in listed and not (kind == "reads" and name in scope["known"]):
                            scope[kind].add(listed[name])
                        if kind == "writes" and always:
                            scope["known"].add(name)
        if code:
            comment = []
    for scope in done:
        said = {"Reads": set(), "writes": set()}
        for kind, names in re.findall(r"(Reads|[Ww]rites) ([^;.]*)", scope["comment"][-1] if scope["comment"] else ""):
            said["Reads" if kind == "Reads" else "writes"].update(re.split(r",\s*", names.strip()))
        yield " ".join(scope["comment"]), said["Reads"], said["writes"] - {"nothing"}, scope["reads"], scope["writes"]


def check_comments(programs):
    """Each scope's comment names all that the scope reads and writes, and nothing that no program's scope of that comment does.
    A scope whose comment ends in "only they read." is a whole role of a program, which names nothing."""
    seen = {}
    for text in programs:
        for title, said_reads, said_writes, reads, writes in scopes(text):
            if title.endswith("only they read."):
                continue
            entry = seen.setdefault(title, (said_reads, said_writes, set(), set()))
            entry[2].update(reads)
            entry[3].update(writes)
    return [f"{title}\n  reads {', '.join(sorted(reads))}\n  writes {', '.join(sorted(writes))}"
            for title, (said_reads, said_writes, reads, writes) in seen.items() if (said_reads, said_writes) != (reads, writes)]
