"""Makes the C source of the extension module weft._weft out of weft's own header: no declaration is written a second time.

    generate.py PREPROCESSED-HEADER HOOKS OUTPUT
"""
import re
import sys

import cffi

# Functions of native/hooks.c, and what it calls in Python.
HOOKS = """
void open_log(void);
void close_log(void);
void leave_threads(void);
bool in_log(void);
extern "Python" void python_log(int level, const char *line);
extern "Python" bool python_stop(void *user);
extern "Python" void python_progress(void *user, const char *what, double fraction);
"""


def macro(name, value):
    """A macro as cffi declares it: numbers and texts only, whose values the compiler fills in."""
    if value.startswith('"'):
        return f'static const char *const {name};'
    return f'#define {name} ...' if re.match(r'[\d(]', value) else ''


def declarations(preprocessed):
    """What the header declares, in the part of C that cffi reads."""
    text = preprocessed.split('weft_declarations_begin', 1)[1]
    text = re.sub(r'__attribute__\s*\(\(visibility\("default"\)\)\)', '', text)
    text = re.sub(r'^#define (\w+)(?:[ \t]+(.*))?$', lambda m: macro(m[1], m[2] or ''), text, flags=re.M)
    return re.sub(r'^#(?!define \w+ \.\.\.).*$', '', text, flags=re.M)


def main(header, hooks, output):
    ffi = cffi.FFI()
    with open(header, encoding='utf-8') as f:
        ffi.cdef(declarations(f.read()))
    ffi.cdef(HOOKS)
    with open(hooks, encoding='utf-8') as f:
        ffi.set_source('weft._weft', f.read())
    ffi.emit_c_code(output)


main(*sys.argv[1:])
