"""LLM inference with weft, on OpenCL devices and CPUs.

>>> import weft
>>> with weft.Model(weft.DEMO) as model, weft.Engine(model, device="cpu") as engine:
...     for piece in engine.generate("One day", max_tokens=4):
...         print(piece, end="|")
,| a| little| boy|

Keyword arguments have the names of the fields in <weft/weft.h>, which says what they mean; this package has no list of its own of them.
docs/python.md is a guide.
"""
from ._engine import Engine, Event, Model, Request, Result, devices
from ._library import (DEMO, ArgumentError, CancelledError, ClosedError, ContextFullError, DeviceError, Error, FileError, FormatError,
                       InternalError, NoDeviceError, NotFiniteError, OutOfMemoryError, Record, TimeLimitError, UnsupportedError,
                       library_version)
from ._library import VERSION as __version__

__all__ = [
    'DEMO', 'ArgumentError', 'CancelledError', 'ClosedError', 'ContextFullError', 'DeviceError', 'Engine', 'Error', 'Event', 'FileError',
    'FormatError', 'InternalError', 'Model', 'NoDeviceError', 'NotFiniteError', 'OutOfMemoryError', 'Record', 'Request', 'Result',
    'TimeLimitError', 'UnsupportedError', '__version__', 'devices', 'library_version',
]
