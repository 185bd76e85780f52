#!/usr/bin/env python3
"""A folder whose experts are quantised as in gpt-oss's own: blocks of 16 bytes, neighbours in a byte, and scales beside them.

- What weft makes of them has, by the format's definition, the values that went in, with gate and up apart; also as MXFP4 in a GGUF file.
- The folder with these values in BF16 gives the same logits.
- Blocks without scales, or of other shapes, are errors that name the tensor.

    mxfp4.py WEFT SOURCES
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from common import end, np, run, say
import hf
import reference
import tolerances
from folders import header_of

VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])  # OCP Microscaling Formats 1.0: E2M1
EXPERTS = '.mlp.experts.'


def read(path):
    """Name: (type, shape, bytes)."""
    data = path.read_bytes()
    header, size = header_of(data)
    return {name: (t['dtype'], t['shape'], data[8 + size + t['data_offsets'][0]:8 + size + t['data_offsets'][1]]) for name, t in header.items()}


def write(path, tensors):
    header, at = {}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {'dtype': kind, 'shape': list(shape), 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, 'little') + text + b''.join(data for _, _, data in tensors.values()))


def bf16(x):
    bits = np.ascontiguousarray(x, '<f4').view('<u4')
    assert not (bits & 0xFFFF).any(), 'BF16 holds these values exactly'
    return (bits >> 16).astype('<u2').tobytes()


def quantised(tensors, rng):
    """The tensors with random blocks, the same in BF16, and the values [experts, rows, columns] by name."""
    blocks, plain, values = dict(tensors), dict(tensors), {}
    for name, (_, shape, _) in tensors.items():
        if EXPERTS not in name or name.endswith('_bias'):
            continue
        n, cols, rows = shape
        codes, scales = rng.integers(0, 16, (n, rows, cols // 32, 32), np.uint8), rng.integers(122, 126, (n, rows, cols // 32), np.uint8)
        values[name] = (VALUES[codes] * 2.0 ** (scales.astype(float) - 127)[..., None]).reshape(n, rows, cols)
        plain[name] = 'BF16', [n, cols, rows], bf16(values[name].swapaxes(1, 2))
        del blocks[name]
        blocks[name + '_blocks'] = 'U8', [n, rows, cols // 32, 16], (codes[..., ::2] | codes[..., 1::2] << 4).tobytes()
        blocks[name + '_scales'] = 'U8', scales.shape, scales.tobytes()
    return blocks, plain, values


def folder_of(source, out, tensors, config):
    out.mkdir()
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        (out / name).write_bytes((source / name).read_bytes())
    hf.write_json(out, 'config.json', config)
    write(out / 'model.safetensors', tensors)
    return out


def check_values(weft, folder, values, top):
    for kind in ('F32', 'MXFP4'):
        run(weft, 'convert', '-m', folder, '-o', top / 'out.gguf', '--type', kind, '-q', '--force')
        f, wrong = reference.File(top / 'out.gguf'), []
        for name, x in values.items():
            layer = f'blk.{name.split(".")[2]}.ffn_'
            parts = {'gate': x[:, ::2], 'up': x[:, 1::2]} if 'gate_up' in name else {'down': x}
            wrong += [layer + part for part, want in parts.items() if not np.array_equal(f.weight(f'{layer}{part}_exps.weight').ravel(), want.ravel())]
        say(f'values as {kind}', not wrong, ', '.join(wrong) or f'{len(values)} tensors')


def check_logits(weft, one, other, ids, top):
    got = []
    for model in (one, other):
        run('env', 'WEFT_FORCE=grouped_gemm=ref', weft, 'perplexity', '-m', model, '--tokens', ','.join(map(str, ids)), '--logits', top / 'got.npy', '--device', 'cpu')
        got.append(np.load(top / 'got.npy'))
    error = tolerances.model_error('logits', *got)
    say('logits', error <= 1, f'{error:.2f} of the tolerance')


def check_damage(weft, source, blocks, config, top):
    def spoilt(change):
        tensors = dict(blocks)
        change(tensors)
        return tensors
    first = 'model.layers.0.mlp.experts.%s'
    kind, (n, rows, groups, size), data = blocks[first % 'gate_up_proj_blocks']
    cases = [
        (lambda t: t.pop(first % 'down_proj_scales'), 'down_proj_scales'),
        (lambda t: t.pop(first % 'gate_up_proj_blocks'), 'ffn_'),
        (lambda t: t.update({first % 'gate_up_proj_blocks': (kind, [n, rows, groups * 2, size // 2], data)}), 'gate_up_proj_blocks'),
        (lambda t: t.update({first % 'gate_up_proj_blocks': (kind, [n * rows, groups, size], data)}), 'gate_up_proj_blocks'),
        (lambda t: t.update({first % 'gate_up_proj_blocks': ('I8', [n, rows, groups, size], data)}), 'I8'),
        (lambda t: t.update({first % 'gate_up_proj_scales': ('U8', [n, rows * groups], t[first % 'gate_up_proj_scales'][2])}), 'gate_up_proj_scales'),
        (lambda t: t.update({first % 'gate_up_proj_bias': ('BF16', [1, 3], bytes(6))}), 'gate_up_proj_bias'),
    ]
    for i, (change, message) in enumerate(cases):
        folder = folder_of(source, top / f'bad{i}', spoilt(change), config)
        done = subprocess.run([weft, 'info', '-m', folder], capture_output=True, text=True)
        say(f'damage {i}', done.returncode == 3 and message in done.stderr, done.stderr.strip()[-160:])


def main():
    weft, sources = sys.argv[1], pathlib.Path(sys.argv[2])
    source = sources / 'tests/model/data/gpt-oss'
    config = json.loads((source / 'config.json').read_text())
    mxfp4 = dict(config, quantization_config={'quant_method': 'mxfp4', 'modules_to_not_convert': ['lm_head']})
    blocks, plain, values = quantised(read(source / 'model.safetensors'), np.random.default_rng(1))
    facts = json.loads((source / 'ids.json').read_text())
    with tempfile.TemporaryDirectory() as name:
        top = pathlib.Path(name)
        one, other = folder_of(source, top / 'mxfp4', blocks, mxfp4), folder_of(source, top / 'bf16', plain, config)
        check_values(weft, one, values, top)
        check_logits(weft, one, other, facts['prompt'] + facts['generated'], top)
        check_damage(weft, source, blocks, mxfp4, top)
    end()


if __name__ == '__main__':
    main()
