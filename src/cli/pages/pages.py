"""Manual pages and completions of shells, from the tables of the program:

    pages.py WEFT VERSION FOLDER

writes man1/weft.1, a page in man1/ for each command, and the completions `weft` (bash), `_weft` (zsh) and `weft.fish` into the folder.
"""
import datetime
import os
import shutil
import sys

import man
import shells
import tables


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def day():
    """That of the sources where they say it, as builds of packages do."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    when = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc) if seconds else datetime.datetime.now()
    return when.strftime("%Y-%m-%d")


def write_manual(folder, program, version):
    shutil.rmtree(folder, ignore_errors=True)  # there may be pages of commands that are no more
    os.mkdir(folder)
    for name, text in man.pages(program, version, day()):
        write(os.path.join(folder, name), text)


def main(weft, version, folder):
    program = tables.Program(weft)
    write_manual(os.path.join(folder, "man1"), program, version)
    for name, text in (("weft", shells.bash(program)), ("_weft", shells.zsh(program)), ("weft.fish", shells.fish(program))):
        write(os.path.join(folder, name), text)


main(*sys.argv[1:])
