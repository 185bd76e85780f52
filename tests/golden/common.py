"""What the tests here share: how they report, numpy with one thread (matrices are small here, and threads that wait for each other take
processor time from the tests beside; programs that a test starts see nothing of it), the folders model and support, devices by name
("opencl" stands for the first OpenCL device), and programs that have to succeed.
"""
import os
import pathlib
import re
import subprocess
import sys

os.environ['OPENBLAS_NUM_THREADS'] = '1'
import numpy as np  # noqa: E402, F401

del os.environ['OPENBLAS_NUM_THREADS']
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ('model', 'support')]


def run(*command, **more):
    """What it prints, as bytes."""
    done = subprocess.run([str(c) for c in command], capture_output=True, timeout=600, **more)
    if done.returncode:
        raise RuntimeError(f'{" ".join(map(str, command))}: exit {done.returncode}: {done.stderr.decode()[-500:]}')
    return done.stdout


def told(*command, **more):
    return run(*command, **more).decode()


def rows(name, columns):
    """Those of a table beside the tests that have so many columns, two or three; tabs stand between them."""
    lines = (pathlib.Path(__file__).parent / name).read_text(encoding='utf-8').splitlines()
    all_rows = [line.split('\t') for line in lines if line and not line.startswith('#')]
    found = [row for row in all_rows if len(row) == columns]
    assert found and all(len(row) in (2, 3) for row in all_rows), name
    return found


_failed = []


def say(what, ok, detail=''):
    """One line for each thing that is looked at."""
    print(f'{"ok" if ok else "FAILED":6} {what}: {detail}', flush=True)
    if not ok:
        _failed.append(what)


def end():
    """Of a test that has said all."""
    sys.exit(bool(_failed))


def list_devices(weft):
    return subprocess.run([weft, '--list-devices'], capture_output=True, text=True, check=True).stdout


def resolve(weft, name):
    if name != 'opencl':
        return name
    found = re.search(r'opencl:\d+\.\d+', list_devices(weft))
    if not found:
        print('skipped: no OpenCL device')
        sys.exit(77)  # meson: skipped
    return found.group()


def build_once(weft, device):
    """Options so that an OpenCL device of a CPU compiles each kernel once, not twice; see tests/support/build_once.h."""
    if not re.search(rf'^{re.escape(device)}\s+CPU', list_devices(weft), re.M) or not device.startswith('opencl'):
        return []
    os.environ['WEFT_CLBUILD'] = 'none'
    os.environ['WEFT_NO_KERNEL_CACHE'] = '1'
    return []
