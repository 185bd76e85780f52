"""Writes GGUF files (versions 2 and 3) and quantises with numpy, for test and benchmark models.

The quantisers use the same float32 steps as src/tensor, so both give the same bytes. The writer
checks nothing on purpose: tests need files that are wrong.
"""

import struct

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
KINDS = {
    'u8': U8,
    'i8': I8,
    'u16': U16,
    'i16': I16,
    'u32': U32,
    'i32': I32,
    'f32': F32,
    'bool': BOOL,
    'str': STRING,
    'u64': U64,
    'i64': I64,
    'f64': F64,
}
_PACK = {
    U8: 'B',
    I8: 'b',
    U16: 'H',
    I16: 'h',
    U32: 'I',
    I32: 'i',
    F32: 'f',
    BOOL: '?',
    U64: 'Q',
    I64: 'q',
    F64: 'd',
}

# name: ggml type, elements a block, bytes a block
TYPES = {
    'F32': (0, 1, 4),
    'F16': (1, 1, 2),
    'BF16': (30, 1, 2),
    'Q8_0': (8, 32, 34),
    'Q4_0': (2, 32, 18),
    'Q4_1': (3, 32, 20),
    'Q6_K': (14, 256, 210),
}
# general.file_type, which tools print
FILE_TYPES = {'F32': 0, 'F16': 1, 'Q4_0': 2, 'Q4_1': 3, 'Q8_0': 7, 'Q6_K': 18, 'BF16': 32}


def size_of(kind, shape):
    _, block, size = TYPES[kind]
    assert shape[-1] % block == 0, f'{kind}: rows of {shape[-1]} are no multiple of {block}'
    return int(np.prod(shape, dtype=np.int64)) // block * size


# ---- quantisation: x [..., K] float32 -> bytes as an u8 array, and back ------------------------


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


def _q_q6_k(x):
    x = x.reshape(-1, 256)
    want = _absmax(x.reshape(-1, 16)).reshape(-1, 16) / np.float32(-32)
    h = (_absmax(want) / np.float32(-128)).astype('<f2')
    d = h.astype(np.float32)
    scale = _round(want * _inverse(d), -128, 127).astype(np.int8)
    step = np.repeat(d * scale.astype(np.float32), 16, 1)
    with np.errstate(divide='ignore', invalid='ignore'):
        q = np.where(step != 0, _round(x / step + np.float32(32), 0, 63), 32).astype(np.uint8)
    q = q.reshape(-1, 2, 4, 32)  # half, run, element
    lo, hi = q & 15, q >> 4
    low = lo[:, :, :2] | lo[:, :, 2:] << 4
    high = hi[:, :, 0] | hi[:, :, 1] << 2 | hi[:, :, 2] << 4 | hi[:, :, 3] << 6
    n = len(x)
    return np.hstack(
        [low.reshape(n, 128), high.reshape(n, 64), scale.view(np.uint8), _half_bytes(h)]
    )


_QUANT = {
    'F32': _q_f32,
    'F16': _q_f16,
    'BF16': _q_bf16,
    'Q8_0': _q_q8_0,
    'Q4_0': _q_q4_0,
    'Q4_1': _q_q4_1,
    'Q6_K': _q_q6_k,
}


def quantize(kind, x):
    """Encodes float32 x [..., K] row by row; u8 array."""
    x = np.ascontiguousarray(x, np.float32)
    return np.ascontiguousarray(_QUANT[kind](x)).view(np.uint8).reshape(-1)


def _halves(b):
    return np.ascontiguousarray(b).view('<f2').astype(np.float32)


def dequantize(kind, data, shape):
    """The reverse of quantize: float32 array of that shape."""
    b = np.frombuffer(data, np.uint8).reshape(-1, TYPES[kind][2])
    if kind == 'F32':
        x = b.reshape(-1).view('<f4')
    elif kind == 'F16':
        x = _halves(b)
    elif kind == 'BF16':
        x = (b.reshape(-1).view('<u2').astype(np.uint32) << 16).view(np.float32)
    elif kind == 'Q8_0':
        x = _halves(b[:, :2]) * b[:, 2:].view(np.int8)
    elif kind == 'Q4_0':
        q = np.hstack([b[:, 2:] & 15, b[:, 2:] >> 4]).astype(np.float32) - 8
        x = _halves(b[:, :2]) * q
    elif kind == 'Q4_1':
        q = np.hstack([b[:, 4:] & 15, b[:, 4:] >> 4]).astype(np.float32)
        x = _halves(b[:, :2]) * q + _halves(b[:, 2:4])
    else:
        low, high = b[:, :128].reshape(-1, 2, 2, 32), b[:, 128:192].reshape(-1, 2, 32)
        q = np.empty((len(b), 2, 4, 32), np.float32)
        for run in range(4):
            q[:, :, run] = (low[:, :, run & 1] >> (4 if run > 1 else 0) & 15) | (
                high >> 2 * run & 3
            ) << 4
        step = _halves(b[:, 208:]) * b[:, 192:208].view(np.int8)
        x = (q.reshape(-1, 16, 16) - 32) * step[:, :, None]
    return np.ascontiguousarray(x, np.float32).reshape(shape)


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

    def write(self, path):
        head, offsets, size = self.layout()
        with open(path, 'wb') as f:
            f.write(head)
            for (_, _, _, data), offset in zip(self.tensors, offsets):
                f.seek(offset)
                f.write(data)
            f.truncate(size)


# ---- a model's metadata ------------------------------------------------------------------------


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
    ):
        w.add(f'{arch}.{key}', value)
    if s['head_dim'] * s['heads'] != s['width']:
        w.add(f'{arch}.attention.key_length', s['head_dim'])
        w.add(f'{arch}.attention.value_length', s['head_dim'])
    if s.get('rope_factor', 1.0) != 1.0:
        w.add(f'{arch}.rope.scaling.type', 'linear')
        w.add(f'{arch}.rope.scaling.factor', s['rope_factor'])


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


def model_tensors(s, kind, tied=False, bias=False, freqs=False, head_norms=False):
    """(name, shape, type) of every tensor of a Llama-shaped model, in file order."""
    width, q, kv = s['width'], s['heads'] * s['head_dim'], s['kv_heads'] * s['head_dim']
    out_kind = kind
    if kind in ('Q4_0', 'Q4_1'):  # as quantised files have it: the output keeps more bits
        out_kind = 'Q8_0' if width % 256 else 'Q6_K'
    yield 'token_embd.weight', (s['vocab'], width), out_kind if tied else kind
    yield 'output_norm.weight', (width,), 'F32'
    if not tied:
        yield 'output.weight', (s['vocab'], width), out_kind
    if freqs:
        yield 'rope_freqs.weight', (s.get('rope_dim', s['head_dim']) // 2,), 'F32'
    for i in range(s['layers']):
        b = f'blk.{i}.'
        yield b + 'attn_norm.weight', (width,), 'F32'
        for n, rows in (('q', q), ('k', kv), ('v', kv)):
            yield f'{b}attn_{n}.weight', (rows, width), kind
            if bias:
                yield f'{b}attn_{n}.bias', (rows,), 'F32'
        for n in 'qk' if head_norms else '':
            yield f'{b}attn_{n}_norm.weight', (s['head_dim'],), 'F32'
        yield b + 'attn_output.weight', (width, q), kind
        yield b + 'ffn_norm.weight', (width,), 'F32'
        yield b + 'ffn_gate.weight', (s['ffn'], width), kind
        yield b + 'ffn_up.weight', (s['ffn'], width), kind
        yield b + 'ffn_down.weight', (width, s['ffn']), kind
