#!/usr/bin/env python3
"""The programs of cl/nvidia/gemm.c without a GPU: their PTX is simulated here, a statement for all work-items of a work-group at once
(lanes.py), and Y compared with numpy's. The work-groups of a call run in turn, so that they can wait for each other.

    wgmma.py WGMMA_PTX          those that pack X are not simulated

Copies have arrived as soon as they are issued, so missing waits are not seen; reads and writes past the ends of buffers are,
and that the exchange buffer is zero again. The comments of scopes are held against their statements.
"""
import functools
import os
import subprocess
import sys

from lanes import STRIDE, Lanes, Memory, Program, np
import ptx

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
import part
import tolerances

LOCAL, TURN = 1 << 18, 500  # bytes; statements
ROPE = ("table", "pos", "slot", "kp", "vp")


class Group(Lanes):
    """One work-group."""

    def __init__(self, program, threads, group, grid, params, memory):
        super().__init__(program, 0, threads, {"%ctaid.x": group, "%nctaid.x": grid, "smem": 0}, params, memory, Memory([np.zeros(LOCAL, np.uint8)]))

    def added(self, sums, product):
        """The products are exact but for one rounding, whatever their order."""
        return sums + product.astype(np.float32)

    def copy(self, _, operands, active):
        """cp.async of 16 bytes, or of zeros."""
        to, start, count = self.address(operands[0]), self.address(operands[1]), self.value(operands[3])
        data = np.zeros((self.n, 16), np.uint8)
        some = active & (count > 0)
        if some.any():
            data[some] = self.memory.load(start[some], 16)
        if active.any():
            self.local.store(to[active] + np.uint64(STRIDE), data[active])

    def meet(self, _, operands, active):
        assert active.all(), "not all work-items come to a barrier"


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
    groups = [Group(program, rows * 2, g, n_groups, params, memory) for g in range(n_groups)]
    turns = 0
    while not all(group.done for group in groups):
        for group in groups:
            group.go(TURN)
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
            failed += failure(f"{name}, cut of K {split}, {shape}{', SiLU' * silu}", check, Program(texts[-1]), rows, tokens, split, shape,
                              split != 8, split in (4, 8), silu)
    return failed


def check_rope(tool, name, rows, tokens, packs, texts):
    failed = 0
    for split, m, heads, n_rot, half in ((1, 13, (3, 1), 40, True), (4, min(tokens + 3, 32), (2, 1), 24, False), (-3, 13, (1, 1), 32, True),
                                         ("3t on 3", 13, (3 * rows // 40 + 1, 1), 24, True)):
        texts.append(subprocess.check_output([tool, name, str(split).split()[0], "F16", "40", str(n_rot)], text=True))
        if not packs:
            failed += failure(f"{name}, cut of K {split}, {m} rows, heads of q and kv {heads}, of which {n_rot} turn", check_rotation, Program(texts[-1]), rows,
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
            program = Program(subprocess.check_output([tool, name, str(split), "F16"], text=True))
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
            failed += failure(f"{name}, {dtype}, {shape}{', SiLU' * silu}", check_quantised, tool, Program(texts[-1]), rows, tokens, dtype, shape, silu)
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
