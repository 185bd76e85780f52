#!/usr/bin/env python3
"""The built-in demo model continues its prompts with the text that llama.cpp gave (models/demo.expected.json); the first one also with
heads of 64 dimensions (bench/widen_heads.py). With a KV cache in Q8_0 its perplexity is nearly what it is with F16.

    demo.py WEFT SOURCES DEVICE
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from common import build_once, resolve, told
import tolerances

weft, sources, device = sys.argv[1:4]
device = resolve(weft, device)
once = build_once(weft, device)
with open(os.path.join(sources, 'models', 'demo.expected.json'), encoding='utf-8') as f:
    cases = json.load(f)
cases = cases if isinstance(cases, list) else cases['cases']


def check(case, name, *model):
    done = subprocess.run([weft, 'run', '-q', *model, '-p', case['prompt'], '--temp', '0', '--device', device, *once], capture_output=True, text=True, timeout=600)
    want, got = case['text'], done.stdout.rstrip('\n')
    ok = done.returncode == 0 and got and want.endswith(got) and len(want) - len(got) <= len(case['prompt']) + 1
    print(f'{"ok" if ok else "FAILED":6} {device}: {name}, {case["prompt"]!r}: {len(got)} characters, exit {done.returncode} {done.stderr[-300:]}')
    if not ok:
        print(f'want {want!r}\ngot  {got!r}')
    return ok


oks = [check(case, 'built in') for case in cases]
with tempfile.TemporaryDirectory() as folder:
    wide = os.path.join(folder, 'wide.gguf')
    subprocess.run([sys.executable, os.path.join(sources, 'bench', 'widen_heads.py'), os.path.join(sources, 'models', 'demo.gguf'), wide], check=True)
    oks.append(check(cases[0], 'heads of 64', '-m', wide))
    text = os.path.join(folder, 'text')
    with open(text, 'w', encoding='utf-8') as f:
        f.write('\n'.join(case['text'] for case in cases))
    f16, q8_0 = (float(re.search(r'PPL = ([\d.]+)', told(weft, 'perplexity', '-f', text, '-c', 64, '--kv-dtype', kv, '--device', device, *once)).group(1))
                 for kv in ('f16', 'q8_0'))
off = q8_0 / f16 - 1
oks.append(q8_0 != f16 and abs(off) <= tolerances.rows('KV')['Q8_0'][2])
print(f'{"ok" if oks[-1] else "FAILED":6} {device}: perplexity {f16} with KV in F16, {q8_0} in Q8_0: {off:+.3%}')
sys.exit(not all(oks))
