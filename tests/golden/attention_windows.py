#!/usr/bin/env python3
"""Sparse attention with --attention-windows, over prompt and answer, in the built-in model.

    attention_windows.py WEFT SOURCES DEVICE

With windows as long as the context the text is the one of models/demo.expected.json. With short ones it is the one that
an independent float64 forward pass gives under the same mask, as far as no two logits nearly tie, and another text.
"""
import json
import os
import sys
import tempfile

from common import build_once, np, resolve, told
import reference

weft, sources, device = sys.argv[1:4]
device = resolve(weft, device)
once = build_once(weft, device)

# One kernel for prompt and answer, where drivers compile for seconds; the op tests meet the others.
FORCE = {'WEFT_FORCE': 'attention=decode'} if device.startswith('opencl') else {}
CONTEXT, STEPS, SINK = 512, 48, 2
NEAR = 0.05  # logits that lie closer may change places by the rounding of F16


def run(*command, env=None):
    return told(weft, *command, env={**os.environ, **(env or {})})


def write(path, model, window):
    rows = [' '.join(str(window(layer, head)) for head in range(model.heads)) for layer in range(model.layers)]
    with open(path, 'w', encoding='utf-8') as f:
        f.write('weft-attention-windows 1\nsink %d\n%s' % (SINK, ''.join(f'layer {i} {row}\n' for i, row in enumerate(rows))))


def greedy(model, tokens):
    """Ids, up to where two nearly tie."""
    new = []
    while len(new) < STEPS:
        logits = model.logits(tokens + new)[-1]
        second, first = np.sort(logits)[-2:]
        if first - second < NEAR:
            break
        new.append(int(logits.argmax()))
    return new


def main():
    model = reference.Model(os.path.join(sources, 'models', 'demo.gguf'))
    with open(os.path.join(sources, 'models', 'demo.expected.json'), encoding='utf-8') as f:
        case = json.load(f)['cases'][0]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'windows')

        def answer(window):
            write(path, model, window)
            return case['prompt'] + run('run', '-q', '-p', case['prompt'], '-n', str(STEPS), '--temp', '0', '--device', device, '--attention-windows', path, *once, env=FORCE).rstrip('\n')

        wide = answer(lambda layer, head: CONTEXT)
        short = answer(lambda layer, head: (3, 7, 16, 0, 1)[(layer + head) % 5])
        model.windows = reference.read_windows(path)
    ids = greedy(model, case['prompt_ids'])
    want = run('detokenize', *map(str, case['prompt_ids'] + ids), env={'WEFT_HIDE_SPECIAL': '1'}).rstrip('\n')
    print(f'{device}: {len(ids)} tokens before the first near tie')
    print(f'wide  {wide!r}\nshort {short!r}\nwant  {want!r}')
    return 0 if case['text'].startswith(wide) and short.startswith(want) and len(ids) > 9 and not case['text'].startswith(want) else 1


sys.exit(main())
