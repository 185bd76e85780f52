#!/usr/bin/env python3
"""Programs that were compiled before run with this build: compares the public headers with tests/abi/weft.abi and weft.constants by the rules that
weft.h states, and the names that the library exports with those of the headers. Both files are the headers as they were last agreed on; from the first
release on, those of the last one.

    abi.py BUILD      the test
    abi.py --write    with a release, and before the first one with an agreed change: writes both files anew

The headers are all that a program sees, so what is compared is a library of empty functions made from them. It has debug information
whatever the build has, and takes a second.

weft.h says what may change, and abidiff compares what may not: before, additions are taken out. A field that is shorter than 8 bytes must not lie in
the padding before reserved space, which programs need not have set to zero: that is a change.

No prototype names macros, nor enums of flags, so abidiff does not see them: weft.constants has the values of all, and those stay.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
INCLUDE = os.path.join(ROOT, 'include')
AGREED = os.path.join(HERE, 'weft.abi')
HEADERS = ('weft.h', 'tune.h', 'debug.h')
OF_WEFT = {f'weft_{name}' for name in ('event', 'model_info', 'op_row', 'ceilings', 'tune_row', 'calibration', 'timeline', 'cost', 'profile',
                                     'ablation_row', 'selftest_row', 'kernel', 'candidate')}
ITS_OWN = re.compile(r'WEFT_(API|VERSION\w*|\w+_H)$') # macros that are no constants, or say which release it is
PRINT = """
#include <stdio.h>
#define FORMAT(x) _Generic((x), double: "%s %.17g\\n", char *: "%s \\"%s\\"\\n", default: "%s %d\\n")
#define SAY(x) printf(FORMAT(x), #x, x);
"""
EXPORTED = re.compile(r'__attribute__\(\(visibility\("default"\)\)\)\s*([^;{]*);')


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)


def ok(*command):
    done = run(*command)
    if done.returncode:
        raise RuntimeError(f'{command[0]}: {done.stdout}{done.stderr}')
    return done.stdout


def empty_library(include, folder):
    """libweft.so with the functions of the headers; they do nothing."""
    source, library = os.path.join(folder, 'empty.c'), os.path.join(folder, 'libweft.so')
    includes = ''.join(f'#include <weft/{header}>\n' for header in HEADERS)
    with open(source, 'w', encoding='utf-8') as f:
        f.write(includes)
    functions = EXPORTED.findall(ok('cc', '-E', '-P', '-I', include, source))
    with open(source, 'a', encoding='utf-8') as f:
        f.writelines(f'{function} {{ __builtin_trap(); }}\n' for function in functions)
    ok('cc', '-w', '-g', '-O0', '-fno-eliminate-unused-debug-types', '-shared', '-fPIC', '-I', include, source, '-o', library)
    return library


def names_of_constants(include, source):
    macros = re.findall(r'(?m)^#define (WEFT_\w+) \S', ok('cc', '-E', '-dM', '-I', include, source))
    enums = re.findall(r'(?s)\benum weft_\w+ \{(.*?)\}', ok('cc', '-E', '-P', '-I', include, source))
    values = re.findall(r'(?:^|,)\s*(WEFT_\w+)', ','.join(enums))
    return sorted({name for name in macros + values if not ITS_OWN.match(name)})


def constants(include):
    """Macros and values of enums, a line for each with what it is."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, 'constants.c'), os.path.join(folder, 'constants')
        with open(source, 'w', encoding='utf-8') as f:
            f.writelines(f'#include <weft/{header}>\n' for header in HEADERS)
        says = '\n'.join(f'SAY({name})' for name in names_of_constants(include, source))
        with open(source, 'a', encoding='utf-8') as f:
            f.write(f'{PRINT}int main(void)\n{{\n{says}\nreturn 0;\n}}\n')
        ok('cc', '-w', '-I', include, source, '-o', program)
        return ok(program)


def beside(description):
    return os.path.splitext(description)[0] + '.constants'


def exports(library):
    return {line.split()[-1] for line in ok('nm', '-D', '--defined-only', library).splitlines()}


def take_out(parent, children):
    for child in children:
        parent.remove(child)


def describe(include, out):
    with tempfile.TemporaryDirectory() as folder:
        library = empty_library(include, folder)
        ok('abidw', '--no-corpus-path', '--no-comp-dir-path', '--no-show-locs', '--headers-dir', include, '--drop-private-types', '--type-id-style', 'hash',
           '--out-file', out, library)
    tree = xml.parse(out)
    for struct in tree.iter('class-decl'):
        if not struct.get('name').startswith('weft_'): # FILE is the C library's own
            take_out(struct, list(struct))
    tree.write(out)
    with open(beside(out), 'w', encoding='utf-8') as f:
        f.write(constants(include))


def offset(member):
    return int(member.get('layout-offset-in-bits'))


def members_from(struct, bits):
    """Members that lie at that offset or behind it."""
    return [m for m in struct.findall('data-member') if offset(m) >= bits]


def forget_reserved(old, new):
    """Reserved space, and what took its place."""
    at = [offset(m) for m in old.findall('data-member') if m.find('var-decl').get('name') == 'reserved']
    if at:
        take_out(new, members_from(new, at[0]))
        take_out(old, members_from(old, at[0]))


def forget_growth(old, new):
    size = int(old.get('size-in-bits'))
    if int(new.get('size-in-bits')) > size:
        take_out(new, members_from(new, size))
        new.set('size-in-bits', str(size))


def forget_values(old, new):
    highest = max(int(e.get('value')) for e in old.findall('enumerator'))
    take_out(new, [e for e in new.findall('enumerator') if int(e.get('value')) > highest])


def without_additions(old, new):
    """Both descriptions without what weft.h lets a release add."""
    old, new = xml.parse(old), xml.parse(new)
    for kind, forget in (('class-decl', forget_reserved), ('class-decl', forget_growth), ('enum-decl', forget_values)):
        now = {t.get('name'): t for t in new.iter(kind) if not t.get('is-declaration-only')}
        for t in old.iter(kind):
            if t.get('name') in now and not t.get('is-declaration-only') and (forget is not forget_growth or t.get('name') in OF_WEFT):
                forget(t, now[t.get('name')])
    return old, new


def lines_of(path):
    with open(path, encoding='utf-8') as f:
        return f.read().splitlines()


def changed_constants(old, new):
    now = set(lines_of(beside(new)))
    return ''.join(f'no longer: {line}\n' for line in lines_of(beside(old)) if line not in now)


def compare(old, new):
    """What is to be said against `new`; '': nothing."""
    return changed_constants(old, new) + changed_interface(old, new)


def changed_interface(old, new):
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, name) for name in ('old.abi', 'new.abi')]
        for tree, path in zip(without_additions(old, new), files):
            tree.write(path)
        done = run('abidiff', '--no-default-suppression', '--no-show-locs', '--no-architecture', '--no-added-syms', *files)
    return '' if not done.returncode else done.stdout + done.stderr or f'abidiff ended with {done.returncode}'


class Abi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        cls.now = os.path.join(temp.name, 'now.abi')
        describe(INCLUDE, cls.now)

    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name

    def test_agreed(self):
        self.assertEqual(compare(AGREED, self.now), '')

    def test_names(self):
        self.assertEqual(exports(os.path.join(BUILD, 'libweft.so')), exports(empty_library(INCLUDE, self.folder)))

    def changed(self, header, old, new):
        """What is said of headers in which `old` is `new`."""
        include = os.path.join(self.folder, 'include')
        shutil.rmtree(include, ignore_errors=True)
        shutil.copytree(INCLUDE, include)
        path = os.path.join(include, 'weft', header)
        with open(path, encoding='utf-8') as f:
            text, n = re.subn(old, new, f.read(), flags=re.S)
        self.assertEqual(n, 1, f'{old} is {n} times in {header}')
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        after = os.path.join(self.folder, 'changed.abi')
        describe(include, after)
        return compare(self.now, after)

    def test_breaks_are_seen(self):
        params, end = r'(struct weft_request_params \{[^}]*?)', r'uint64_t reserved\[8\];\n\};'
        for header, old, new in (
                ('weft.h', r'WEFT_API void weft_cancel\([^;]*;', ''),
                ('weft.h', r'WEFT_API void weft_cancel\(', 'WEFT_API int weft_cancel('),
                ('weft.h', r'weft_wait\(struct weft_request \*r, uint32_t ms\)', 'weft_wait(struct weft_request *r, uint64_t ms)'),
                ('weft.h', params + 'int32_t priority;', r'\1int64_t priority;'),
                ('weft.h', params + 'bool ignore_eos;', r'\1'),
                ('weft.h', params + 'uint32_t min_tokens;', r'\1int more; uint32_t min_tokens;'),
                ('weft.h', params + end, r'\1uint64_t more, reserved[8];};'),
                ('weft.h', params + end, r'\1uint64_t more, reserved[6];};'),
                ('weft.h', params + end, r'\1bool more; uint64_t reserved[8];};'),
                ('weft.h', r'(struct weft_stats \{[^}]*?)uint64_t steps,', r'\1uint64_t'),
                ('weft.h', r'(struct weft_event \{[^}]*?)float logprob;', r'\1double logprob;'),
                ('weft.h', r'(struct weft_event \{[^}]*?)size_t text_len;', r'\1int more; size_t text_len;'),
                ('weft.h', r'(struct weft_logprob \{[^}]*?)\};', r'\1float more; };'),
                ('weft.h', r'WEFT_ERR_ARG,', 'WEFT_ERR_MORE, WEFT_ERR_ARG,'),
                ('weft.h', r'WEFT_FINISH_LENGTH,', ''),
                ('weft.h', r'WEFT_TEXT_HIDE_SPECIAL = 4', 'WEFT_TEXT_HIDE_SPECIAL = 8'),
                ('weft.h', r'WEFT_SAMPLING_MIN_P = 8,', ''),
                ('weft.h', r'#define WEFT_MAX_TOP 20', '#define WEFT_MAX_TOP 19'),
                ('weft.h', r'"builtin:demo"', '"builtin:story"'),
                ('tune.h', r'#define WEFT_LOGIT_STEP 0.03125', '#define WEFT_LOGIT_STEP 0.0625'),
                ('tune.h', r'(struct weft_timeline_op \{[^}]*?)\};', r'\1double more; };'),
                ('tune.h', r'(struct weft_op_params \{[^}]*?)uint32_t repeat;', r'\1'),
                ('debug.h', r'bool poison;', 'uint64_t poison;')):
            with self.subTest(old=old, new=new):
                self.assertNotEqual(self.changed(header, old, new), '')

    def test_additions_pass(self):
        params, end = r'(struct weft_request_params \{[^}]*?)', r'uint64_t reserved\[8\];\n\};'
        for header, old, new in (
                ('weft.h', r'WEFT_API void weft_cancel', 'WEFT_API int weft_more(int); WEFT_API void weft_cancel'),
                ('weft.h', params + end, r'\1const char *more; uint64_t reserved[7];};'),
                ('weft.h', params + end, r'\1uint64_t more; uint32_t more2, more3; uint64_t reserved[6];};'),
                ('weft.h', r'(struct weft_sampling \{[^}]*?)uint64_t reserved\[8\];', r'\1double more; bool more2; uint64_t reserved[6];'),
                ('weft.h', r'(struct weft_event \{[^}]*?)\};', r'\1uint64_t more; };'),
                ('weft.h', r'(struct weft_model_info \{[^}]*?)\};', r'\1const char *more; };'),
                ('weft.h', r'(WEFT_ERR_NOT_FINITE,[^}]*)\};', r'\1WEFT_ERR_MORE, };'),
                ('weft.h', r'WEFT_SAMPLING_REPEAT_LAST_N = 32,', 'WEFT_SAMPLING_REPEAT_LAST_N = 32, WEFT_SAMPLING_MORE = 64,'),
                ('weft.h', r'#define WEFT_MAX_SHOWN', '#define WEFT_MAX_MORE 3\n#define WEFT_MAX_SHOWN'),
                ('tune.h', r'(struct weft_op_row \{[^}]*?)\};', r'\1double more; };'),
                ('tune.h', r'(struct weft_ablation_row \{[^}]*?)\};', r'\1double more; };'),
                ('tune.h', r'(struct weft_timeline \{[^}]*?)\};', r'\1double more; };')):
            with self.subTest(old=old, new=new):
                self.assertEqual(self.changed(header, old, new), '')


if __name__ == '__main__':
    if '--write' in sys.argv:
        sys.exit(describe(INCLUDE, AGREED))
    if not shutil.which('abidiff') or sys.maxsize < 2**32:
        print('abidiff is missing (./setup.sh --test installs it), or this machine has not 64 bits')
        sys.exit(77)
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
