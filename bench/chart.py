#!/usr/bin/env python3
"""Draws the rates of whole models, weft's beside a peer's, as horizontal bars. Each row has its own scale.

    chart.py bench/results/nvidia-h200.csv bench/baselines/nvidia-h200-llamacpp.csv >docs/throughput.svg

The first file has weft's results; of several rows with the same op and shape the last one counts. The second has lines
op,dtype,shape,peer,rate,unit. Needs nothing but Python.
"""
import csv
import html
import sys

WIDTH, LEFT, BAR, GAP, TOP, SPAN = 800, 200, 20, 20, 70, 420
WEFT, PEER = '#c0392b', '#b8bec4'


def rows_of(path):
    with open(path, newline='') as f:
        yield from csv.DictReader(line for line in f if not line.startswith('#'))


def label(op, shape):
    d = {k: int(v) for k, v in (part.split('=') for part in shape.split(',') if '=' in part)}
    if op == 'model_prompt':
        return f'prefill, {d["P"]} tokens'
    n = d.get('B', 1)
    return f'decode, {n} sequence{"s" if n > 1 else ""}'


def text(x, y, content, size=13, anchor='start', more=''):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" {more}>{html.escape(content)}</text>'


def bar(y, rate, most, colour, name):
    width = SPAN * rate / most
    return (f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>',
            text(LEFT + width + 8, y + 15, f'{float(f"{rate:.3g}"):,.0f} tokens/s, {name}'))


def draw(weft, peers, device):
    height = TOP + len(peers) * (2 * BAR + GAP)
    name = f'Tokens per second of weft and {peers[0]["peer"]}, Llama-3-8B shape, F16, on one {device}'
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" fill="#333" role="img" '
           f'aria-label="{html.escape(name)}">')
    yield f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    yield text(20, 28, f'Llama-3-8B shape, F16, one {device}', 17, more='font-weight="bold"')
    yield text(20, 50, 'tokens per second; each pair of bars has its own scale', 12, more='fill="#777"')
    for i, p in enumerate(peers):
        y = TOP + i * (2 * BAR + GAP)
        own, other = weft[p['op'], p['dtype'], p['shape']], float(p['rate'])
        yield text(LEFT - 14, y + BAR + 5, label(p['op'], p['shape']), 14, 'end')
        yield from bar(y, own, max(own, other), WEFT, 'weft')
        yield from bar(y + BAR, other, max(own, other), PEER, p['peer'])
    yield '</svg>'


def main(results, baseline):
    rows = list(rows_of(results))
    weft = {(r['op'], r['dtype'], r['shape']): float(r['rate']) for r in rows if not (r['op'].startswith('model_') and r['variant'])}
    peers = list(rows_of(baseline))
    missing = [p['shape'] for p in peers if (p['op'], p['dtype'], p['shape']) not in weft]
    if not peers or missing:
        sys.exit(f'{results} has no row for {missing or "any peer"}: measure it with weft bench --results')
    print('\n'.join(draw(weft, peers, rows[0]['device'].removeprefix('NVIDIA '))))


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
