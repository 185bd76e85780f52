#!/usr/bin/env python3
"""A story in each format that `weft convert` writes, generated greedily through the cache by trained models: stories260K in the formats whose blocks
fit its rows of 64, the demo model in those with blocks of 256 (with mixes, which hold several formats).

Each id must be the choice of a float64 pass over the file's decoded weights, or as likely up to the tolerance of two logits, and the log
probabilities of the best ids must be that pass's. In F32 stories260K writes its known story.

IQ2 and IQ3, which `weft convert` does not write, have the demo model's matrices of layers: the test writes these files with the library's encoders.

    formats.py WEFT DECODE ENCODE SOURCES DEVICE [TYPE...]     without types: all
"""
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

from common import end, np, resolve, say, told as run
import gguf_write as gw
import part
import reference
import tolerances

STORIES = ['F32', 'F16', 'BF16', 'Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'IQ4_NL', 'MXFP4']
DEMO = ['Q2_K', 'Q3_K_M', 'Q4_K_M', 'Q5_K_M', 'Q6_K', 'IQ4_XS']
GRIDS = ['IQ2_XXS', 'IQ2_XS', 'IQ2_S', 'IQ3_XXS', 'IQ3_S']
ALIGNMENT = 32
LENGTH = 150  # before the first near tie of the known story


def write_grids(encode, source, kind, out):
    """A GGUF file with the source's metadata and tensors, of which the matrices of layers are encoded."""
    f = reference.File(source)
    infos, data, at = [], [], 0
    for name, (dims, number, _) in f.tensors.items():
        is_matrix = name.startswith('blk.') and len(dims) > 1
        x = f.weight(name).astype('<f4').tobytes()
        data.append(subprocess.run([encode, kind if is_matrix else 'F32'], input=x, capture_output=True, check=True).stdout)
        infos.append(struct.pack('<Q', len(name)) + name.encode() + struct.pack(f'<I{len(dims)}QIQ', len(dims), *dims, gw.TYPES[kind if is_matrix else 'F32'][0], at))
        data.append(bytes(-len(data[-1]) % ALIGNMENT))
        at += len(data[-2]) + len(data[-1])
    head = bytes(f.buf[: f.end_of_meta]) + b''.join(infos)
    out.write_bytes(head + bytes(-len(head) % ALIGNMENT) + b''.join(data))


class Test:
    def __init__(self, weft, decode, encode, sources, device, top):
        self.weft, self.decode, self.encode, self.sources, self.top = weft, decode, encode, pathlib.Path(sources), pathlib.Path(top)
        self.device = resolve(weft, device)

    def write(self, model, prompt):
        """Ids, and of each the log probabilities of the best ones."""
        rows = run(self.decode, model, self.device, ','.join(map(str, prompt)), LENGTH).split('\n')[:-1]
        pairs = [[pair.split(':') for pair in row.split()[1:]] for row in rows]
        return [int(row.split()[0]) for row in rows], [{int(token): float(p) for token, p in row} for row in pairs]

    def story(self, source, kind, prompt):
        model = self.top / 'story.gguf'
        if kind in GRIDS:
            write_grids(self.encode, source, kind, model)
        else:
            run(self.weft, 'convert', '-m', source, '-o', model, '--type', kind, '-q', '--force')
        ids, best = self.write(model, prompt)
        logits = reference.Model(model).logits([*prompt, *ids[:-1]])[len(prompt) - 1:]
        size, limit = logits.max() - logits.min(), 2 * tolerances.rows('MODEL')['logits'][0]  # both are differences of two
        behind = (logits.max(1) - logits[np.arange(len(ids)), ids]).max() / size
        say(f'{source.stem} {kind} ids', len(ids) == LENGTH and behind <= limit, f'{len(ids)}, at most {behind:.1e} of the range behind the best, limit {limit:g}')
        logs = logits - logits.max(1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(1, keepdims=True))
        worst = np.max([abs(p - row[token]) for row, tops in zip(logs, best) for token, p in tops.items()], initial=0) / size  # NaN stays
        say(f'{source.stem} {kind} log probabilities', all(best) and worst <= limit, f'{worst:.1e} of the range, limit {limit:g}')
        return ids


def main():
    data = pathlib.Path(os.environ.get('WEFT_TEST_DATA', pathlib.Path(sys.argv[4]) / '..' / 'shared' / 'data'))
    known = data / 'stories260K.tokens.txt'
    if not known.exists():
        print(f'skipped: {known} is not there')
        sys.exit(77)  # meson: skipped
    with tempfile.TemporaryDirectory() as top:
        test = Test(*sys.argv[1:6], top)
        types = sys.argv[6:] or [*STORIES, *DEMO, *GRIDS]
        demo = test.sources / 'models' / 'demo.gguf'
        begin = [int(i) for i in run(test.weft, 'tokenize', '-m', demo, '-p', 'One day').split()]
        expected = [int(i) for i in known.read_text().split()][:LENGTH]
        for kind in part.mine('model', types) if test.device != 'cpu' else types:
            ids = test.story(data / 'stories260K.gguf', kind, [1]) if kind in STORIES else test.story(demo, kind, begin)
            if kind == 'F32':
                say('the known story', ids == expected, f'{len(ids)} ids')
    end()


if __name__ == '__main__':
    main()
