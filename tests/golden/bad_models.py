#!/usr/bin/env python3
"""Models whose numbers, vocabulary or tensors make no sense: each ends in exit code 3 and a message that names
the key or tensor, never in a crash.

    bad_models.py WEFT SOURCES
"""
import os
import subprocess
import sys
import tempfile

from common import rows


def try_model(weft, path, name):
    done = subprocess.run([weft, 'run', '-m', path, '-p', 'a', '-n', '2', '--device', 'cpu'], capture_output=True, text=True, timeout=120)
    if done.returncode != 3 or name not in done.stderr or done.stdout:
        return f'exit {done.returncode}, stdout {done.stdout[:80]!r}, stderr {done.stderr[-400:]!r}'
    return None


def broken_weights(weft, make, path):
    """NaN inside a matrix is found when the logits show it: the request fails, by name, with exit code 3."""
    make(['--fill', 'blk.1.ffn_down.weight=nan'])
    done = subprocess.run([weft, 'run', '-m', path, '-p', 'a', '-n', '2', '--device', 'cpu'], capture_output=True, text=True, timeout=120)
    return None if done.returncode == 3 and "finite" in done.stderr else f'exit {done.returncode}, {done.stderr[-300:]!r}'


def main():
    weft, sources = sys.argv[1:3]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'bad.gguf')

        def make(changes):
            subprocess.run([sys.executable, os.path.join(sources, 'tests/model/tiny.py'), *changes, path], check=True)

        results = []
        for changes, name in rows('bad_models.txt', 2):
            make(changes.split())
            results.append((changes, try_model(weft, path, name)))
        results.append(('NaN in a matrix', broken_weights(weft, make, path)))
        for what, problem in results:
            failed += problem is not None
            print(f'{"FAILED" if problem else "ok":6} {what}{": " + problem if problem else ""}')
    sys.exit(failed > 0)


if __name__ == '__main__':
    main()
