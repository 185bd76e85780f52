#!/usr/bin/env python3
"""The example in weft.h compiles as it stands there against the library and writes a text; the library exports
what the headers declare and nothing else; each public header compiles alone, as C and as C++.

    test_api.py BUILD
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INCLUDE = os.path.join(ROOT, 'include')
HEADERS = sorted(os.listdir(os.path.join(INCLUDE, 'weft')))


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **more)


class Api(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def test_example(self):
        with open(os.path.join(INCLUDE, 'weft', 'weft.h'), encoding='utf-8') as f:
            lines = re.search(r'@example\n(.*?)\n \* @endexample', f.read(), re.S).group(1).split('\n')
        source, program = os.path.join(self.folder, 'e.c'), os.path.join(self.folder, 'e')
        pathlib.Path(source).write_text('\n'.join(re.sub(r'^ \*( {5})?', '', line) for line in lines), encoding='utf-8')
        made = run('cc', '-std=c11', '-Wall', '-Wextra', '-Werror', '-I', INCLUDE, source, '-o', program, '-L', BUILD, '-lweft',
                   f'-Wl,-rpath,{BUILD}')
        self.assertEqual(made.returncode, 0, made.stderr)
        done = run(program)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertGreater(len(done.stdout.split()), 20, done.stdout)

    def test_exports(self):
        listed = run('nm', '-D', '--defined-only', os.path.join(BUILD, 'libweft.so')).stdout.split('\n')
        names = {line.split()[-1] for line in listed if line}
        words = [word for header in HEADERS for word in ('-include', f'weft/{header}')]
        text = run('cc', '-E', '-P', '-I', INCLUDE, *words, '-x', 'c', '/dev/null').stdout
        declared = set(re.findall(r'visibility\("default"\)\)\)[^;{(]*?(\w+)\(', text))
        self.assertIn('weft_engine_open', declared)
        self.assertEqual(names, declared)

    def test_headers_alone(self):
        for header in HEADERS:
            for language in ('c', 'c++'):
                if language == 'c++' and not shutil.which('c++'):
                    continue
                done = run('cc', '-x', language, '-Wall', '-Wextra', '-Werror', '-fsyntax-only', '-I', INCLUDE, '-include', f'weft/{header}',
                           '/dev/null')
                self.assertEqual(done.returncode, 0, f'{header} as {language}: {done.stderr}')


if __name__ == '__main__':
    unittest.main()
