#!/usr/bin/env python3
"""The programs of cl/nvidia/attention.c without a GPU: their PTX is simulated (lanes.py), warp by warp in a random order, and
o compared with a plain softmax. Of the one with the asynchronous softmax, rows that left have the other's bits and are counted, and warpgroups
stop at the tile where they should. That by chunks has the bits of attention_split.cl, which split_host runs.

    wgmma_attention.py WGMMA_PTX SPLIT_HOST KERNELS [SEED]

What the device may do late happens late as often as not: copies arrive between the instruction and its barrier, products
read their operands between the instruction and the wait. Slots that no row may see hold NaN. Warps that all wait for each
other, addresses outside of buffers, and outputs that nobody writes are failures. Proxies (fence.proxy.async) are not simulated.
The comments of scopes are held against their statements.
"""
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from lanes import STRIDE, WAIT, Lanes, Memory, Program, np
import ptx
import split
from wgmma import bytes_of, tolerances

LANES, ROWS, TILE = 32, 128, 128
DECODED_PAGE = {64: 48, 128: 16}  # by head size, whatever the case's: each has to be compiled, and op split has pages of 16 and 32
GROWS = 32  # of the program by chunks, as wgmma_ptx prints it
BASE, LOW, NEAR, BEFORE = -5, -4, 0.05, 40  # of the asynchronous softmax; scores so close to its range may leave; the counter's start


class Kernel(Program):
    """A program, and what it says of its work-groups."""

    def __init__(self, text):
        super().__init__(text)
        self.local_bytes = int(re.search(r"smem\[(\d+)\]", text)[1])
        self.mark_bytes = int((re.findall(r"marks\[(\d+)\]", text) or [0])[0])
        self.threads = int(re.search(r"reqntid (\d+)", text)[1])


class Barrier:
    def __init__(self, count):
        self.count = self.left = count
        self.turn = 0

    def arrive(self):
        assert self.left > 0, "more arrivals than a barrier takes"
        self.left -= 1
        if not self.left:
            self.left, self.turn = self.count, self.turn + 1


class Group:
    """A work-group: what its warps share."""

    def __init__(self, program, group, grid, params, memory, draw):
        self.program, self.params, self.memory, self.draw = program, params, memory, draw
        self.special = {"%ctaid.x": group, "%nctaid.x": grid, "smem": 0, "marks": program.local_bytes, "bars": program.local_bytes + program.mark_bytes}
        self.products = np.zeros((2, 4), int)  # of each warp of the two warpgroups that multiply
        self.local = Memory([np.full(program.local_bytes + program.mark_bytes, 0xFF, np.uint8)])
        self.bars, self.meeting, self.still = {}, {}, []
        self.warps = [Warp(self, w) for w in range(program.threads // LANES)]

    def run(self):
        """Some warps stand still for a while, until the others can do nothing more."""
        left = list(self.warps)
        while left:
            if not self.still and self.draw.random() < 0.1:
                self.still = self.warps[self.draw.choice((0, 4, 8)):][:self.draw.choice((1, 4))]
            going = [warp for warp in left if warp not in self.still]
            moved = any([warp.go(self.draw.choice((10, 100, 1000))) for warp in self.draw.sample(going, len(going))])
            moved |= any([warp.late(self.draw.choice((0, 0.3, 0.9))) for warp in self.warps if warp not in self.still])
            moved = moved or any([warp.late(1) for warp in self.warps if warp not in self.still])
            assert moved or self.still, "all warps wait for each other"
            self.still = self.still if moved else []
            left = [warp for warp in left if not warp.done]
        assert not any(warp.copies for warp in self.warps), "copies that nobody waited for"


class Warp(Lanes):
    def __init__(self, group, number):
        super().__init__(group.program, number * LANES, LANES, group.special, group.params, group.memory, group.local)
        self.group, self.number, self.copies, self.met = group, number, [], None

    # ---- what may come late

    def late(self, chance):
        """Does some of what was put off."""
        done = False
        while self.copies and self.group.draw.random() < chance:
            self.arrive()
            done = True
        while self.products and self.group.draw.random() < chance:
            self.multiply(*self.products.pop(0)[0])
            done = True
        return done

    def arrive(self):
        kind, *rest = self.copies.pop(0)
        if kind == "barrier":
            for lane in range(LANES):
                rest[0].arrive()
            return
        to, start, some, size = rest
        data = np.zeros((LANES, size), np.uint8)
        if some.any():
            data[some] = self.memory.load(start[some], size)
        self.local.store(to + np.uint64(STRIDE), data)

    def multiply(self, operation, operands):
        self.group.products[self.number // 4, self.number % 4] += 1
        super().multiply(operation, operands)

    def stands_still(self, operation):
        if operation.startswith("mbarrier.arrive") and not self.group.still and self.group.draw.random() < 0.2:
            self.group.still = [self]
            return True
        return False

    # ---- statements

    def copy(self, _, operands, active):
        count = self.value(operands[3])[:] if len(operands) > 3 else np.full(LANES, int(operands[2]))
        assert set(count) <= {0, int(operands[2])}
        self.copies.append(("copy", self.address(operands[0]), self.address(operands[1]), count > 0, int(operands[2])))

    def add_to(self, _, operands, active):
        for at, n in zip(self.address(operands[0])[active], self.value(operands[1])[active]):
            word = self.memory.load(np.array([at]), 4).copy().view(np.uint32) + n
            self.memory.store(np.array([at]), word.view(np.uint8))

    def barrier(self, operation, operands, active):
        at = int(self.address(operands[-1 if "arrive.shared" in operation else 0 if "try" not in operation else 1])[0])
        if "init" in operation:
            if active.any():
                self.group.bars[at] = Barrier(int(operands[1]))
        elif "try_wait" in operation:
            bar, turn = self.group.bars[at], int(self.value(operands[2])[0])
            over = bar.turn % 2 != turn
            self.set(operands[0], np.full(LANES, over), active)
            return None if over else WAIT
        elif operation.startswith("cp.async"):
            self.copies.append(("barrier", self.group.bars[at]))
        else:
            for lane in range(int(active.sum())):
                self.group.bars[at].arrive()

    def meet(self, _, operands, active):
        """bar.sync: here until as many warps have come."""
        number, count = int(self.value(operands[0])[0]), int(operands[1]) if len(operands) > 1 else self.group.program.threads
        meeting = self.group.meeting.setdefault(number, [0, 0])
        if self.met is None:
            self.met = meeting[1]
            meeting[0] += LANES
            if meeting[0] == count:
                meeting[0], meeting[1] = 0, meeting[1] + 1
        if meeting[1] == self.met:
            return WAIT
        self.met = None
        return None

    def shuffle(self, operation, operands, active):
        assert active.all()
        lane = np.arange(LANES)
        other = lane ^ int(operands[2]) if "bfly" in operation else np.full(LANES, int(operands[2]))
        self.set(operands[0], self.value(operands[1])[other], active)

    def vote(self, operation, operands, active):
        assert active.all()
        mask = sum(1 << lane for lane in range(LANES) if self.values[operands[1]][lane])
        ballot = "ballot" in operation
        self.set(operands[0], np.full(LANES, mask if ballot else mask > 0, np.uint32 if ballot else bool), active)

    def reduce(self, operation, operands, active):
        assert active.all()
        all_of = self.value(operands[1]).view(np.int32)
        self.set(operands[0], np.full(LANES, all_of.max() if "max" in operation else all_of.min(), np.int32), active)


# ---- cases


class Case:
    """Rows as runs (sequence, positions); P keys a page, so many heads, Hq and Hkv."""

    def __init__(self, name, d, heads, page, runs, grid=1, share=1, half=True, steep=1, sick=-1, wild=1, rows=slice(None, None, 7), lone=False, stops=False):
        self.name, self.d, self.heads, self.page, self.grid, self.share, self.half = name, d, heads, page, grid, share, half
        self.steep, self.sick = steep, sick  # how far maxima rise on the way; the sequence whose keys are NaN
        self.wild, self.rows = wild, rows  # times the queries of these rows' first head
        self.lone, self.stops = lone, stops  # those that leave are the first warpgroup's, in each block; warpgroups stop
        self.seq = np.array([s for s, positions in runs for _ in positions], np.int32)
        self.pos = np.array([p for _, positions in runs for p in positions], np.int32)


def make_keys(case, numbers):
    """K and V of each sequence."""
    keys = []
    for s in range(int(case.seq.max()) + 1):
        length = max(int(case.pos[case.seq == s].max(initial=-1)), -1) + 1
        kv = numbers.standard_normal((2, length, case.heads[1], case.d)).astype(np.float16)
        kv[0] *= np.linspace(0.2, case.steep, length)[:, None, None].astype(np.float16)
        keys.append(kv * np.float16(np.nan if s == case.sick else 1))
    return keys


def make_pools(case, keys, page_tokens, numbers):
    """Those in pages that are dealt at random; slots past the last key hold NaN."""
    hkv, counts = case.heads[1], [-(-kv.shape[1] // page_tokens) for kv in keys]
    pages = numbers.permutation(sum(counts) + 3)[:sum(counts)].astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    stride = hkv * page_tokens * case.d + 24
    pools = [np.full((sum(counts) + 3, stride), np.nan, np.float16) for _ in range(2)]
    for first, kv in zip(indptr, keys):
        for pool, x in zip(pools, kv):
            for j, row in enumerate(x):
                page = pool[pages[first + j // page_tokens], :hkv * page_tokens * case.d]
                page.reshape(hkv, page_tokens, case.d)[:, j % page_tokens] = row
    return (*pools, indptr, pages if len(pages) else np.zeros(1, np.int32)), stride


def reference(case, q, keys, scale):
    hq, hkv = case.heads
    out = np.zeros((len(case.seq), hq, case.d))
    for m, (s, p) in enumerate(zip(case.seq, case.pos)):
        if p < 0:
            continue
        for h in range(hq):
            k, v = (x[:p + 1, h // (hq // hkv)] for x in keys[s])
            x = k @ q[m, h].astype(np.float64) * scale
            w = np.exp(x - x.max())
            out[m, h] = w @ v / w.sum()
    return out


def rms(x):
    return np.sqrt(np.mean(x**2))


def run(program, case, seed, tame=None):
    """o and the count of the rows that left, and what they should be from; the queries of rows and heads in tame are zeros."""
    numbers, draw = np.random.default_rng(seed), random.Random(seed)
    hq, hkv = case.heads
    m, q_stride, o_stride, scale = len(case.seq), hq * case.d + 8, hq * case.d + 2, case.d ** -0.5
    keys = make_keys(case, numbers)
    (k, v, indptr, pages), stride = make_pools(case, keys, case.page, numbers)
    q = np.full((m, q_stride), np.nan, np.float16)
    q[:, :hq * case.d] = numbers.standard_normal((m, hq * case.d))
    q[case.rows, :case.d] *= np.float16(case.wild)
    queries = q[:, :hq * case.d].reshape(m, hq, case.d)
    if tame is not None:
        q[:, :hq * case.d] = np.where(tame[:, :, None], 0, queries).reshape(m, -1)
    kind = np.float16 if case.half else np.float32
    o = np.full(m * o_stride * np.dtype(kind).itemsize, 0x5A, np.uint8)
    count = np.array([BEFORE], np.uint32)
    before = o.copy()
    memory = Memory([bytes_of(x) for x in (q, k, v, case.seq, case.pos, indptr, pages)] + [o, bytes_of(count)])
    params = {"o_half": int(case.half), "M_size": m, "Hq_size": hq, "Hkv_size": hkv, "P_size": case.page, "page_stride_size": stride,
              "q_stride_size": q_stride, "o_stride_size": o_stride, "scale_": np.float32(scale), "share_": case.share,
              "base_": np.float32(BASE), "low_": np.float32(LOW)}
    for i, name in enumerate(("q", "kp", "vp", "seq", "pos", "indptr", "pages", "o", "count")):
        params[name + "_base"], params[name + "_off"] = (i + 1) * STRIDE, 0
    groups = [Group(program, g, case.grid, params, memory, draw) for g in range(case.grid)]
    for group in groups:
        group.run()
    products = np.array([group.products for group in groups])
    assert (products == products[:, :, :1]).all(), "warps of a warpgroup multiply different tiles"
    case.products = products[:, :, 0]
    (k, v, indptr, pages), stride = make_pools(case, keys, DECODED_PAGE[case.d], numbers)
    given = [bytes_of(x) for x in (q, k, v, case.seq, case.pos, indptr, pages)]
    case.given = struct.pack("<16If", *map(len, given), o.nbytes, case.half, m, hq, hkv, DECODED_PAGE[case.d], stride, q_stride, o_stride, scale)
    case.given += b"".join(x.tobytes() for x in (*given, before))
    return o, int(memory.buffers[-1].view(np.uint32)[0]) - BEFORE, queries, [kv.astype(np.float64) for kv in keys], scale


def check_rows(case, o, q, keys, scale):
    """Against the reference; returns o as rows and heads."""
    hq, _ = case.heads
    rows = o.view(np.float16 if case.half else np.float32).reshape(len(case.seq), -1)
    untouched = np.full(4, 0x5A, np.uint8).view(rows.dtype)[0]
    assert (rows[:, hq * case.d:] == untouched).all(), "writes past a row"
    want = reference(case, q, keys, scale)
    well = case.seq != case.sick
    got = rows[:, :hq * case.d].reshape(want.shape)
    error = tolerances.op_error("ATTENTION", got[well], want[well])
    bad = [i for i in np.ndindex(want.shape[:2]) if well[i[0]] and not tolerances.op_error("ATTENTION", got[i], want[i], rms(want[well]), mean=False) <= 1]
    assert error <= 1 and not bad, f"{error:.2g} of the tolerance; {len(bad)} of {well.sum() * hq} rows and heads are wrong, first {bad[:1]}"
    return got


def leaving(case, q, keys, scale):
    """Which rows and heads leave the range, and which do not; some few, close to its ends, are neither."""
    hq, hkv = case.heads
    top = np.full((len(case.seq), hq), (BASE + LOW + BASE + 15) / 2)
    for (m, h), _ in np.ndenumerate(top):
        if case.pos[m] >= 0:
            top[m, h] = np.max(keys[case.seq[m]][0][:case.pos[m] + 1, h // (hq // hkv)] @ q[m, h].astype(np.float64)) * scale * np.log2(np.e)
    inside = np.minimum(top - (BASE + LOW), BASE + 15 - top)
    return ~(inside > -NEAR), inside > NEAR


def tiles_multiplied(case, check, queries, keys, scale, near):
    """Of each warpgroup of a case of one block and head, as it stops; check: tiles from one check to the next."""
    tiles = np.zeros((1, 2), int)
    run = np.cumsum(np.diff(case.seq, prepend=case.seq[0]) != 0)
    for block in {*zip(run, np.arange(len(run)) // 64)}:
        rows = [m for m in range(len(run)) if (run[m], m // 64) == block]
        done = 0  # the first tile of which no row needs to know
        for m in rows:
            scores = keys[case.seq[m]][0][:case.pos[m] + 1, 0] @ queries[m, 0].astype(np.float64) * scale * np.log2(np.e)
            above = np.flatnonzero(scores > BASE + 15 + near)
            seen = case.pos[m] // TILE - check  # also done: rows that see nothing of the tiles behind the next check
            done = max(done, min(above[0] // TILE + 1 if len(above) else seen, seen))
        most = max(case.pos[rows].max(), -1) // TILE + 1
        tiles[0, block[1]] += min(most, max(-(-done // check), 1) * check + check + 1)
    return tiles


def check_stops(case, check, products, again, rest):
    """The products of a case of one block and head, without those of its second walk: tiles until the warpgroups stop."""
    late, soon = (tiles_multiplied(case, check, *rest, near) for near in (NEAR, -NEAR))
    tiles = (products - again) / (case.d // 16 + TILE // 16)
    assert (soon <= tiles).all() and (tiles <= late).all(), f"warpgroups multiply {tiles[0]} tiles, should {soon[0]} to {late[0]}"
    if case.stops:
        print(f"{case.name}: the warpgroups multiply {tiles[0].astype(int)} tiles, and {(again / (case.d // 16 + TILE // 16))[0].astype(int)} again")


def check(programs, case, seed, stop_check):
    """By the running maximum; relative to a given one; and that again without the rows that left."""
    o, counted, *rest = run(programs[False], case, seed)
    sync, sync_products = check_rows(case, o, *rest), case.products
    assert not counted, "the synchronous program counts rows"
    o, counted, *rest = run(programs[True], case, seed)
    products = case.products
    got = check_rows(case, o, *rest)
    left, stays = leaving(case, *rest)
    assert left.sum() <= counted <= (~stays).sum(), f"{counted} rows are counted, and {left.sum()} to {(~stays).sum()} left"
    well = (case.seq != case.sick)[:, None]
    if case.heads == (1, 1) and len(left) <= ROWS:
        again = sync_products * [left[:64].any(), left[64:].any()]
        check_stops(case, stop_check, products, again, rest)
    assert (got[left & well] == sync[left & well]).all(), "a row that left differs from the synchronous program's"
    if case.wild > 1 and not case.stops:
        assert left.any() and stays.any()
        alone, counted, *_ = run(programs[True], case, seed, ~stays)
        alone = alone.view(got.dtype).reshape(len(got), -1)[:, :got[0].size].reshape(got.shape)
        assert not counted and (alone[stays] == got[stays]).all(), "a row that stayed changes with those that left"
        if case.lone:
            assert ((products - case.products) == sync_products * (1, 0)).all(), "not only the warpgroup with rows that left computes them again"


class Decoder:
    """attention_split.cl by chunks, as split_host runs it: what a row has alone."""

    def __init__(self, host, kernels, folder):
        self.host, self.kernels, self.folder = host, kernels, folder

    def library(self, case):
        path = os.path.join(self.folder, f"{case.d}.so")
        knobs = {"D": case.d, "TP": DECODED_PAGE[case.d] // 16, "CHUNK": 16, "GROWS": GROWS, "ASYNC": 0, "WG": 128, "ACT": 16, "FMA": 1}
        assert os.path.exists(path) or split.build(self.kernels, "attention_split", [f"-D{k}={v}" for k, v in knobs.items()], path)
        return path

    def run(self, case):
        operands, result = (os.path.join(self.folder, name) for name in ("operands", "result"))
        with open(operands, "wb") as f:
            f.write(case.given)
        subprocess.check_call([self.host, "--given", self.library(case), operands, result])
        return np.fromfile(result, np.uint8)


def check_chunks(program, case, seed, decoder):
    o, counted, *rest = run(program, case, seed)
    got = check_rows(case, o, *rest)
    if not decoder:
        return
    decoded = decoder.run(case).view(got.dtype).reshape(len(got), -1)[:, :got[0].size].reshape(got.shape)
    well = case.seq != case.sick
    other = [m for m in np.flatnonzero(well) if (decoded[m] != got[m]).any()]
    assert not other, f"{len(other)} of {well.sum()} rows have other bits than when they are decoded, first {other[0]}"


def cases(stop_check):
    yield Case("one row", 64, (2, 1), 16, [(0, [400])], steep=12)
    yield Case("many tiles", 64, (1, 1), 128, [(0, range(390, 490))])
    yield Case("rows of one sequence, several blocks on two work-groups", 64, (3, 1), 32, [(0, range(200, 250))], grid=2, steep=8)
    yield Case("runs and their shares", 64, (2, 2), 48, [(0, [0]), (1, range(120, 140)), (0, range(1, 30)), (2, [260, 5, 130]), (1, [-1, 3])],
               grid=3, share=2, half=False)
    yield Case("another sequence is no number", 64, (1, 1), 64, [(0, range(40)), (1, range(100, 150)), (0, range(40, 70))], sick=1)
    yield Case("heads of a KV head fill more than a block", 64, (130, 1), 16, [(0, [3, 130])])
    yield Case("no keys", 64, (1, 1), 256, [(1, [-1, -1]), (0, [-400]), (1, [2])])
    yield Case("head size 128", 128, (5, 1), 16, [(0, range(100, 140)), (1, [257])], grid=2, steep=8)
    yield Case("chunks, and those that have grown", 128, (2, 1), 32, [(0, [1400, 700, 255, 256]), (1, range(505, 520))], half=False, steep=3)
    yield Case("some rows leave", 64, (2, 1), 16, [(0, range(280, 350)), (1, range(5)), (0, range(30, 45))], wild=30)
    yield Case("one row leaves", 64, (2, 1), 16, [(0, range(140, 204))], wild=30, rows=slice(3, 4), lone=True)
    many = (2 * stop_check + 1) * TILE  # keys: a warpgroup whose rows leave at the first of them stops before the last
    yield Case("all rows leave", 64, (1, 1), 16, [(0, range(many + 1, many + 101))], wild=30, rows=slice(None), stops=True)
    yield Case("rows leave one after another", 64, (1, 1), 16, [(0, range(2 * many, 2 * many + 80))], wild=2, steep=4, rows=slice(None), stops=True)
    yield Case("all rows but one leave", 64, (1, 1), 16, [(0, range(many + 1, many + 101))], wild=30, rows=np.delete(np.arange(100), 37), stops=True)
    yield Case("all rows of some runs leave, but those with few keys", 64, (1, 1), 16,
               [(0, range(many + 1, many + 9)), (1, [TILE, 20, *range(many + 300, many + 340)]), (0, range(many + 9, many + 20))], wild=30, rows=slice(10, 50), stops=True)
    yield Case("some rows leave, several blocks, head size 128", 128, (3, 1), 32, [(0, range(500, 590))], grid=2, wild=30)


def main():
    np.seterr(all="ignore")
    tool, host, kernels, *seeds = sys.argv[1:]
    seed = int(seeds[0]) if seeds else random.randrange(1 << 30)
    print(f"seed {seed}")
    ways = {False: [], True: ["async"], "chunks": ["chunks"]}
    texts = {(d, way): subprocess.check_output([tool, "attention", str(d), *ways[way]], text=True) for d in (64, 128) for way in ways}
    programs = {d: {way: Kernel(texts[d, way]) for way in ways} for d in (64, 128)}
    wrong = ptx.check_comments(texts.values())
    for comment in wrong:
        print(f"the comment of a scope does not fit its statements: {comment}")
    failed = len(wrong)
    with open(os.path.join(kernels, "..", "nvidia", "attention.h"), encoding="utf-8") as f:
        stop_check = int(re.search(r"#define WF_ATTENTION_STOP_CHECK (\d+)", f.read())[1])
    with tempfile.TemporaryDirectory() as folder:
        decoder = Decoder(host, kernels, folder) if shutil.which(split.CLANG) else None
        for case in cases(stop_check):
            try:
                check(programs[case.d], case, seed, stop_check)
                check_chunks(programs[case.d]["chunks"], case, seed, decoder)
            except AssertionError as error:
                print(f"{case.name}, head size {case.d}: {error}")
                failed += 1
    print(f"{failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
