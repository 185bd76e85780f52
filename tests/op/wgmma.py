#!/usr/bin/env python3
"""The programs of cl/nvidia/gemm.c without a GPU: their PTX is simulated here, a statement for all work-items of a work-group at once,
and Y compared with numpy's. The work-groups of a call run in turn up to every jump back, so that they can wait for each other.

    wgmma.py WGMMA_PTX          those that pack X are not simulated

Copies have arrived as soon as they are issued, so missing waits are not seen; reads and writes past the ends of buffers are,
and that the exchange buffer is zero again. wgmma as the PTX ISA 8.0 defines its operands: A in registers, B in shared memory in rows
of 128 bytes, whose 16-byte chunks are swizzled by the row. The comments of scopes are held against their statements.
"""
import functools
import os
import re
import subprocess
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for products so small its threads do little but wait
import numpy as np

import ptx

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
import part
import tolerances

LOCAL = 1 << 18
ROPE = ("table", "pos", "slot", "kp", "vp")
STRIDE = 1 << 32  # of the buffers' addresses


class Memory:
    """Buffers in one address space: buffer i is at (i + 1) * STRIDE; buffer -1 is local memory."""

    def __init__(self, buffers):
        self.buffers = buffers

    def find(self, at, size):
        i = int(at[0]) // STRIDE - 1
        offset = at.astype(np.int64) - (i + 1) * STRIDE
        buffer = self.buffers[i]
        assert (offset >= 0).all() and (offset + size <= len(buffer)).all(), f"outside of buffer {i}"
        assert (offset % size == 0).all(), f"address of buffer {i} is not aligned"
        return buffer, offset[:, None] + np.arange(size)

    def load(self, at, size):
        buffer, where = self.find(at, size)
        return buffer[where]

    def store(self, at, data):
        """Work-items may write to different buffers."""
        for i in np.unique(at // np.uint64(STRIDE)):
            mine = at // np.uint64(STRIDE) == i
            buffer, where = self.find(at[mine], data.shape[1])
            buffer[where] = data[mine]


def parse(text):
    """Statements of the body, (predicate, negated, operation, operands), and the labels among them."""
    text = ptx.flat(text)
    body = text[text.index("\n{") + 2:text.rindex("}")]
    statements, labels = [], {}
    for part in re.split(r"[;\n]", body):
        part = part.strip()
        while match := re.match(r"([A-Z]\w*):\s*", part):
            labels[match[1]] = len(statements)
            part = part[match.end():]
        if not part or part.startswith((".reg", ".shared")):
            continue
        predicate, negated, operation, rest = re.match(r"(?:@(!?)(\w+)\s+)?(\S+)\s*(.*)", part).group(2, 1, 3, 4)
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)
        statements.append((predicate, bool(negated), operation, operands))
    return statements, labels


def f32(x):
    return x.astype(np.uint32).view(np.float32)


def bits(x):
    return x.astype(np.float32).view(np.uint32).astype(np.uint64)


def half_bits(x):
    return f32(x).astype(np.float16).view(np.uint16).astype(np.uint64)


def signed(x, kind):
    return x.astype(np.uint32).view(np.int32) if kind == "s32" else x.astype(np.int64)


def narrow(operation):
    return operation.endswith(("u32", "b32", "s32")) and ".wide" not in operation


COMPARE = {"lt": np.less, "ge": np.greater_equal, "gt": np.greater, "eq": np.equal, "ne": np.not_equal}
VALUE = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "mad": lambda a, b, c: a * b + c,
    "div": lambda a, b: a // b, "rem": lambda a, b: a % b, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "shr": np.right_shift, "shl": np.left_shift, "mov": lambda a: a, "cvt": lambda a: a,
}
PAIRS = {"add.rn.f16x2": np.add, "sub.rn.f16x2": np.subtract, "mul.rn.f16x2": np.multiply}
FLOATS = {"add.f32": np.add, "mul.f32": np.multiply, "div.full.f32": np.divide, "ex2.approx.ftz.f32": np.exp2, "mul.rn.f32": np.multiply,
          "neg.f32": np.negative, "fma.rn.f32": lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float32)}
NOTHING = ("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "cp.async.commit_group", "cp.async.wait_group",
           "cp.async.bulk.prefetch")


def halves(x):
    """Both halves of words, in F32."""
    return x.astype(np.uint32)[:, None].view(np.float16).astype(np.float32)


def of_pairs(operation, words):
    """Arithmetic of two F16 numbers a word, rounded once."""
    a = [halves(x) for x in words]
    result = a[0].astype(np.float64) * a[1] + a[2] if operation.startswith("fma") else PAIRS[operation](a[0], a[1])
    return result.astype(np.float16).view(np.uint32)[:, 0].astype(np.uint64)


def permuted(a, b, how):
    """A place whose upper bit is set has eight times the sign of its byte."""
    both = (b << np.uint64(32) | a).view(np.uint8).reshape(-1, 8)
    place = how[:, None] >> np.arange(0, 16, 4, dtype=np.uint64)
    data = np.take_along_axis(both, (place & np.uint64(7)).astype(np.int64), 1)
    signs = (data.view(np.int8) >> 7).view(np.uint8)
    return np.where(place & np.uint64(8), signs, data).view(np.uint32)[:, 0].astype(np.uint64)


@functools.lru_cache(maxsize=None)
def words_of(operand):
    return re.findall(r"\w+", operand)


@functools.lru_cache(maxsize=None)
def place_of(operand):
    """The register and the offset of an address."""
    name, offset = re.match(r"\[(\w+)(?:\+(\d+))?\]", operand).groups()
    return name, np.uint64(int(offset or 0))


@functools.lru_cache(maxsize=None)
def fragment_places(threads, n_sums):
    """Where the elements of A (thread, element) and of the sums (sum, thread) lie: rows, columns."""
    thread, i, sums = np.arange(threads)[:, None], np.arange(8), np.arange(n_sums)[:, None]
    row, pair = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
    of_sums = row.T + sums % 4 // 2 * 8, sums // 4 * 8 + pair.T + sums % 2
    return (row + i // 2 % 2 * 8, pair + i % 2 + i // 4 * 8), of_sums


class Group:
    """One work-group."""

    def __init__(self, program, threads, group, grid, params, memory):
        self.statements, self.labels = program
        self.params, self.memory, self.n = params, memory, threads
        self.local = Memory([np.zeros(LOCAL, np.uint8)])
        special = {"%tid.x": np.arange(threads), "%ctaid.x": group, "%nctaid.x": grid, "smem": 0}
        self.fixed = {name: self.every(value) for name, value in special.items()}  # and constants, as they are met
        self.values, self.predicates = {}, {}
        self.nothing, self.no_bits = self.every(0), np.zeros(threads, bool)

    def every(self, x):
        return np.broadcast_to(np.asarray(x, dtype=np.uint64), (self.n,))

    def value(self, name):
        if name in self.values:
            return self.values[name]
        if name not in self.fixed:
            number = int(name[2:], 16) if name.startswith("0f") else int(name, 0)
            self.fixed[name] = self.every(number & (1 << 64) - 1)
        return self.fixed[name]

    def set(self, name, value, active):
        whole = value.dtype == np.uint64 and active.all()
        self.values[name] = value if whole else np.where(active, value, self.values.get(name, self.nothing))

    def address(self, operand):
        name, offset = place_of(operand)
        return self.value(name) + offset

    def space(self, operation, at):
        """Shared memory is buffer 0 of a memory of its own."""
        return (self.local, at + np.uint64(STRIDE)) if ".shared" in operation else (self.memory, at)

    def load(self, operation, operands, active):
        names = words_of(operands[0])
        if "param" in operation:
            return self.set(names[0], self.every(self.params[operands[1][1:-1]]), active)
        memory, at = self.space(operation, self.address(operands[1]))
        if not active.any():
            return None
        words = memory.load(at[active], 4 * len(names)).copy().view(np.uint32)
        for i, name in enumerate(names):
            whole = np.array(self.values.get(name, self.every(0)))
            whole[active] = words[:, i]
            self.values[name] = whole

    def store(self, operation, operands, active):
        memory, at = self.space(operation, self.address(operands[0]))
        words = [self.value(name)[active].astype(np.uint32) for name in words_of(operands[1])]
        if active.any():
            memory.store(at[active], np.stack(words, axis=1).view(np.uint8))

    def copy(self, operands, active):
        """cp.async of 16 bytes, or of zeros."""
        to, start, count = self.address(operands[0]), self.address(operands[1]), self.value(operands[3])
        data = np.zeros((self.n, 16), np.uint8)
        some = active & (count > 0)
        if some.any():
            data[some] = self.memory.load(start[some], 16)
        if active.any():
            self.local.store(to[active] + np.uint64(STRIDE), data[active])

    def multiply(self, operation, operands):
        tokens = int(re.search(r"m64n(\d+)k16", operation)[1])
        sums, a = (words_of(operand) for operand in operands[:2])
        of_a, of_sums = fragment_places(self.n, len(sums))
        descriptor = int(self.value(operands[2])[0])
        assert descriptor >> 62 == 1 and operands[3:] == ["1", "1", "1", "0"]
        row = np.arange(tokens)[:, None]
        at = ((descriptor & 0x3FFF) << 4) + row * 128 + np.arange(32)
        at ^= (at >> 7 & 7) << 4
        b = self.local.buffers[0][at].copy().view(np.float16).astype(np.float64)
        w = np.zeros((self.n // 2, 16))
        w[of_a] = np.stack([self.value(name).astype(np.uint32) for name in a], axis=1).view(np.float16)
        product = (w @ b.T).astype(np.float32)  # exact but for one rounding, whatever the order
        added = bits(f32(np.stack([self.value(name) for name in sums])) + product[of_sums])
        self.values.update(zip(sums, added))

    def compare(self, operation, operands, active):
        kind = operation.split(".")
        values = [self.value(name) for name in operands[1:3]]
        if kind[-1].startswith("s"):
            values = [signed(x, kind[-1]) for x in values]
        result = COMPARE[kind[1]](*values)
        if kind[2] == "and":
            result = result & self.predicates[operands[3]]
        self.set_predicate(operands[0], result, active)

    def set_predicate(self, name, value, active):
        self.predicates[name] = np.where(active, value, self.predicates.get(name, self.no_bits))

    def compute(self, operation, operands, active):
        name, *rest = operands
        stem = operation.split(".")[0]
        if operation == "and.pred":
            return self.set_predicate(name, self.predicates[rest[0]] & self.predicates[rest[1]], active)
        if operation == "xor.pred":
            return self.set_predicate(name, self.predicates[rest[0]] ^ self.predicates[rest[1]], active)
        if operation == "mov.pred":
            return self.set_predicate(name, self.predicates[rest[0]], active)
        if name.startswith("{"):  # halves of a word
            word, (low, high) = self.value(rest[0]), words_of(name)
            return self.set(low, word & np.uint64(0xFFFF), active), self.set(high, word >> np.uint64(16) & np.uint64(0xFFFF), active)
        if stem == "selp":
            result = np.where(self.predicates[rest[2]], self.value(rest[0]), self.value(rest[1]))
        elif operation == "cvt.rn.f16x2.f32":
            result = half_bits(self.value(rest[0])) << np.uint64(16) | half_bits(self.value(rest[1]))
        elif operation == "cvt.f32.f16":
            result = bits(halves(self.value(rest[0]))[:, 0])
        elif operation.endswith("rn.f16x2"):
            result = of_pairs(operation, [self.value(x) for x in rest])
        elif stem == "prmt":
            result = permuted(*(self.value(x) for x in rest))
        elif stem == "lop3":
            assert rest[3] == "0xEA"
            result = self.value(rest[0]) & self.value(rest[1]) | self.value(rest[2])
        elif operation == "max.s32":
            result = np.maximum(*(signed(self.value(x), "s32") for x in rest)).view(np.uint32).astype(np.uint64)
        elif operation in FLOATS:
            result = bits(FLOATS[operation](*(f32(self.value(x)) for x in rest)))
        else:
            result = VALUE[stem](*(self.value(x) for x in rest))
            if narrow(operation):
                result = result & np.uint64(0xFFFFFFFF)
        return self.set(name, result, active)

    def statement(self, operation, operands, active):
        if operation.startswith(NOTHING):
            return
        if operation.startswith("wgmma.mma_async"):
            self.multiply(operation, operands)
        elif operation.startswith("cp.async"):
            self.copy(operands, active)
        elif operation.startswith("ld."):
            self.load(operation, operands, active)
        elif operation.startswith("st."):
            self.store(operation, operands, active)
        elif operation.startswith("setp"):
            self.compare(operation, operands, active)
        else:
            self.compute(operation, operands, active)

    def run(self):
        """Work-items that are behind go first; yields at each jump back."""
        at = np.zeros(self.n, int)
        while True:
            here = int(at.min())
            predicate, negated, operation, operands = self.statements[here]
            active = at == here
            at[active] += 1
            if predicate:
                active = active & (self.predicates[predicate] ^ negated)
            if operation == "ret":
                return
            if operation.startswith("bar.sync"):
                assert (at == here + 1).all(), "not all work-items come to a barrier"
            elif operation == "bra":
                to = self.labels[operands[0]]
                at[active] = to
                if to <= here and active.any():
                    yield
            else:
                self.statement(operation, operands, active)


def fragments(w):
    """W as layout.c packs it."""
    rows, k = w.shape
    tiles = np.zeros((-(-rows // 16) * 16, k), np.float16)
    tiles[:rows] = w
    tiles = tiles.reshape(-1, 2, 8, k // 16, 2, 4, 2)  # block, half of rows, row, tile of K, half of K, pair, element
    return tiles.transpose(0, 3, 2, 5, 4, 1, 6).copy()


def bytes_of(array):
    return array.reshape(-1).view(np.uint8).copy()


def expected(x, w, bias, residual, silu):
    product = x.astype(np.float32) @ w.astype(np.float32).T + bias
    if not silu:
        return product + residual
    gate, up = np.split(product, 2, axis=1)
    return gate / (1 + np.exp(-gate)) * up


def share_out(tiles, split):
    """(tiles that one work-group has, work-groups that share one of the others, work-groups in all). split: work-groups a tile; below 0: parts of K that
    one adds; "5t on 7": 5, but only of the tiles that 7 work-groups leave to the last round."""
    if not isinstance(split, str):
        return 0, max(split, 1), tiles * max(split, 1)
    split, groups = map(int, split.split("t on "))
    whole = tiles // groups * groups
    return whole, split, min(groups, whole + (tiles - whole) * split)


def call(program, rows, tokens, split, shape, buffers, half, silu, more=None):
    """One product; buffers by operand. split: as of share_out(). more: parameters besides."""
    m, n, k = shape
    n_y = n // 2 if silu else n
    tiles = -(-m // tokens) * -(-n // rows)
    whole, split, n_groups = share_out(tiles, split)
    zeros = np.zeros((tiles - whole) * split * split * -(-tokens // split) * rows * 4, np.uint8)
    operands = ("x", "w", "bias", "res", "y")
    memory = Memory([buffers.get(name, np.zeros(0, np.uint8)) for name in operands] + [zeros] + [buffers.get(name, np.zeros(0, np.uint8)) for name in ROPE])
    params = {"M": m, "N": n_y, "K": k, "x_stride": k, "res_stride": n_y, "y_stride": n_y, "y_half": int(half), "w_row_bytes": k * 2,
              "exchange_base": 6 * STRIDE, "whole_tiles": whole}
    for i, name in enumerate(operands + ("",) + ROPE):
        params[name + "_base"], params[name + "_off"] = (i + 1) * STRIDE, 0 if name in buffers else (1 << 64) - 1
    params |= more or {}
    groups = [Group(program, rows * 2, g, n_groups, params, memory).run() for g in range(n_groups)]
    turns = 0
    while groups:
        groups = [g for g in groups if next(g, groups) is not groups]
        turns += 1
        assert turns < 1000, "the work-groups wait for ever"
    assert not zeros.any(), "the exchange buffer is not zero again"


def turned(product, heads, n_rot, table, positions):
    """q, k and v of [row, head, element], q and k turned."""
    m, head = len(product), product.shape[1] // (heads[0] + 2 * heads[1])
    x = product.reshape(m, -1, head).copy()
    cos, sin = (table[np.clip(positions, 0, len(table) - 1), i:n_rot:2][:, None] for i in (0, 1))
    a, b = x[:, :sum(heads), 0:n_rot:2].copy(), x[:, :sum(heads), 1:n_rot:2].copy()
    x[:, :sum(heads), 0:n_rot:2], x[:, :sum(heads), 1:n_rot:2] = a * cos - b * sin, a * sin + b * cos
    return np.split(x, (heads[0], sum(heads)), axis=1)


def check_rotation(program, rows, tokens, split, m, heads, n_rot, half):
    """Angles whose sines are powers of two: sums are exact. Slots and positions outside of their tables are among them."""
    head, k, page, pages = 40, 384, 4, 8
    n = (heads[0] + 2 * heads[1]) * head
    random = np.random.default_rng(m * n)
    x, w = (random.integers(-4, 5, size).astype(np.float16) for size in ((m, k), (n, k)))
    bias, table = random.integers(-9, 9, n).astype(np.float32), (random.integers(-4, 5, (9, n_rot)) / 4).astype(np.float32)
    positions, slots = random.integers(-2, 12, m).astype(np.int32), random.permutation(pages * page)[:m].astype(np.int32)
    slots[1], slots[m - 1] = -1, pages * page
    y = np.full((m, heads[0] * head), 0x5A5A, np.float16 if half else np.float32)
    pools = [np.zeros((pages, heads[1], page, head), np.float16) for _ in range(2)]
    buffers = {"x": bytes_of(x), "w": bytes_of(fragments(w)), "bias": bytes_of(bias), "y": y.reshape(-1).view(np.uint8), "table": bytes_of(table),
               "pos": bytes_of(positions), "slot": bytes_of(slots), "kp": pools[0].reshape(-1).view(np.uint8), "vp": pools[1].reshape(-1).view(np.uint8)}
    call(program, rows, tokens, split, (m, n, k), buffers, half, False,
         {"y_stride": heads[0] * head, "Hq": heads[0], "Hkv": heads[1], "P": page, "table_stride": n_rot, "positions": len(table),
          "slots": pages * page, "page_stride": heads[1] * page * head})
    q, *kv = turned(expected(x, w, bias, 0, False), heads, n_rot, table, positions)
    wrong = int(np.sum(y != q.reshape(m, -1).astype(y.dtype)))
    for got, made in zip(pools, kv):
        want = np.zeros_like(got)
        for row in np.flatnonzero((slots >= 0) & (slots < pages * page)):
            want[slots[row] // page, :, slots[row] % page] = made[row]
        wrong += int(np.sum(got != want))
    assert not wrong, f"{wrong} outputs are wrong"


def formats_of(tool):
    """What the kernels are told of each format, by name."""
    lines = subprocess.check_output([tool, "formats"], text=True).splitlines()
    return {name: dict(zip(("W_BITS", "W_GROUP", "W_MIN", "W_ZERO", "W_CODES"), map(int, numbers))) for name, *numbers in map(str.split, lines)}


def quantised(tool, dtype, n, k):
    """Weights of the file, and how they lie on the device."""
    data = subprocess.check_output([tool, "weights", dtype, str(n), str(k)])
    return np.frombuffer(data[:n * k * 4], np.float32).reshape(n, k), np.frombuffer(data[n * k * 4:], np.uint8).copy()


def check_quantised(tool, program, rows, tokens, dtype, shape, silu):
    """Against the weights of the file: each was rounded to F16 up to three times."""
    m, n, k = shape
    x = np.random.default_rng(n).integers(-4, 5, (m, k)).astype(np.float16)
    w, packed = quantised(tool, dtype, n, k)
    n_y = n // 2 if silu else n
    y = np.zeros(m * n_y * 4, np.uint8)
    zero = np.zeros(n, np.float32)
    call(program, rows, tokens, 1, shape, {"x": bytes_of(x), "w": packed, "y": y}, False, silu)
    want, got = expected(x, w, zero, 0, silu), y.view(np.float32).reshape(m, n_y)
    error = tolerances.op_error("GEMM", got, want)
    assert error <= 1, f"{error:.2g} of the tolerance"


def check(program, rows, tokens, split, shape, extras, half, silu):
    """n of the shape counts rows of W."""
    m, n, k = shape
    random = np.random.default_rng(m * n + k)
    x, w = (random.integers(-4, 5, size).astype(np.float16) for size in ((m, k), (n, k)))
    w[::3] = 0  # sums that are zero have to arrive, too
    w[:n // 2 if silu else 0] /= 64  # where SiLU is neither of its two straight lines
    n_y = n // 2 if silu else n
    bias, residual = random.integers(-9, 9, n).astype(np.float32), random.integers(-9, 9, (m, n_y)).astype(np.float16 if half else np.float32)
    y = np.full(m * n_y * (2 if half else 4), 0x5A, np.uint8)
    buffers = {"x": bytes_of(x), "w": bytes_of(fragments(w)), "y": y}
    buffers |= {"bias": bytes_of(bias)} if extras else {}
    buffers |= {"res": bytes_of(residual)} if extras and not silu else {}
    call(program, rows, tokens, split, shape, buffers, half, silu)
    want = expected(x, w, bias * extras, residual * extras, silu)
    got = y.view(np.float16 if half else np.float32).reshape(m, n_y)
    if silu:
        error = tolerances.op_error("GEMM", got, want)
        assert error <= 1, f"{error:.2g} of the tolerance"
    else:
        wrong = got != want.astype(got.dtype)
        assert not wrong.any(), f"{np.sum(wrong)} of {m * n_y} outputs are wrong"


def failure(what, test, *args):
    """1 if the test fails, and says so."""
    try:
        test(*args)
    except AssertionError as error:
        print(f"{what}: {error}")
        return 1
    return 0


def check_f16(tool, name, rows, tokens, packs, texts):
    failed = 0
    for silu, split, shape in ((0, 1, (13, 132, 320)), (0, 5, (tokens + 3, 72, 384)), (0, 8, (tokens - 3, rows, 576)),
                               (0, -3, (tokens + 3, 72, 512)), (1, 1, (13, 160, 320)), (1, 4, (tokens + 3, rows + 32, 320)), (1, -4, (13, 160, 320)),
                               (0, "2t on 3", (13, 4 * rows - 8, 320)), (0, "5t on 7", (tokens - 3, rows, 384)),
                               (1, "3t on 4", (tokens + 3, 2 * rows + 32, 320))):
        texts.append(subprocess.check_output([tool, name, str(split).split()[0], "F16", *["silu"] * silu], text=True))
        if not packs:
            failed += failure(f"{name}, cut of K {split}, {shape}{', SiLU' * silu}", check, parse(texts[-1]), rows, tokens, split, shape,
                              split != 8, split in (4, 8), silu)
    return failed


def check_rope(tool, name, rows, tokens, packs, texts):
    failed = 0
    for split, m, heads, n_rot, half in ((1, 13, (3, 1), 40, True), (4, min(tokens + 3, 32), (2, 1), 24, False), (-3, 13, (1, 1), 32, True),
                                         ("3t on 3", 13, (3 * rows // 40 + 1, 1), 24, True)):
        texts.append(subprocess.check_output([tool, name, str(split).split()[0], "F16", "40", str(n_rot)], text=True))
        if not packs:
            failed += failure(f"{name}, cut of K {split}, {m} rows, heads of q and kv {heads}, of which {n_rot} turn", check_rotation, parse(texts[-1]), rows,
                              tokens, split, m, heads, n_rot, half)
    return failed


def bits_of(program, rows, tokens, split, shape):
    """Y, of numbers whose sums are rounded."""
    m, n, k = shape
    random = np.random.default_rng(7)
    w, x = (random.standard_normal(size).astype(np.float16) for size in ((n, k), (m, k)))
    y = np.zeros(m * n * 4, np.uint8)
    call(program, rows, tokens, split, shape, {"x": bytes_of(x), "w": bytes_of(fragments(w)), "y": y}, False, False)
    return y.view(np.float32).reshape(m, n)


def check_class(tool, variants, cut):
    """As many work-groups a tile as parts, or one that adds them: the same bits, whatever the tile; without a cut others."""
    shape = (9, 96, 7 * 64)
    of = {}
    for name, rows, tokens in variants:
        for split in (1, cut, -cut):
            program = parse(subprocess.check_output([tool, name, str(split), "F16"], text=True))
            of[name, split] = bits_of(program, rows, tokens, split, shape)
    want = of[variants[0][0], cut]
    for (name, split), got in of.items():
        same = (got.view(np.uint32) == want.view(np.uint32)).all()
        assert same == (split != 1), f"{name}, cut of K {split}: {'the same' if same else 'other'} bits"


def check_format(tool, name, rows, tokens, packs, texts, dtype):
    failed = 0
    for silu, shape in ((0, (13, 68, 768)), (1, (tokens + 3, 96, 1280))):
        texts.append(subprocess.check_output([tool, name, "1", dtype, *["silu"] * silu], text=True))
        if not packs:
            failed += failure(f"{name}, {dtype}, {shape}{', SiLU' * silu}", check_quantised, tool, parse(texts[-1]), rows, tokens, dtype, shape, silu)
    return failed


def main():
    np.seterr(all="ignore")
    tool = sys.argv[1]
    variants = [line.split() for line in subprocess.check_output([tool], text=True).splitlines()]
    all_formats = {name: tuple(numbers.values()) for name, numbers in formats_of(tool).items() if name != "F16"}
    formats = list({(*numbers, codes > 0): name for name, (*numbers, codes) in all_formats.items()}.values())  # tables differ in constants alone
    jobs, texts = [], []
    for name, *numbers in variants:
        rows, tokens, packs = map(int, numbers)
        jobs += [functools.partial(check, tool, name, rows, tokens, packs, texts) for check in (check_f16, check_rope)]
        jobs += [functools.partial(check_format, tool, name, rows, tokens, packs, texts, dtype) for dtype in (all_formats if name == variants[0][0] else formats)]
    mine = part.mine("cl", jobs)
    failed = sum(job() for job in mine)
    unpacked = [(name, int(rows), int(tokens)) for name, rows, tokens, packs in variants if packs == "0"]
    failed += sum(failure(f"parts of K: {cut}", check_class, tool, unpacked, cut) for cut in (2, 3, 7))
    wrong = ptx.check_comments(texts) if mine == jobs else []  # they say what all programs together use
    for comment in wrong:
        print(f"the comment of a scope does not fit its statements: {comment}")
    failed += len(wrong)
    print(f"{len(variants)} variants, {len(all_formats)} quantised formats, {failed} failures")
    return 1 if failed or not variants or not formats else 0


if __name__ == "__main__":
    sys.exit(main())
