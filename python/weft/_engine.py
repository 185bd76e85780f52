"""Models, engines and requests."""
import asyncio
import contextlib
import os
import secrets
import threading
import weakref
from array import array
from dataclasses import dataclass, field
from types import TracebackType
from typing import (TYPE_CHECKING, Any, AsyncIterator, Callable, Generator, Iterable, Iterator, List, Mapping, NoReturn, Optional,
                    Sequence, Tuple, Type, TypeVar, Union)

from ._library import ClosedError, Handle, Record, acquire, calling_back, check, error_of, record_of, text_of, word
from ._params import Params, encoded, fields_of, is_text
from ._weft import ffi, lib

if TYPE_CHECKING:  # what the header declares; there is nothing of it at run time
    from typing_extensions import Unpack

    from ._keywords import ChatParams, ChatRequestParams, EngineParams, ModelParams, RequestParams

PATIENCE_MS = 100  # how long a wait within the library leaves Ctrl-C unheard

Path = Union[str, bytes, 'os.PathLike[str]']
Text = Union[str, bytes, bytearray, memoryview]
Prompt = Union[Text, Sequence[int]]
Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]
Self = TypeVar('Self', bound='Closable')


def devices() -> List[Record]:
    """The devices that weft can use.

    >>> [d.id for d in devices() if d.type == "cpu" and d.platform == "weft cpu"]
    ['cpu']
    """
    n = lib.weft_devices(ffi.NULL, 0)
    found = ffi.new('struct weft_device_info[]', n)
    return [record_of(found[i]) for i in range(min(n, lib.weft_devices(found, n)))]


class Closable:
    """What is freed by close(), at the end of `with`, or when nothing refers to it any more. Using it then raises ClosedError."""

    def _own(self, handle: Handle) -> None:
        self._handle = handle
        self._finalizer = weakref.finalize(self, handle.close)  # also when the interpreter ends

    def close(self) -> None:
        self._finalizer()

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def __reduce__(self) -> NoReturn:
        raise TypeError(f'a {type(self).__name__} can be neither copied nor pickled: what it has open would be closed twice')

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], traceback: Optional[TracebackType]) -> None:
        self.close()


def allocated(call: Callable[[Any, Any], int], kind: str) -> Tuple[Any, int]:
    """What a function of the library allocates, and its length; freed when nothing refers to it."""
    out, n = ffi.new(f'{kind} **'), ffi.new('size_t *')
    check(call(out, n))
    return ffi.gc(out[0], lib.weft_free), n[0]


def allocated_text(call: Callable[[Any, Any], int]) -> str:
    text, n = allocated(call, 'char')
    return bytes(ffi.buffer(text, n)).decode(errors='replace')


def allocated_ids(call: Callable[[Any, Any], int]) -> List[int]:
    ids, n = allocated(call, 'int32_t')
    return list(ffi.unpack(ids, n))


class Model(Closable):
    """A model file or folder, the name of one in the folder of models, or DEMO, the small one in the library: hyperparameters and vocabulary.

    Keyword arguments are the fields of struct weft_model_params. `on_progress(what, fraction)` is told while a folder is read, and `stop()`, asked now and
    then, ends opening when it returns true, as Ctrl-C does.

    >>> from weft import DEMO, Model
    >>> with Model(DEMO) as model:
    ...     ids = model.tokenize("One day")
    ...     model.detokenize(ids, hide_special=True), model.info.arch
    ('One day', 'llama')
    """

    def __init__(self, path: Optional[Path] = None, *, on_progress: Optional[Callable[[str, float], object]] = None,
                 stop: Optional[Callable[[], object]] = None, **params: 'Unpack[ModelParams]') -> None:
        p = Params('struct weft_model_params', {'path': path, **params})
        p.pointer.stop, p.pointer.on_progress = lib.python_stop, lib.python_progress
        with calling_back(stop, on_progress):
            self._own(acquire('model', lambda out: lib.weft_model_open(p.pointer, out), lib.weft_model_close))

    @property
    def info(self) -> Record:
        """The fields of struct weft_model_info."""
        with self._handle as m:
            return record_of(lib.weft_model_info(m))

    def budget(self, **params: 'Unpack[EngineParams]') -> Record:
        """The memory that an engine with these parameters needs: the fields of struct weft_budget."""
        p, out = Params('struct weft_engine_params', params), ffi.new('struct weft_budget *')
        with self._handle as m:
            check(lib.weft_model_budget(m, p.pointer, out))
        return record_of(out)

    def tokenize(self, text: Text, add_special: bool = True, parse_special: bool = True) -> List[int]:
        """Token ids of a text; with BOS and EOS if the model wants them, and control tokens where the text spells them."""
        content = encoded(text)
        flags = (0 if add_special else lib.WEFT_TEXT_NO_ADD_SPECIAL) | (0 if parse_special else lib.WEFT_TEXT_NO_PARSE_SPECIAL)
        with self._handle as m:
            return allocated_ids(lambda out, n: lib.weft_tokenize(m, content, len(content), flags, out, n))

    def detokenize(self, ids: Iterable[int], hide_special: bool = False) -> str:
        """The text of token ids. What is no UTF-8 becomes U+FFFD."""
        items, flags = ffi.new('int32_t[]', list(ids)), lib.WEFT_TEXT_HIDE_SPECIAL if hide_special else 0
        with self._handle as m:
            return allocated_text(lambda out, n: lib.weft_detokenize(m, items, len(items), flags, out, n))

    def token_text(self, token: int) -> bytes:
        """The text of one token within others, which may be a part of a character; b"" for an id that is not in the vocabulary."""
        with self._handle as m:
            buffer = ffi.new('char[]', lib.weft_token_text(m, token, 0, ffi.NULL, 0))
            return bytes(ffi.buffer(buffer, lib.weft_token_text(m, token, 0, buffer, len(buffer))))

    def chat_tokenize(self, messages: Messages, tools: Optional[Tools] = None, **params: 'Unpack[ChatParams]') -> List[int]:
        """Token ids of a conversation. Keyword arguments are the fields of struct weft_chat_params."""
        p = chat_params(messages, tools, params)
        with self._handle as m:
            return allocated_ids(lambda out, n: lib.weft_chat_tokenize(m, p.pointer, out, n))

    def chat_render(self, messages: Messages, tools: Optional[Tools] = None, **params: 'Unpack[ChatParams]') -> str:
        """A conversation as the text that the chat template writes."""
        p = chat_params(messages, tools, params)
        with self._handle as m:
            return allocated_text(lambda out, n: lib.weft_chat_render(m, p.pointer, out, n))


def chat_params(messages: Messages, tools: Optional[Tools], params: Mapping[str, Any]) -> Params:
    if is_text(messages) or isinstance(messages, Mapping) or not isinstance(messages, Iterable):
        raise TypeError(f'messages: a list of them is expected, not {type(messages).__name__}')
    return Params('struct weft_chat_params', {'messages': list(messages), 'tools': tools, **params})


def prompt_params(prompt: Optional[Prompt], params: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the prompt under the name that it has in struct weft_request_params."""
    if prompt is None and params.get('tokens') is None:
        raise TypeError('prompt: a text or token ids are expected, not None; "" begins a new text')
    if isinstance(prompt, (list, tuple)) and any(map(is_text, prompt)):
        raise TypeError('prompt: one text or token ids are expected, not a list of texts: submit() each, and they are computed together')
    if prompt is not None and not isinstance(prompt, Iterable):
        raise TypeError(f'prompt: a text or token ids are expected, not {type(prompt).__name__}')
    return {'prompt': prompt, **params} if is_text(prompt) else {**params, **({} if prompt is None else {'tokens': prompt})}


def request_params(params: Mapping[str, Any]) -> Params:
    """A seed that is missing or -1 is a new one, as everywhere else."""
    seed = params.get('seed')
    return Params('struct weft_request_params', {**params, 'seed': secrets.randbits(64) if seed is None or seed == -1 else seed})


class Engine(Closable):
    """A model on a device. Any thread may use it.

    Keyword arguments are the fields of struct weft_engine_params. Opening takes a while for large models: `on_progress(what, fraction)` is told,
    and `stop()`, asked now and then, ends it when it returns true, as Ctrl-C does.

    >>> from weft import DEMO, Engine, Model
    >>> with Engine(Model(DEMO), device="cpu", n_seqs=4) as engine:
    ...     requests = [engine.submit(p, max_tokens=4) for p in ("One day", "Once upon")]
    ...     [r.text() for r in requests]
    [', a little boy', ' a time, there']
    """

    def __init__(self, model: Model, *, on_progress: Optional[Callable[[str, float], object]] = None,
                 stop: Optional[Callable[[], object]] = None, **params: 'Unpack[EngineParams]') -> None:
        if not isinstance(model, Model):
            raise TypeError(f'a Model is expected, not {type(model).__name__}')
        self.model = model
        p = Params('struct weft_engine_params', params)
        p.pointer.stop, p.pointer.on_progress = lib.python_stop, lib.python_progress
        with calling_back(stop, on_progress), model._handle as m:
            self._n_vocab = int(lib.weft_model_info(m).n_vocab)  # of rows of logits, also when the model is closed
            self._own(acquire('engine', lambda out: lib.weft_engine_open(m, p.pointer, out), lib.weft_engine_close))

    @property
    def device(self) -> Record:
        """The fields of struct weft_device_info."""
        with self._handle as e:
            return record_of(lib.weft_engine_device(e))

    @property
    def context(self) -> int:
        """Most tokens of one sequence, prompt included."""
        with self._handle as e:
            return int(lib.weft_engine_context(e))

    @property
    def max_batched_tokens(self) -> int:
        """Most tokens of one step."""
        with self._handle as e:
            return int(lib.weft_engine_max_batched_tokens(e))

    @property
    def pooling(self) -> Optional[str]:
        """How its embeddings, or scores, are made; None: it generates text."""
        with self._handle as e:
            name = lib.weft_engine_pooling(e)
            return text_of(name) if name else None

    def stats(self) -> Record:
        """Counters since it was opened, and the present state: the fields of struct weft_stats."""
        out = ffi.new('struct weft_stats *')
        with self._handle as e:
            lib.weft_engine_stats(e, out)
        return record_of(out)

    def submit(self, prompt: Optional[Prompt] = None, **params: 'Unpack[RequestParams]') -> 'Request':
        """Queues a text or token ids, and returns at once. Keyword arguments are the fields of struct weft_request_params, and of struct
        weft_sampling in it."""
        return Request(self, request_params(prompt_params(prompt, params)), None)

    def submit_chat(self, messages: Messages, tools: Optional[Tools] = None, **params: 'Unpack[ChatRequestParams]') -> 'Request':
        """Queues a conversation: messages and tools as in OpenAI's API. Keyword arguments are those of submit and the fields of struct
        weft_chat_params, such as kwargs, a dict of further variables of the chat template."""
        known = fields_of('struct weft_chat_params')
        chat = chat_params(messages, tools, {k: v for k, v in params.items() if k in known})
        p = request_params({k: v for k, v in params.items() if k not in known})
        p.pointer.chat = chat.pointer
        return Request(self, p, chat)

    def generate(self, prompt: Optional[Prompt] = None, **params: 'Unpack[RequestParams]') -> Generator[str, None, None]:
        """The text that follows a prompt, piece by piece; parameters as those of submit. Closing the generator ends the request."""
        return self.submit(prompt, **params)._pieces_then_close()

    def chat(self, messages: Messages, tools: Optional[Tools] = None, **params: 'Unpack[ChatRequestParams]') -> Generator[str, None, None]:
        """The answer in a conversation, piece by piece; parameters as those of submit_chat.

        >>> from weft import DEMO, Engine, Model
        >>> with Engine(Model(DEMO), device="cpu") as engine:
        ...     template = "{% for m in messages %}{{ m.content }}{% endfor %}"
        ...     "".join(engine.chat([{"role": "user", "content": "One day"}], chat_template=template, max_tokens=4))
        ', a little boy'
        """
        return self.submit_chat(messages, tools, **params)._pieces_then_close()

    def complete(self, prompt: Optional[Prompt] = None, **params: 'Unpack[RequestParams]') -> str:
        """The whole text that follows a prompt; parameters as those of submit."""
        return self.submit(prompt, **params).text()


@dataclass(frozen=True)
class Event:
    """A token or, of parameters that ask for them, what is known of the prompt: struct weft_event says more."""

    kind: str                        # "token", "prompt", "logits" or "embedding"
    id: int                          # -1: text that was held back
    text: str
    position: int
    logprob: float
    top: List[Tuple[int, float]]     # ids and their logprobs
    logits: Optional['array[float]'] = field(repr=False, default=None)
    embedding: Optional['array[float]'] = field(repr=False, default=None)  # or scores


@dataclass(frozen=True)
class Result:
    """How a request ended."""

    finish: str                      # "stop", "length", "context", "cancel" or "error"
    n_prompt: int
    n_generated: int
    n_cached: int                    # prompt tokens found in the prefix cache
    queue_ns: int
    prompt_ns: int
    decode_ns: int
    error: Optional[Exception] = None


TWO_READERS = 'another task or thread waits for this request: read it in one, and pass on from there what comes'


class Request(Closable):
    """A request that runs. Iterating, also with `async for`, gives the pieces of its text; one that failed or was cancelled raises behind them.

    >>> from weft import DEMO, Engine, Model
    >>> with Engine(Model(DEMO), device="cpu") as engine, engine.submit("One day", max_tokens=2, logprobs=True) as request:
    ...     [event.text for event in request.events()], request.result.finish
    ([',', ' a'], 'length')
    """

    def __init__(self, engine: Engine, p: Params, chat: Optional[Params]) -> None:
        self.engine = engine  # which would be closed if nothing else referred to it
        self.result: Optional[Result] = None
        self._reading, self._awaited = threading.Lock(), threading.Lock()
        p.pointer.pull = True
        with engine._handle as e:
            self._own(acquire('request', lambda out: lib.weft_submit(e, p.pointer, out), lib.weft_request_free, lib.weft_cancel))
        self._finalizer.atexit = False  # its engine ends it then with all others at once, where each alone would wait for a step

    def cancel(self) -> None:
        """Ends it within one step, without waiting. What reads it gets CancelledError. One that has ended stays as it is."""
        with contextlib.suppress(ClosedError), self._handle as r:
            lib.weft_cancel(r)

    def events(self) -> Iterator[Event]:
        """Tokens and the like as they come."""
        while True:
            event = self._take()
            if isinstance(event, Event):
                yield event
            elif event:
                return

    def text(self) -> str:
        """What of its text has not been read, to the end."""
        return ''.join(self)

    def __iter__(self) -> Iterator[str]:
        return (event.text for event in self.events() if event.text and event.kind == 'token')

    async def events_async(self) -> AsyncIterator[Event]:
        """The same as events, in asyncio's loop."""
        while True:
            event = self._take(in_task=True)
            if isinstance(event, Event):
                yield event
            elif event:
                return
            else:
                await self._readable()

    async def __aiter__(self) -> AsyncIterator[str]:
        async for event in self.events_async():
            if event.text and event.kind == 'token':
                yield event.text

    async def text_async(self) -> str:
        """The same as text, in asyncio's loop."""
        return ''.join([piece async for piece in self])

    def _pieces_then_close(self) -> Generator[str, None, None]:
        with self:
            yield from self

    async def _readable(self) -> None:
        """Behind a _take that found nothing."""
        try:
            await self._wait_readable()
        finally:
            self._awaited.release()

    async def _wait_readable(self) -> None:
        loop = asyncio.get_running_loop()
        with self._handle as r:  # closing it meanwhile cancels, which makes it readable
            fd = lib.weft_request_fd(r)
            if fd < 0:
                raise error_of(lib.WEFT_ERR_IO, text_of(lib.weft_last_error()))
            came = loop.create_future()
            loop.add_reader(fd, wake, came)
            try:
                await came
            finally:
                loop.remove_reader(fd)

    def _take(self, in_task: bool = False) -> Union[Event, Result, None]:
        """The next event; None if none came in time; the result if it has ended, or its error raised the first time. A task does not wait here,
        but what comes from then on is its own: a loop has one reader of a descriptor, and the last event wakes one task."""
        if self.result:
            return self.result
        self._handle.refuse_inherited()
        with self._turn(in_task):
            if self.result:
                return self.result
            if self._awaited.locked():
                raise RuntimeError(TWO_READERS)
            with self._handle as r:
                out = ffi.new('const struct weft_event **')
                status = lib.weft_next(r, 0 if in_task else PATIENCE_MS, out)
                if status == lib.WEFT_ERR_TIMEOUT:
                    if in_task:
                        self._awaited.acquire()
                    return None
                check(status)
                if out[0].kind != lib.WEFT_EVENT_DONE:
                    return self._event(out[0])
                self.result = result_of(out[0])
            self.close()
        if self.result.error:
            raise self.result.error
        return self.result

    def _turn(self, in_task: bool) -> threading.Lock:
        """One reader at a time. Threads take turns; a task's loop cannot wait for a thread that waits."""
        if in_task and self._reading.locked():
            raise RuntimeError(TWO_READERS)
        return self._reading

    def _event(self, ev: Any) -> Event:
        logits = array('f', bytes(ffi.buffer(ev.logits, 4 * self.engine._n_vocab))) if ev.logits else None
        embedding = array('f', bytes(ffi.buffer(ev.embedding, 4 * ev.n_embedding))) if ev.n_embedding else None
        text = bytes(ffi.buffer(ev.text, ev.text_len)).decode(errors='replace') if ev.text_len else ''
        return Event(word(ffi.typeof('enum weft_event_kind'), ev.kind), ev.id, text, ev.position, ev.logprob,
                     [(ev.top[i].id, ev.top[i].logprob) for i in range(ev.n_top)], logits, embedding)


def wake(waiting: 'asyncio.Future[None]') -> None:
    if not waiting.done():
        waiting.set_result(None)


def result_of(ev: Any) -> Result:
    error = error_of(ev.status, text_of(ev.message)) if ev.status else None
    return Result(word(ffi.typeof('enum weft_finish'), ev.finish), ev.n_prompt, ev.n_generated, ev.n_cached, ev.queue_ns, ev.prompt_ns,
                  ev.decode_ns, error)
