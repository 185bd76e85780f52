#!/usr/bin/env python3
"""The built-in demo model continues its prompts with the text that llama.cpp gave (models/demo.expected.json).

    demo.py WEFT SOURCES DEVICE
"""
import json
import os
import subprocess
import sys

from device import build_once, resolve

weft, sources, device = sys.argv[1:4]
device = resolve(weft, device)
once = build_once(weft, device)
with open(os.path.join(sources, 'models', 'demo.expected.json'), encoding='utf-8') as f:
    cases = json.load(f)
failed = 0
for case in cases if isinstance(cases, list) else cases['cases']:
    done = subprocess.run([weft, 'run', '-q', '-p', case['prompt'], '--temp', '0', '--device', device, *once], capture_output=True, text=True, timeout=600)
    want, got = case['text'], done.stdout.rstrip('\n')
    ok = done.returncode == 0 and got and want.endswith(got) and len(want) - len(got) <= len(case['prompt']) + 1
    failed += not ok
    print(f'{"ok" if ok else "FAILED":6} {device}: {case["prompt"]!r}: {len(got)} characters, exit {done.returncode} {done.stderr[-300:]}')
    if not ok:
        print(f'want {want!r}\ngot  {got!r}')
sys.exit(failed > 0)
