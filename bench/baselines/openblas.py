#!/usr/bin/env python3
"""OpenBLAS on the CPU (sgemm on F32), for `WEFT_PEER` of `weft bench ops --device cpu --type F32`.

    openblas.py [-t THREADS] [--shape SHAPE]... >peers.csv

OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE are unset: with the wrong core it runs at half its speed. The core it picks by
itself stands in the first line.
"""
import os
import sys
import time

SET = [name for name in ('OPENBLAS_CORETYPE', 'OPENBLAS_L2_SIZE') if name in os.environ]
if SET:  # read when the library is loaded: begin anew without
    for name in SET:
        del os.environ[name]
    os.execv(sys.executable, [sys.executable] + sys.argv)

import ctypes
import ctypes.util

import numpy as np

import shapes

ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112


def load():
    lib = ctypes.CDLL(ctypes.util.find_library('openblas') or 'libopenblas.so.0')
    lib.openblas_get_corename.restype = ctypes.c_char_p
    f, i, p = ctypes.c_float, ctypes.c_int, ctypes.c_void_p
    lib.cblas_sgemm.argtypes = [i, i, i, i, i, i, f, p, i, p, i, f, p, i]
    return lib


def timed(lib, m, n, k, weights, x, y):
    turn = 0

    def run(count):
        nonlocal turn
        start = time.perf_counter()
        for _ in range(count):
            w = weights[turn % len(weights)]
            lib.cblas_sgemm(ROW_MAJOR, NO_TRANS, TRANS, m, n, k, 1, x.ctypes.data, k, w.ctypes.data, k, 0, y.ctypes.data, n)
            turn += 1
        return (time.perf_counter() - start) / count

    return shapes.median(run, run(1))


def main():
    p = shapes.options(__doc__, 1 << 30)
    p.add_argument('-t', type=int, default=len(os.sched_getaffinity(0)), help='threads')
    a = p.parse_args()
    lib, rng, held = load(), np.random.default_rng(1), None
    lib.openblas_set_num_threads(a.t)
    print(f'# OpenBLAS core {lib.openblas_get_corename().decode()}, {a.t} threads', flush=True)
    report = shapes.Report('openblas')
    for m, n, k in shapes.chosen(a)[0]:
        if held != (n, k):
            weights = None
            one = rng.random((n, k), np.float32) - 0.5
            weights = [one.copy() for _ in range(shapes.copies(4 * n * k, a.rotate))]
            held = (n, k)
        x, y = rng.random((m, k), np.float32) - 0.5, np.zeros((m, n), np.float32)
        rate, unit = shapes.gemm_rate(m, n, k, 4 * n * k, timed(lib, m, n, k, weights, x, y))
        report.row('gemm', 'F32', shapes.text(M=m, N=n, K=k), rate, unit)


main()
