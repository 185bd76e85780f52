#!/usr/bin/env python3
"""CLBlast on an OpenCL device (SGEMM on F32), for `WEFT_PEER` of `weft bench ops --type F32`.

    clblast.py [--device PART_OF_NAME] [--shape SHAPE]... >peers.csv
"""
import ctypes
import sys
import time
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_ulong, c_void_p

import numpy as np

import shapes

ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112
DEVICE_TYPE_ALL, DEVICE_NAME, READ_WRITE, COPY_HOST = 0xFFFFFFFF, 0x102B, 1, 32


def library(name, so):
    try:
        return ctypes.CDLL(so)
    except OSError:
        sys.exit(f'{name} is missing ({so})')


cl = library('OpenCL', 'libOpenCL.so.1')
blast = library('CLBlast', 'libclblast.so.1')
cl.clCreateContext.restype = cl.clCreateBuffer.restype = cl.clCreateCommandQueue.restype = c_void_p
cl.clCreateBuffer.argtypes = [c_void_p, c_ulong, c_size_t, c_void_p, c_void_p]
cl.clCreateCommandQueue.argtypes = [c_void_p, c_void_p, c_ulong, c_void_p]
cl.clFinish.argtypes = cl.clReleaseMemObject.argtypes = [c_void_p]
S, P = c_size_t, c_void_p
blast.CLBlastSgemm.argtypes = [c_int] * 3 + [S] * 3 + [c_float, P, S, S, P, S, S, c_float, P, S, S, P, P]


def device_info(device, what, buf):
    cl.clGetDeviceInfo(c_void_p(device), c_uint(what), c_size_t(ctypes.sizeof(buf)), buf, None)
    return buf


def devices():
    n = c_uint()
    platforms = (c_void_p * 16)()
    cl.clGetPlatformIDs(16, platforms, byref(n))
    for p in platforms[:n.value]:
        ids, count = (c_void_p * 16)(), c_uint()
        if cl.clGetDeviceIDs(c_void_p(p), c_ulong(DEVICE_TYPE_ALL), 16, ids, byref(count)) == 0:
            for d in ids[:count.value]:
                yield d, device_info(d, DEVICE_NAME, ctypes.create_string_buffer(256)).value.decode()


class Queue:
    def __init__(self, device):
        one, err = (c_void_p * 1)(device), c_int()
        self.context = c_void_p(cl.clCreateContext(None, 1, one, None, None, byref(err)))
        self.queue = c_void_p(cl.clCreateCommandQueue(self.context, device, 0, byref(err)))
        if err.value:
            sys.exit(f'cannot open the device: OpenCL error {err.value}')

    def buffer(self, array):
        err = c_int()
        b = cl.clCreateBuffer(self.context, READ_WRITE | COPY_HOST, array.nbytes, array.ctypes.data, byref(err))
        if err.value:
            sys.exit(f'no buffer of {array.nbytes} bytes: OpenCL error {err.value}')
        return b

    def sgemm(self, m, n, k, x, w, y):
        err = blast.CLBlastSgemm(ROW_MAJOR, NO_TRANS, TRANS, m, n, k, 1, x, 0, k, w, 0, k, 0, y, 0, n, byref(self.queue), None)
        if err:
            sys.exit(f'CLBlastSgemm of {m} x {n} x {k}: error {err}')

    def timed(self, m, n, k, x, weights, y):
        def run(count):
            start = time.perf_counter()
            for i in range(count):
                self.sgemm(m, n, k, x, weights[i % len(weights)], y)
            cl.clFinish(self.queue)
            return (time.perf_counter() - start) / count

        run(1)  # builds
        return shapes.median(run, run(1))


def main():
    p = shapes.options(__doc__, 4 << 30)
    p.add_argument('--device', default='', help='part of the device\'s name (default: the first)')
    a = p.parse_args()
    found = [(d, name) for d, name in devices() if a.device.lower() in name.lower()]
    if not found:
        sys.exit(f'no OpenCL device "{a.device}"')
    print(f'# {found[0][1]}, CLBlast', flush=True)
    q, rng, report, held, weights = Queue(found[0][0]), np.random.default_rng(1), shapes.Report('clblast'), None, []
    for m, n, k in shapes.chosen(a)[0]:
        if held != (n, k):
            for w in weights:
                cl.clReleaseMemObject(w)
            one = rng.random((n, k), np.float32) - 0.5
            weights = [q.buffer(one) for _ in range(shapes.copies(4 * n * k, a.rotate))]
            held = (n, k)
        x, y = q.buffer(rng.random((m, k), np.float32) - 0.5), q.buffer(np.zeros((m, n), np.float32))
        rate, unit = shapes.gemm_rate(m, n, k, 4 * n * k, q.timed(m, n, k, x, weights, y))
        report.row('gemm', 'F32', shapes.text(M=m, N=n, K=k), rate, unit)
        cl.clReleaseMemObject(x)
        cl.clReleaseMemObject(y)


main()
