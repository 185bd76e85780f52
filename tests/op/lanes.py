"""PTX as cl/nvidia prints it, run a statement at a time for many lanes at once: those of a warp, or all work-items of a work-group. What else happens
late, or in an order of its own, is of those who build on it. wgmma is as the PTX ISA 8.0 defines its operands: A in registers or in shared memory,
B in shared memory in rows of 128 bytes, whose 16-byte chunks are swizzled by the row.
"""
import functools
import os
import re

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for products so small its threads do little but wait
import numpy as np

import ptx

STRIDE = 1 << 32  # of the buffers' addresses
NUMBER = {"b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "f32": np.float32, "pred": bool}
SIGNED = {np.uint32: np.int32, np.uint64: np.int64}
COMPARE = {"lt": np.less, "le": np.less_equal, "ge": np.greater_equal, "gt": np.greater, "eq": np.equal, "ne": np.not_equal}
PLAIN = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.floor_divide, "rem": np.remainder, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "shr": np.right_shift, "shl": np.left_shift, "min": np.minimum, "max": np.maximum,
    "fma": lambda a, b, c: (a.astype(float) * b + c).astype(np.float32), "mad": lambda a, b, c: a * b + c, "neg": np.negative, "abs": np.abs,
    "mov": lambda a: a, "ex2": lambda a: np.exp2(a.astype(float)).astype(np.float32),  # rounded once, as tests/op/host.c has it
    "rcp": np.reciprocal,
}
PAIRS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.fmax, "fma": lambda a, b, c: a * b + c}
METHODS = {"mbarrier": "barrier", "cp.async.mbarrier": "barrier", "cp.async.commit": None, "cp.async.wait": None, "cp.async.bulk": None, "cp.async": "copy",
           "wgmma": "warpgroup", "ld.": "load", "red.": "add_to", "st.": "store", "setp": "compare", "shfl": "shuffle", "vote": "vote", "redux": "reduce",
           "mov.b64": "move_wide", "bar.sync": "meet", "setmaxnreg": None, "fence": None}  # None: it has no effect here
WAIT = object()  # what a statement returns that cannot be done yet


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


class Program:
    """Statements, (predicate, negated, operation, operands), labels among them, and the types of registers."""

    def __init__(self, text):
        flat = ptx.flat(text)
        self.statements, self.labels = [], {}
        for part in re.split(r"[;\n]", flat[flat.index("\n{") + 2:flat.rindex("}")]):
            part = part.strip()
            while match := re.match(r"([A-Z]\w*):\s*", part):
                self.labels[match[1]] = len(self.statements)
                part = part[match.end():]
            if not part or part.startswith((".reg", ".shared")):
                continue
            predicate, negated, operation, rest = re.match(r"(?:@(!?)(\w+)\s+)?(\S+)\s*(.*)", part).group(2, 1, 3, 4)
            operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)
            self.statements.append((predicate, bool(negated), operation, operands))
        self.types = {name: NUMBER[kind] for line in re.findall(r"\.reg .*;", flat) for kind, name in ptx.declared(line)}


@functools.lru_cache(maxsize=None)
def words_in(operation):
    return operation.split(".")


@functools.lru_cache(maxsize=None)
def words_of(operand):
    return re.findall(r"\w+", operand)


@functools.lru_cache(maxsize=None)
def place_of(operand):
    """The register and the offset of an address."""
    name, offset = re.match(r"\[(\w+)(?:\+(\d+))?\]", operand).groups()
    return name, np.uint64(int(offset or 0))


@functools.lru_cache(maxsize=None)
def method_of(operation):
    return next((method for start, method in METHODS.items() if operation.startswith(start)), "compute")


@functools.lru_cache(maxsize=None)
def constant(number, kind, n):
    every = np.full(n, number, kind)
    every.flags.writeable = False
    return every


@functools.lru_cache(maxsize=None)
def fragment_places(threads, n_sums):
    """Where the elements of A (thread, element) and of the sums (sum, thread) lie: rows, columns."""
    thread, i, sums = np.arange(threads)[:, None], np.arange(8), np.arange(n_sums)[:, None]
    row, pair = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
    of_sums = row.T + sums % 4 // 2 * 8, sums // 4 * 8 + pair.T + sums % 2
    return (row + i // 2 % 2 * 8, pair + i % 2 + i // 4 * 8), of_sums


def permuted(a, b, how):
    """A place whose upper bit is set has eight times the sign of its byte."""
    both = (b.astype(np.uint64) << np.uint64(32) | a).view(np.uint8).reshape(-1, 8)
    place = how[:, None] >> np.arange(0, 16, 4, dtype=np.uint32)
    data = np.take_along_axis(both, (place & 7).astype(np.int64), 1)
    signs = (data.view(np.int8) >> 7).view(np.uint8)
    return np.where(place & 8, signs, data).view(np.uint32)[:, 0]


class Lanes:
    """n lanes, of which the first is this work-item of its work-group; special: registers that are not declared, as numbers."""

    def __init__(self, program, first, n, special, params, memory, local):
        self.program, self.first, self.n, self.params, self.memory, self.local = program, first, n, params, memory, local
        self.special = {name: self.constant(number, np.uint32) for name, number in special.items()} | {"%tid.x": np.arange(first, first + n, dtype=np.uint32)}
        self.every = np.ones(n, bool)  # lanes; known by what it is, not by what it holds
        self.done, self.here, self.at = False, 0, None  # the statement of all lanes, or where they part, of each
        self.products, self.open = [], []
        self.values = {name: self.constant(0, kind) for name, kind in program.types.items()}  # which may be shared: none is changed in place

    def constant(self, number, kind):
        return constant(number, kind, self.n)

    # ---- operands

    def value(self, name, kind=np.uint32):
        if name in self.values:
            return self.values[name]
        if name in self.special:
            return self.special[name].astype(kind, copy=False)
        if name.startswith("0f"):
            return self.constant(int(name[2:], 16), np.uint32).view(np.float32)
        return self.constant(int(name, 0) & (1 << np.dtype(kind).itemsize * 8) - 1, kind)

    def set(self, name, value, active):
        if name == "_":
            return
        kind = self.program.types[name]
        if value.dtype != kind:
            value = value.view(kind) if value.dtype.itemsize == np.dtype(kind).itemsize else value.astype(kind)
        self.values[name] = value if active is self.every else np.where(active, value, self.values[name])

    def address(self, operand):
        name, offset = place_of(operand)
        return self.value(name).astype(np.uint64) + offset

    def space(self, operation, at):
        """Shared memory is buffer 0 of a memory of its own."""
        return (self.local, at + np.uint64(STRIDE)) if ".shared" in operation else (self.memory, at)

    # ---- products

    def matrix(self, descriptor, rows, across):
        """128-byte rows with their chunks swizzled: [rows, 16] of halves where K is across, else [16, rows]."""
        start, panel = (descriptor & 0x3FFF) << 4, (descriptor >> 16 & 0x3FFF) << 4
        assert descriptor >> 62 == 1 and descriptor >> 32 & 0x3FFF == 64
        if across:
            at = start + np.arange(rows)[:, None] * 128 + np.arange(16) * 2
        else:
            column = np.arange(rows)
            at = start + np.arange(16)[:, None] * 128 + column // 64 * panel + column % 64 * 2
        at ^= (at >> 7 & 7) << 4
        local = self.local.buffers[0]
        return (local[at] | local[at + 1].astype(np.uint16) << 8).view(np.float16).astype(np.float32)

    def added(self, sums, product):
        """Of one step of 16."""
        return (sums + product).astype(np.float32)

    def multiply(self, operation, operands):
        sums, columns = words_of(operands[0]), int(re.search(r"m64n(\d+)k16", operation)[1])
        of_a, of_sums = fragment_places(self.n, len(sums))
        if operands[1].startswith("{"):
            a = np.zeros((self.n // 2, 16))
            a[of_a] = np.stack([self.values[name] for name in words_of(operands[1])], axis=1).view(np.float16)
        else:
            a = self.matrix(int(operands[1]), 64, True)[self.first // 2 % 64:][:self.n // 2].astype(float)
        assert operands[4:6] == ["1", "1"]
        down = operands[-1] == "1"
        b = self.matrix(int(operands[2]), columns, not down).astype(float)
        product = (a @ (b if down else b.T))[of_sums]
        before = np.stack([self.values[name] for name in sums]) if operands[3] == "1" else np.float32(0)
        self.values.update(zip(sums, self.added(before, product)))

    def warpgroup(self, operation, operands, active):
        if ".mma_async" in operation:
            fixed = [operands[0], operands[1] if operands[1].startswith("{") else str(self.value(operands[1])[0]), str(self.value(operands[2])[0])]
            adds = operands[3] if operands[3] in ("0", "1") else str(int(self.values[operands[3]][0]))
            self.open.append((operation, [*fixed, adds, *operands[4:]]))
        elif ".commit_group" in operation:
            self.products += [(product, i + 1 == len(self.open)) for i, product in enumerate(self.open)]
            self.open = []
        elif ".wait_group" in operation:
            assert not self.open
            while sum(last for _, last in self.products) > int(operands[0]):
                self.multiply(*self.products.pop(0)[0])

    # ---- statements

    def load(self, operation, operands, active):
        names = words_of(operands[0])
        if "param" in operation:
            return self.set(names[0], self.constant(self.params[operands[1][1:-1]], self.program.types[names[0]]), active)
        memory, at = self.space(operation, self.address(operands[1])[active])
        if not len(at):
            return None
        words = np.zeros((len(names), self.n), np.uint32)
        words[:, active] = memory.load(at, 4 * len(names)).copy().view(np.uint32).T
        for name, word in zip(names, words):
            self.set(name, word, active)

    def store(self, operation, operands, active):
        memory, at = self.space(operation, self.address(operands[0])[active])
        words = [self.value(name)[active].view(np.uint32) for name in words_of(operands[1])]
        if len(at):
            memory.store(at, np.stack(words, axis=1).view(np.uint8))

    def compare(self, operation, operands, active):
        kind = words_in(operation)
        types = [self.program.types[name] for name in operands[1:3] if name in self.program.types]
        a, b = (self.value(name, types[0] if types else np.uint32) for name in operands[1:3])
        if kind[-1].startswith("s"):
            a, b = (x.view(SIGNED[x.dtype.type]) for x in (a, b))
        result = COMPARE[kind[1]](a, b)
        if kind[2] == "and":
            result = result & self.values[operands[3]]
        elif kind[2] == "or":
            result = result | self.values[operands[3]]
        self.set(operands[0], result, active)

    def move_wide(self, _, operands, active):
        """mov.b64 between a register and two halves."""
        if operands[0].startswith("{"):
            low, high = words_of(operands[0])
            value = self.value(operands[1], np.uint64)
            self.set(low, value.astype(np.uint32), active)
            self.set(high, (value >> np.uint64(32)).astype(np.uint32), active)
        elif operands[1].startswith("{"):
            low, high = (self.values[name].astype(np.uint64) for name in words_of(operands[1]))
            self.set(operands[0], high << np.uint64(32) | low, active)
        else:
            self.set(operands[0], self.value(operands[1], np.uint64), active)

    def compute(self, operation, operands, active):
        name, *rest = operands
        stem, *kind = words_in(operation)
        if name.startswith("{"):  # halves of a word
            for i, half in enumerate(words_of(name)):
                self.set(half, (self.value(rest[0]).view(np.uint32) >> np.uint32(16 * i)).astype(np.uint16), active)
            return
        if stem == "selp":
            kind = self.program.types[name]
            result = np.where(self.values[rest[2]], self.value(rest[0], kind), self.value(rest[1], kind))
        elif operation == "cvt.rn.f16x2.f32":
            high, low = (self.value(x).astype(np.float16).view(np.uint16).astype(np.uint32) for x in rest)
            result = high << np.uint32(16) | low
        elif operation == "cvt.f32.f16":
            result = self.value(rest[0]).view(np.float16).astype(np.float32)
        elif stem == "cvt":
            result = self.value(rest[0]).astype(np.uint64)
        elif kind[-1] == "f16x2":  # rounded once
            result = PAIRS[stem](*(self.value(x)[:, None].copy().view(np.float16).astype(float) for x in rest)).astype(np.float16).view(np.uint32)[:, 0]
        elif stem == "prmt":
            result = permuted(*(self.value(x) for x in rest))
        elif stem == "lop3":
            assert rest[3] == "0xEA"
            result = self.value(rest[0]) & self.value(rest[1]) | self.value(rest[2])
        elif stem == "brev":
            result = np.array([int(f"{x:032b}"[::-1], 2) for x in self.value(rest[0])], np.uint32)
        elif stem == "popc":
            result = np.array([int(x).bit_count() for x in self.value(rest[0])], np.uint32)
        elif stem == "clz":
            result = np.array([32 - int(x).bit_length() for x in self.value(rest[0])], np.uint32)
        elif kind[:1] == ["wide"]:
            narrow = [self.value(x) for x in rest]
            result = np.multiply(*(x.view(np.int32).astype(np.int64) if kind[1] == "s32" else x.astype(np.uint64) for x in narrow))
        else:
            types = self.program.types[name]
            values = [self.value(x, types) for x in rest]
            if kind[-1] in ("s32", "s64"):
                values = [x.view(SIGNED[types]) for x in values]
            if stem in ("shl", "shr"):
                values[1] = values[1].astype(values[0].dtype)
            op = np.fmax if operation == "max.f32" else np.divide if operation == "div.full.f32" else PLAIN[stem]
            result = op(*values)
        self.set(name, result, active)

    # ---- running

    def behind(self):
        """Where the lanes that are behind stand, and which these are."""
        if self.at is None:
            return self.here, self.every
        here = int(self.at.min())
        return here, self.at == here

    def move(self, lanes, to):
        if lanes is self.every:
            self.here = to
            return
        self.at = np.full(self.n, self.here) if self.at is None else self.at
        self.at[lanes] = to
        if (self.at == to).all():
            self.here, self.at = to, None

    def stands_still(self, operation):
        """Behind this statement, for a while?"""
        return False

    def go(self, most):
        """Up to so many statements; False if not one could be done. Lanes that are behind go first."""
        for n in range(most):
            if self.done:
                return n > 0
            here, there = self.behind()
            predicate, negated, operation, operands = self.program.statements[here]
            active = there
            if predicate and not (self.values[predicate] ^ negated).all():
                active = there & (self.values[predicate] ^ negated)
            if operation == "ret":
                assert there.all() and not self.products
                self.done = True
                return True
            if operation == "bra":
                self.move(there, here + 1)
                self.move(active, self.program.labels[operands[0]])
                continue
            method = method_of(operation)
            if method and getattr(self, method)(operation, operands, active) is WAIT:
                return n > 0
            self.move(there, here + 1)
            if method == "barrier" and self.stands_still(operation):
                return True
        return True
