#!/usr/bin/env python3
"""Draws a roofline from a file of results: rate over arithmetic intensity, weft's kernels and their peers.

    roofline.py bench/results/nvidia-h200.csv >roofline.svg

The roofs are the ceilings behind the file's column ceiling_pct. Of several measurements of one shape and variant the
last one counts. Needs nothing but Python.
"""
import csv
import html
import math
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 960, 600, 80, 60, 40, 220
DTYPE_BYTES = {'F32': 4, 'F16': 2, 'BF16': 2, 'Q8_0': 34 / 32, 'Q4_0': 18 / 32, 'Q6_K': 210 / 256}
COLOURS = {'gemm': '#1f6fb4', 'decode_attention': '#c0392b', 'prefill_attention': '#2e8b57'}


def work(op, dtype, shape):
    """Operations and bytes of one run, as src/lab/shape.c counts them."""
    d = {k: int(v) for k, v in (part.split('=') for part in shape.split(','))}
    if op == 'gemm':
        m, n, k = d['M'], d['N'], d['K']
        return 2 * m * n * k, n * k * DTYPE_BYTES[dtype] + 2 * m * (n + k)
    b, length, heads, kv, dim = d['B'], d['L'], d.get('H', 32), d.get('KV', 8), d.get('D', 128)
    decode = op == 'decode_attention'
    keys = length if decode else length * (length + 1) / 2
    q = 0 if decode else 4 * b * length * heads * dim
    return 4 * heads * dim * b * keys, 4 * b * length * kv * dim + q


def load(path):
    points = {}
    with open(path, newline='') as f:
        for r in csv.DictReader(f):
            if r['op'] not in COLOURS:
                continue
            flops, size = work(r['op'], r['dtype'], r['shape'])
            own = flops / (float(r['median_us']) * 1e-6)
            point = {**r, 'x': flops / size, 'y': own}
            if r['peer']:
                point['peer_y'] = own * float(r['peer_rate']) / float(r['rate'])
            points[r['op'], r['dtype'], r['shape'], r['variant'], r['peer']] = point
    return list(points.values())


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


def roofs(points):
    """Bytes and operations a second. At either end of the intensities it is plain which one ceiling_pct is of."""
    top = [(p['x'], p['y'] / (float(p['ceiling_pct']) / 100)) for p in points if p['ceiling_pct']]
    if not top:
        return None, None
    read = median([y / x for x, y in top if x <= 2 * min(x for x, _ in top)])
    ops = max(y for _, y in top)
    return read, ops


def log_scale(values, low, high):
    a, b = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    b = max(b, a + 1)
    return lambda v: low + (math.log10(v) - a) / (b - a) * (high - low), [10.0 ** i for i in range(a, b + 1)]


class Svg:
    def __init__(self):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
                      f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']

    def line(self, x1, y1, x2, y2, colour='#ddd', width=1):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>')

    def dot(self, x, y, colour, filled, title):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour if filled else "none"}" stroke="{colour}">'
                          f'<title>{html.escape(title)}</title></circle>')

    def text(self, x, y, text, anchor='start', colour='#222'):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{html.escape(text)}</text>')

    def end(self):
        return '\n'.join(self.parts + ['</svg>', ''])


def axes(svg, sx, sy, xs, ys):
    for v in xs:
        svg.line(sx(v), TOP, sx(v), HEIGHT - BOTTOM)
        svg.text(sx(v), HEIGHT - BOTTOM + 18, f'{v:g}', 'middle')
    for v in ys:
        svg.line(LEFT, sy(v), WIDTH - RIGHT, sy(v))
        svg.text(LEFT - 8, sy(v) + 4, f'{v / 1e12:g}', 'end')
    svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, 'operations a byte', 'middle')
    svg.text(LEFT - 60, TOP - 16, 'TFLOP/s')


def roof(svg, sx, sy, xs, read, ops):
    ridge = ops / read
    ridge = min(max(ridge, xs[0]), xs[-1])
    svg.line(sx(xs[0]), sy(xs[0] * read), sx(ridge), sy(ridge * read), '#222', 2)
    svg.line(sx(ridge), sy(ops), sx(xs[-1]), sy(ops), '#222', 2)
    svg.text(WIDTH - RIGHT + 8, sy(ops) + 4, f'{ops / 1e12:.3g} TFLOP/s')
    svg.text(sx(xs[0]) + 8, sy(xs[0] * read) - 8, f'{read / 1e9:.4g} GB/s')


def legend(svg, device):
    svg.text(LEFT, TOP - 16 - 8, device)
    rows = [(op, colour, True) for op, colour in COLOURS.items()] + [('the same by a peer', '#555', False)]
    for i, (name, colour, filled) in enumerate(rows):
        svg.dot(WIDTH - RIGHT + 16, TOP + 80 + 20 * i, colour, filled, name)
        svg.text(WIDTH - RIGHT + 28, TOP + 84 + 20 * i, name)


def draw(points):
    read, ops = roofs(points)
    tops = [p['y'] for p in points] + [p['peer_y'] for p in points if 'peer_y' in p]
    sx, xs = log_scale([p['x'] for p in points], LEFT, WIDTH - RIGHT)
    sy, ys = log_scale(tops + ([xs[0] * read, ops] if read else []), HEIGHT - BOTTOM, TOP)
    svg = Svg()
    axes(svg, sx, sy, xs, ys)
    if read:
        roof(svg, sx, sy, xs, read, ops)
    for p in points:
        what = f"{p['op']} {p['dtype']} {p['shape']}"
        if 'peer_y' in p:
            svg.dot(sx(p['x']), sy(p['peer_y']), COLOURS[p['op']], False, f"{what}: {p['peer']}, {float(p['peer_rate']):.4g} {p['unit']}")
        svg.dot(sx(p['x']), sy(p['y']), COLOURS[p['op']], True, f"{what}: {p['variant']}, {float(p['rate']):.4g} {p['unit']}")
    legend(svg, points[0]['device'])
    return svg.end()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    points = load(sys.argv[1])
    if not points:
        sys.exit(f'{sys.argv[1]} has no rows of single ops')
    sys.stdout.write(draw(points))


main()
