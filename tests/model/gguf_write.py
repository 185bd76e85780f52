"""Writes GGUF files (versions 2 and 3) with numpy, for test and benchmark models.

Weights are quantised to F16, BF16, Q8_0, Q4_0 and Q4_1; in the other block formats they are random
ones of the same size. The writer checks nothing on purpose: tests need files that are wrong.
"""

import struct

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
KINDS = dict(u8=U8, i8=I8, u16=U16, i16=I16, u32=U32, i32=I32, f32=F32, bool=BOOL, str=STRING, u64=U64, i64=I64, f64=F64)
_PACK = dict(zip((U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64), 'BbHhIif?Qqd'))

# name: ggml type, elements a block, bytes a block
TYPES = {
    'F32': (0, 1, 4),
    'F16': (1, 1, 2),
    'BF16': (30, 1, 2),
    'Q8_0': (8, 32, 34),
    'Q4_0': (2, 32, 18),
    'Q4_1': (3, 32, 20),
    'Q5_0': (6, 32, 22),
    'Q5_1': (7, 32, 24),
    'Q2_K': (10, 256, 84),
    'Q3_K': (11, 256, 110),
    'Q4_K': (12, 256, 144),
    'Q5_K': (13, 256, 176),
    'Q6_K': (14, 256, 210),
    'IQ2_XXS': (16, 256, 66),
    'IQ2_XS': (17, 256, 74),
    'IQ2_S': (22, 256, 82),
    'IQ3_XXS': (18, 256, 98),
    'IQ3_S': (21, 256, 110),
    'IQ4_NL': (20, 32, 18),
    'IQ4_XS': (23, 256, 136),
    'MXFP4': (39, 32, 17),
}
# Files that mix formats as llama.cpp's quantiser does: what most tensors have. The output, and value and down matrices of the layers in
# more_bits, have Q6_K.
MIXES = {'Q4_K_M': 'Q4_K', 'Q5_K_M': 'Q5_K'}
# general.file_type, which tools print
FILE_TYPES = {
    'F32': 0, 'F16': 1, 'BF16': 32, 'Q4_0': 2, 'Q4_1': 3, 'Q8_0': 7, 'Q5_0': 8, 'Q5_1': 9, 'Q2_K': 10, 'Q3_K': 11, 'Q4_K': 14, 'Q4_K_M': 15,
    'Q5_K': 16, 'Q5_K_M': 17, 'Q6_K': 18, 'IQ2_XXS': 19, 'IQ2_XS': 20, 'IQ2_S': 28, 'IQ3_XXS': 23, 'IQ3_S': 26, 'IQ4_NL': 25, 'IQ4_XS': 30,
    'MXFP4': 38,
}
# Block formats without a quantiser here: the F16 fields at these offsets that make blocks whose other
# bytes are random have a root mean square of 1 and a mean near 0.
RANDOM_BLOCKS = {
    'Q5_0': ((0, 1 / 9.25),),
    'Q5_1': ((0, 1 / 9.21), (2, -15.5 / 9.21)),
    'Q2_K': ((80, 1 / 10.7), (82, 1.5 / 10.7)),
    'Q3_K': ((108, 1 / 43.3),),
    'Q4_K': ((0, 1 / 168), (2, 7.5 / 168)),
    'Q5_K': ((0, 1 / 336), (2, 15.5 / 336)),
    'Q6_K': ((208, 1 / 1365),),
    'IQ2_XXS': ((0, 1 / 53.5),),
    'IQ2_XS': ((0, 1 / 55.9),),
    'IQ2_S': ((0, 1 / 56.4),),
    'IQ3_XXS': ((0, 1 / 142),),
    'IQ3_S': ((0, 1 / 140),),
    'IQ4_NL': ((0, 1 / 67.5),),
    'IQ4_XS': ((0, 1 / 1240),),
    'MXFP4': (),
}


def base_kind(kind):
    """The format of most tensors."""
    return MIXES.get(kind, kind)


def more_bits(layer, layers):
    """The first and the last eighth of the layers, and every third one between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def size_of(kind, shape):
    _, block, size = TYPES[kind]
    assert shape[-1] % block == 0, f'{kind}: rows of {shape[-1]} are no multiple of {block}'
    return int(np.prod(shape, dtype=np.int64)) // block * size


# ---- quantisation: x [..., K] float32 -> bytes as an u8 array ----------------------------------


def _round(x, lo, hi):
    return np.clip(np.rint(x), lo, hi)


def _inverse(d):
    with np.errstate(divide='ignore'):
        return np.where(d != 0, np.float32(1) / d, np.float32(0))


def _absmax(x):
    """The element of largest magnitude of each row, with its sign."""
    return np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)


def _half_bytes(d):
    return d.astype('<f2').view(np.uint8).reshape(len(d), 2)


def _q_f32(x):
    return x.astype('<f4')


def _q_f16(x):
    return x.astype('<f2')


def _q_bf16(x):
    u = x.view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype('<u2')


def _q_q8_0(x):
    x = x.reshape(-1, 32)
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    q = _round(x * _inverse(d), -127, 127).astype(np.int8)
    return np.hstack([_half_bytes(d), q.view(np.uint8)])


def _q_q4_0(x):
    x = x.reshape(-1, 32)
    d = _absmax(x) / np.float32(-8)
    q = _round(x * _inverse(d) + np.float32(8), 0, 15).astype(np.uint8)
    return np.hstack([_half_bytes(d), q[:, :16] | q[:, 16:] << 4])


def _q_q4_1(x):
    x = x.reshape(-1, 32)
    m = x.min(1, keepdims=True)
    d = (x.max(1, keepdims=True) - m) / np.float32(15)
    q = np.clip(np.floor((x - m) * _inverse(d) + np.float32(0.5)), 0, 15).astype(np.uint8)
    return np.hstack([_half_bytes(d), _half_bytes(m), q[:, :16] | q[:, 16:] << 4])


def _near_mins(kind, b):
    """Minima near the scales of the same groups: else most of a weight would be its group's mean."""
    if kind == 'Q2_K':
        b[:, :16] = b[:, :16] & 31 ^ (b[:, :16] & 15) << 4
    else:
        b[:, 8:12] = b[:, 4:8] ^ b[:, 8:12] & 3
        b[:, 12:16] = b[:, 12:16] & 31 ^ (b[:, 12:16] & 15) << 4


def _random_blocks(kind, x):
    """As many random blocks as x fills, of the same root mean square; the same ones for the same x."""
    _, block, size = TYPES[kind]
    rng = np.random.default_rng(np.frombuffer(x.tobytes()[:64], np.uint32))
    b = rng.integers(0, 256, (x.size // block, size), dtype=np.uint8)
    rms = float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))
    for at, factor in RANDOM_BLOCKS[kind]:
        b[:, at : at + 2] = np.array([factor * rms], '<f2').view(np.uint8)
    if kind in ('Q2_K', 'Q4_K', 'Q5_K'):
        _near_mins(kind, b)
    if kind == 'MXFP4':  # an exponent and no F16; random elements are 2.94 in size
        b[:, 0] = round(np.log2(rms / 2.94)) + 127
    return b


_QUANT = {'F32': _q_f32, 'F16': _q_f16, 'BF16': _q_bf16, 'Q8_0': _q_q8_0, 'Q4_0': _q_q4_0, 'Q4_1': _q_q4_1}


def quantize(kind, x):
    """Encodes float32 x [..., K] row by row; u8 array."""
    x = np.ascontiguousarray(x, np.float32)
    b = _random_blocks(kind, x) if kind in RANDOM_BLOCKS else _QUANT[kind](x)
    return np.ascontiguousarray(b).view(np.uint8).reshape(-1)


# ---- the file ----------------------------------------------------------------------------------


def _string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack('<Q', len(b)) + b


def kind_of(v):
    """Type of a value that was added without one."""
    return {bool: BOOL, int: U32, float: F32}.get(type(v), STRING)


def _scalar(kind, v):
    return _string(v) if kind == STRING else struct.pack('<' + _PACK[kind], v)


class Writer:
    """Collects metadata and tensors; write() makes the file.

    meta: list of [key, kind or None, value]; a list value is an array. tensors: list of
    [name, shape in numpy order (rows, K), type name, bytes or None]. Both may be edited first.
    """

    def __init__(self, version=3, alignment=None):
        self.version, self.meta, self.tensors = version, [], []
        self.alignment = alignment or 32
        if alignment:
            self.add('general.alignment', alignment)

    def add(self, key, value, kind=None):
        self.meta.append([key, kind, value])

    def tensor(self, name, x, kind='F32'):
        self.tensors.append([name, list(x.shape), kind, quantize(kind, x)])

    def reserve(self, name, shape, kind):
        """A tensor whose bytes the caller writes at the offset that layout() gives."""
        self.tensors.append([name, list(shape), kind, None])

    def layout(self):
        """Header bytes, padded; offsets of the tensors' data in the file; size of the file."""
        out = [b'GGUF', struct.pack('<IQQ', self.version, len(self.tensors), len(self.meta))]
        for key, kind, value in self.meta:
            if isinstance(value, (list, tuple)):
                item = kind if kind is not None else kind_of(value[0]) if value else U32
                out.append(_string(key) + struct.pack('<IIQ', ARRAY, item, len(value)))
                out.extend(_scalar(item, v) for v in value)
            else:
                kind = kind_of(value) if kind is None else kind
                out.append(_string(key) + struct.pack('<I', kind) + _scalar(kind, value))
        at, offsets = 0, []
        for name, shape, kind, data in self.tensors:
            out.append(_string(name) + struct.pack('<I', len(shape)))
            out.append(struct.pack(f'<{len(shape)}Q', *reversed(shape)))
            out.append(struct.pack('<IQ', TYPES[kind][0], at))
            offsets.append(at)
            at += size_of(kind, shape) if data is None else len(data)
            at += -at % self.alignment
        head = b''.join(out)
        head += bytes(-len(head) % self.alignment)
        return head, [len(head) + o for o in offsets], len(head) + at

    def write_split(self, path, parts):
        """As llama.cpp splits a model: PATH without .gguf, -00001-of-00003.gguf and so on; returns the first path."""
        each = -(-len(self.tensors) // parts)
        names = [f'{path.removesuffix(".gguf")}-{i + 1:05}-of-{parts:05}.gguf' for i in range(parts)]
        for i, name in enumerate(names):
            part = Writer(self.version)
            part.alignment = self.alignment
            part.meta = [] if i else list(self.meta)
            for key, value, kind in (('no', i, U16), ('count', parts, U16), ('tensors.count', len(self.tensors), I32)):
                part.add('split.' + key, value, kind)
            part.tensors = self.tensors[i * each : (i + 1) * each]
            part.write(name)
        return names[0]

    def write(self, path):
        head, offsets, size = self.layout()
        with open(path, 'wb') as f:
            f.write(head)
            for (_, _, _, data), offset in zip(self.tensors, offsets):
                f.seek(offset)
                f.write(data)
            f.truncate(size)


# ---- a model's metadata ------------------------------------------------------------------------


EXPERT_KEYS = {
    'experts': 'expert_count',
    'experts_used': 'expert_used_count',
    'expert_ffn': 'expert_feed_forward_length',
    'expert_gating': 'expert_gating_func',
    'expert_norm': 'expert_weights_norm',
    'expert_scale': 'expert_weights_scale',
}


def add_model(w, arch, name, s, kind):
    """Hyperparameters under the names that llama.cpp's converter writes. s: a dict, see tiny.py."""
    w.add('general.architecture', arch)
    w.add('general.name', name)
    w.add('general.file_type', FILE_TYPES[kind])
    for key, value in (
        ('context_length', s['context']),
        ('embedding_length', s['width']),
        ('block_count', s['layers']),
        ('feed_forward_length', s['ffn']),
        ('attention.head_count', s['heads']),
        ('attention.head_count_kv', s['kv_heads']),
        ('attention.layer_norm_rms_epsilon', s.get('eps', 1e-5)),
        ('rope.freq_base', s.get('rope_base', 10000.0)),
        ('rope.dimension_count', s.get('rope_dim', s['head_dim'])),
        ('vocab_size', s['vocab']),
        *(((EXPERT_KEYS[key], s[key]) for key in EXPERT_KEYS if key in s)),
    ):
        w.add(f'{arch}.{key}', value)
    if s['head_dim'] * s['heads'] != s['width']:
        w.add(f'{arch}.attention.key_length', s['head_dim'])
        w.add(f'{arch}.attention.value_length', s['head_dim'])
    if s.get('rope_factor', 1.0) != 1.0:
        w.add(f'{arch}.rope.scaling.type', 'linear')
        w.add(f'{arch}.rope.scaling.factor', s['rope_factor'])
    if 'yarn' in s:
        w.add(f'{arch}.rope.scaling.type', 'yarn')
        w.add(f'{arch}.rope.scaling.factor', s['yarn'][0])
        w.add(f'{arch}.rope.scaling.original_context_length', s['yarn'][1])
    for key, name in (
        ('attention.sliding_window', 'window'),
        ('attention.sliding_window_pattern', 'period'),
        ('attn_logit_softcapping', 'attn_softcap'),
        ('final_logit_softcapping', 'logit_softcap'),
    ):
        if name in s:
            w.add(f'{arch}.{key}', s[name])


def add_vocab(w, pieces, size):
    """A SentencePiece vocabulary: <unk> <s> </s>, 256 byte tokens, the pieces, filler to size."""
    tokens = ['<unk>', '<s>', '</s>'] + [f'<0x{b:02X}>' for b in range(256)] + list(pieces)
    tokens += [f'filler{i}' for i in range(len(tokens), size)]
    types = [2, 3, 3] + [6] * 256 + [1] * (size - 259)
    w.add('tokenizer.ggml.model', 'llama')
    w.add('tokenizer.ggml.pre', 'default')
    w.add('tokenizer.ggml.tokens', tokens)
    w.add('tokenizer.ggml.scores', [0.0] * 259 + [float(-i) for i in range(size - 259)])
    w.add('tokenizer.ggml.token_type', types, I32)
    w.add('tokenizer.ggml.bos_token_id', 1)
    w.add('tokenizer.ggml.eos_token_id', 2)
    w.add('tokenizer.ggml.unknown_token_id', 0)
    w.add('tokenizer.ggml.add_bos_token', True)
    w.add('tokenizer.ggml.add_eos_token', False)


def expert_tensors(b, s, apart, kind, better):
    """Of one layer: the router, and the matrices of all experts as one tensor each, or (apart) as older files have them."""
    n, width, ffn = s['experts'], s['width'], s.get('expert_ffn', s['ffn'])
    yield b + 'ffn_gate_inp.weight', (n, width), 'F32'
    for part, rows, cols in (('gate', ffn, width), ('up', ffn, width), ('down', width, ffn)):
        kind_of_part = better if part == 'down' else kind
        if not apart:
            yield f'{b}ffn_{part}_exps.weight', (n, rows, cols), kind_of_part
        for e in range(n if apart else 0):
            yield f'{b}ffn_{part}.{e}.weight', (rows, cols), kind_of_part


def model_tensors(s, kind, tied=False, bias=False, freqs=False, head_norms=False, experts_apart=False):
    """(name, shape, type) of every tensor of a Llama-shaped model, in file order."""
    width, q, kv = s['width'], s['heads'] * s['head_dim'], s['kv_heads'] * s['head_dim']
    mixed, kind = kind in MIXES, base_kind(kind)
    out_kind = kind
    if mixed or kind in ('Q4_0', 'Q4_1'):  # as quantised files have it: the output keeps more bits
        out_kind = 'Q8_0' if width % 256 else 'Q6_K'
    yield 'token_embd.weight', (s['vocab'], width), out_kind if tied else kind
    yield 'output_norm.weight', (width,), 'F32'
    if not tied:
        yield 'output.weight', (s['vocab'], width), out_kind
    if freqs:
        yield 'rope_freqs.weight', (s.get('rope_dim', s['head_dim']) // 2,), 'F32'
    for i in range(s['layers']):
        b = f'blk.{i}.'
        better = 'Q6_K' if mixed and more_bits(i, s['layers']) else kind
        yield b + 'attn_norm.weight', (width,), 'F32'
        for n, rows in (('q', q), ('k', kv), ('v', kv)):
            yield f'{b}attn_{n}.weight', (rows, width), better if n == 'v' else kind
            if bias:
                yield f'{b}attn_{n}.bias', (rows,), 'F32'
        for n in 'qk' if head_norms else '':
            yield f'{b}attn_{n}_norm.weight', (s['head_dim'],), 'F32'
        yield b + 'attn_output.weight', (width, q), kind
        yield b + 'ffn_norm.weight', (width,), 'F32'
        if s.get('experts'):
            yield from expert_tensors(b, s, experts_apart, kind, better)
            continue
        yield b + 'ffn_gate.weight', (s['ffn'], width), kind
        yield b + 'ffn_up.weight', (s['ffn'], width), kind
        yield b + 'ffn_down.weight', (width, s['ffn']), better
