"""What all calls of the library need: errors, handles that end safely, results as Python values, the log, callbacks."""
import atexit
import contextlib
import functools
import logging
import os
import threading
import traceback
import types
from typing import Any, Callable, Dict, Iterator, Optional, Tuple, Type

from ._weft import ffi, lib


class Error(Exception):
    """A call failed. `status` is the library's name of why, the text its message."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (*self.args, self.status), vars(self)  # one from a pool's process is pickled


class ArgumentError(Error, ValueError):
    """A parameter is out of range, contradicts another, or names an unsuitable file."""


class ClosedError(ArgumentError):
    """The model, engine or request was closed."""


class OutOfMemoryError(Error, MemoryError):
    """Not enough host or device memory; the message has the sizes."""


class FileError(Error, OSError):
    """A file cannot be opened, read or mapped."""


class FormatError(Error, ValueError):
    """A model file is malformed."""


class UnsupportedError(Error):
    """A model or request that weft cannot serve."""


class NoDeviceError(Error):
    """The device does not exist or cannot be used."""


class DeviceError(Error):
    """The device failed while in use."""


class TimeLimitError(Error, TimeoutError):
    """The device exceeded its time limit."""


class ContextFullError(Error, ValueError):
    """The prompt is longer than the context."""


class CancelledError(Error):
    """The request was cancelled, its engine closed, or a stop function said so."""


class InternalError(Error):
    """A bug in weft."""


class NotFiniteError(Error):
    """The model gave a logit that is not a finite number."""


ERRORS: Dict[int, Type[Error]] = {
    lib.WEFT_ERR_ARG: ArgumentError, lib.WEFT_ERR_NOMEM: OutOfMemoryError, lib.WEFT_ERR_IO: FileError, lib.WEFT_ERR_FORMAT: FormatError,
    lib.WEFT_ERR_UNSUPPORTED: UnsupportedError, lib.WEFT_ERR_NODEVICE: NoDeviceError, lib.WEFT_ERR_DEVICE: DeviceError,
    lib.WEFT_ERR_TIMEOUT: TimeLimitError, lib.WEFT_ERR_FULL: ContextFullError, lib.WEFT_ERR_CANCELLED: CancelledError,
    lib.WEFT_ERR_INTERNAL: InternalError, lib.WEFT_ERR_NOT_FINITE: NotFiniteError,
}


def text_of(chars: Any) -> str:
    """A string of the library."""
    return str(ffi.string(chars).decode(errors='replace'))


def error_of(status: int, message: str) -> Error:
    """The exception for a status. One that this package does not know is an Error."""
    return ERRORS.get(status, Error)(message, text_of(lib.weft_status_name(status)))


VERSION = f'{lib.WEFT_VERSION_MAJOR}.{lib.WEFT_VERSION_MINOR}.{lib.WEFT_VERSION_PATCH}'
DEMO: str = text_of(lib.WEFT_DEMO)


def library_version() -> str:
    """The version of the library that runs; __version__ is that of the header that this package was built with."""
    return text_of(lib.weft_version())


# --- callbacks ---------------------------------------------------------------------------------------

class Callbacks(threading.local):
    """What the library calls on this thread while it is in a call of it, and what was raised there, Ctrl-C above all."""

    stop: Optional[Callable[[], object]] = None
    on_progress: Optional[Callable[[str, float], object]] = None
    raised: Optional[BaseException] = None


callbacks = Callbacks()


@contextlib.contextmanager
def calling_back(stop: Optional[Callable[[], object]], on_progress: Optional[Callable[[str, float], object]] = None) -> Iterator[None]:
    """For the time of a call. Those of a call around it, in one of which this one is, come back afterwards."""
    before = callbacks.stop, callbacks.on_progress
    callbacks.stop, callbacks.on_progress = stop, on_progress
    try:
        yield
    finally:
        callbacks.stop, callbacks.on_progress = before


def keep_raised(kind: Any, value: BaseException, trace: Any) -> None:
    """An exception cannot pass through the library: check() raises it behind the call."""
    callbacks.raised = value


@ffi.def_extern(error=True, onerror=keep_raised)  # type: ignore[untyped-decorator]
def python_stop(user: Any) -> bool:
    return callbacks.raised is not None or bool(callbacks.stop and callbacks.stop())


@ffi.def_extern(onerror=keep_raised)  # type: ignore[untyped-decorator]
def python_progress(user: Any, what: Any, fraction: float) -> None:
    if callbacks.on_progress:
        callbacks.on_progress(text_of(what), fraction)


def check(status: int) -> None:
    """Raises what went wrong in a call of the library, on the thread of that call."""
    raised, callbacks.raised = callbacks.raised, None
    if raised:
        raise raised
    if status:
        raise error_of(status, text_of(lib.weft_last_error()))


# --- log ---------------------------------------------------------------------------------------------

LEVELS = {lib.WEFT_LOG_ERROR: logging.ERROR, lib.WEFT_LOG_WARN: logging.WARNING, lib.WEFT_LOG_INFO: logging.INFO,
          lib.WEFT_LOG_DEBUG: logging.DEBUG}
logger = logging.getLogger('weft')


def log_failed(kind: Any, value: BaseException, trace: Any) -> None:
    """A handler's error stops nothing, as elsewhere in logging; Ctrl-C is no error."""
    if isinstance(value, Exception):
        traceback.print_exception(kind, value, trace)
    else:
        keep_raised(kind, value, trace)


@ffi.def_extern(onerror=log_failed)  # type: ignore[untyped-decorator]
def python_log(level: int, line: Any) -> None:
    logger.log(LEVELS[level], '%s', text_of(line))


lib.open_log()
os.register_at_fork(after_in_child=lib.leave_threads)
atexit.register(lib.close_log)


# --- objects of the library --------------------------------------------------------------------------

class Handle:
    """A pointer of the library and when it may be freed: `with handle as pointer` keeps it for the time of a call. The last call frees it if
    it was closed meanwhile, so no thread ever has a pointer of what is gone."""

    def __init__(self, what: str, pointer: Any, free: Callable[[Any], object], interrupt: Optional[Callable[[Any], object]] = None) -> None:
        self._what, self._pointer, self._free, self._interrupt = what, pointer, free, interrupt
        self._process = os.getpid()
        self._lock, self._users, self._closed = threading.RLock(), 0, False  # a signal's handler may close it while its thread is here

    def __enter__(self) -> Any:
        if lib.in_log():
            raise RuntimeError('a log handler must not use weft: the engine waits for it')
        self.refuse_inherited()
        with self._lock:
            if self._closed:
                raise ClosedError(f'the {self._what} is closed', 'WEFT_ERR_ARG')
            self._users += 1
            return self._pointer

    def refuse_inherited(self) -> None:
        """Raises in a child of the process that opened it. Before any lock, which a thread of the parent may have held at the fork."""
        if self._inherited():
            raise ClosedError(f'the {self._what} belongs to the process that opened it, before a fork: open one in this process', 'WEFT_ERR_ARG')

    def _inherited(self) -> bool:
        return os.getpid() != self._process

    def __exit__(self, *_: object) -> None:
        if self._inherited():
            return
        with self._lock:
            self._users -= 1
            last = self._closed and not self._users
        if last:
            self._release()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Frees it, now or behind the calls that use it, which are told to end. More than once is allowed."""
        if self._inherited():
            self._closed = True  # for this process; its threads are not in it
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle = not self._users
            if self._interrupt and not idle:
                self._interrupt(self._pointer)
        if idle:
            self._release()

    def _release(self) -> None:
        if lib.in_log():  # the collector of garbage runs on any thread, and one of an engine cannot wait for itself
            threading.Thread(target=self._free, args=(self._pointer,)).start()
        else:
            self._free(self._pointer)


def acquire(what: str, open_it: Callable[[Any], int], free: Callable[[Any], object],
            interrupt: Optional[Callable[[Any], object]] = None) -> Handle:
    """Opens a model, engine or request. Nothing stays open if it fails, also by Ctrl-C."""
    out = ffi.new(f'struct weft_{what} **')
    try:
        check(open_it(out))
        return Handle(what, out[0], free, interrupt)
    except BaseException:
        free(out[0])
        raise


# --- results -----------------------------------------------------------------------------------------

class Record(types.SimpleNamespace):
    """The fields of a struct of the library, with their names there."""


@functools.lru_cache(maxsize=None)
def word(enum: Any, value: int) -> str:
    """A value of an enum as a word: "cpu" for WEFT_DEVICE_CPU. A number that the header does not have stays one."""
    names = enum.elements
    return str(names[value][len(os.path.commonprefix(list(names.values()))):].lower() if value in names else value)


def value_of(kind: Any, value: Any) -> Any:
    if kind.kind == 'enum':
        return word(kind, value)
    if kind.kind == 'array':
        return text_of(value) if kind.item.cname == 'char' else list(value)
    if kind.kind == 'pointer':
        return text_of(value) if value else None
    return value


def record_of(struct: Any) -> Record:
    """A copy of a struct whose fields are numbers, texts and arrays of numbers."""
    kind = ffi.typeof(struct)
    fields = (kind.item if kind.kind == 'pointer' else kind).fields
    return Record(**{name: value_of(field.type, getattr(struct, name)) for name, field in fields if name != 'reserved'})
