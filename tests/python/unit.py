"""The Python package as a program uses it. Runs in an environment where it is installed; package.py makes one.

    unit.py ROOT
"""
import asyncio
import copy
import doctest
import gc
import importlib.metadata
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from array import array

import weft

ROOT = sys.argv.pop(1)
PATIENCE = 120 # seconds; a slow machine may take them, a right program ends its tests at once
# More than any machine generates in that time beside the others of a test, of a context that the model was not made for.
LONG_CONTEXT, LONG = 20000, {'max_tokens': 19000, 'ignore_eos': True}
ECHO = "{% for m in messages %}{{ m.content }}{% endfor %}"


def program(text, **more):
    """Starts a program of its own: what happens when an interpreter ends is seen from outside."""
    return subprocess.Popen([sys.executable, '-W', 'ignore', '-c', 'import weft\n' + text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8') as f:
        return f.read()


class WithEngine(unittest.TestCase):
    CONTEXT = 0

    @classmethod
    def setUpClass(cls):
        cls.model = weft.Model(weft.DEMO)
        cls.engine = weft.Engine(cls.model, device='cpu', n_seqs=4, context=cls.CONTEXT)
        cls.addClassCleanup(cls.engine.close)

    def idle(self):
        """Waits until the engine runs nothing."""
        end = time.monotonic() + PATIENCE
        while self.engine.stats().running + self.engine.stats().waiting:
            self.assertLess(time.monotonic(), end, 'requests still run')
            time.sleep(0.01)


class Texts(WithEngine):
    def test_ways_of_reading_agree(self):
        whole = self.engine.complete('One day', max_tokens=30)
        self.assertGreater(len(whole.split()), 15)
        pieces = list(self.engine.generate('One day', max_tokens=30))
        self.assertEqual((''.join(pieces), len(pieces)), (whole, 30))
        self.assertEqual(self.engine.complete(self.model.tokenize('One day'), max_tokens=30), whole)
        for given in (b'One day', bytearray(b'One day'), memoryview(b'One day'), memoryview(array('i', self.model.tokenize('One day')))):
            self.assertEqual(self.engine.complete(given, max_tokens=30), whole)
        self.assertEqual(''.join(self.engine.chat([{'role': 'user', 'content': 'One day'}], chat_template=ECHO, max_tokens=30)), whole)

    def test_threads(self):
        prompts = ['One day', 'Once upon', 'Lily', 'The dog'] * 3
        alone = [self.engine.complete(p, max_tokens=40) for p in prompts]
        together = [''] * len(prompts)

        def work(i):
            together[i] = self.engine.complete(prompts[i], max_tokens=40)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(together, alone)

    def test_tokens(self):
        text = 'One day, Lily saw a 🦊'
        ids = self.model.tokenize(text)
        self.assertEqual(ids[0], self.model.info.bos)
        self.assertEqual(self.model.tokenize(text, add_special=False), ids[1:])
        self.assertEqual(self.model.detokenize(ids, hide_special=True), text)
        self.assertEqual(b''.join(map(self.model.token_text, ids[1:])).decode().strip(), text)
        self.assertEqual(self.model.tokenize(b'a\0b', add_special=False), self.model.tokenize('a\0b', add_special=False))
        with self.assertRaises(weft.ArgumentError):
            self.model.detokenize([10 ** 6])

    def test_fields(self):
        self.assertEqual(self.engine.device.id, 'cpu')
        self.assertEqual(self.engine.device.type, 'cpu')
        self.assertEqual(self.engine.context, self.model.info.context)
        self.assertGreaterEqual(self.engine.max_batched_tokens, 1)
        self.assertEqual(self.model.budget(n_seqs=2, context=64).context, 64)
        self.assertEqual(self.engine.stats().failed, 'ok')

    def test_names_of_models(self):
        """As on the command line: those in the folder of models, unless there is such a file here."""
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, WEFT_MODELS=folder):
            path = os.path.join(folder, 'story.gguf')
            os.symlink(os.path.join(ROOT, 'models', 'demo.gguf'), path)
            for name in ('story', 'story.gguf'):
                with weft.Model(name) as model:
                    self.assertEqual(model.info.path, path)
            with self.assertRaisesRegex(weft.FileError, 'tale'):
                weft.Model('tale')

    def test_parameters_arrive(self):
        whole = self.engine.complete('One day', max_tokens=30)
        stop = whole.split()[6]
        for given in ([stop], stop, (stop.encode(),), bytearray(stop.encode())):
            self.assertEqual(self.engine.complete('One day', max_tokens=30, stop=given), whole[:whole.index(stop)])
        with self.engine.submit('One day', max_tokens=3, logprobs=True, n_top=2) as r:
            events = list(r.events())
        self.assertEqual((r.result.finish, r.result.n_prompt, r.result.n_generated), ('length', 3, 3))
        for ev in events:
            self.assertEqual((ev.kind, ev.top[0]), ('token', (ev.id, ev.logprob)))
            self.assertEqual(len(ev.top), 2)
        first = events[0].id
        for bias in ({first: -100}, [(first, -100)]):
            with self.engine.submit('One day', max_tokens=1, bias=bias) as r:
                self.assertNotEqual([ev.id for ev in r.events()], [first])
        for seed in ({}, {'seed': -1}, {'seed': None}):  # a new one each time
            self.assertGreater(len({self.engine.complete('One day', max_tokens=30, temperature=1.5, **seed) for _ in range(4)}), 1)
        warm = {self.engine.complete('One day', max_tokens=30, temperature=1.5, seed=seed) for seed in range(4)}
        self.assertGreater(len(warm), 1)

    def test_logits(self):
        with self.engine.submit('One day', prefill_only=True, want_logits=True) as r:
            rows = [ev.logits for ev in r.events() if ev.kind == 'logits']
        self.assertEqual([len(row) for row in rows], [self.model.info.n_vocab] * 3)
        with self.engine.submit('One day', max_tokens=1) as r:
            first, = r.events()
        self.assertEqual(max(range(len(rows[2])), key=rows[2].__getitem__), first.id)

    def test_logits_of_a_closed_model(self):
        with weft.Model(weft.DEMO) as model:
            engine, n_vocab = weft.Engine(model, device='cpu'), model.info.n_vocab
        with engine, engine.submit('One day', prefill_only=True, want_logits=True) as r:
            self.assertEqual([len(ev.logits) for ev in r.events() if ev.kind == 'logits'], [n_vocab] * 3)

    def test_chat_parameters(self):
        messages = [{'role': 'user', 'content': 'é🦊'}]
        template = "{{ messages[0].content }}|{{ tools[0].function.name }}|{{ mood }}|{{ add_generation_prompt }}"
        tools = [{'type': 'function', 'function': {'name': 'look'}}]
        said = self.model.chat_render(messages, tools, chat_template=template, kwargs={'mood': 'glad'}, no_generation_prompt=True)
        self.assertEqual(said.lower(), 'é🦊|look|glad|false')
        with self.assertRaises(weft.UnsupportedError) as caught:
            self.engine.chat(messages)
        self.assertEqual(caught.exception.status, 'WEFT_ERR_UNSUPPORTED')


class BadArguments(WithEngine):
    def refuses(self, kind, pattern, call, *args, **params):
        with self.assertRaisesRegex(kind, pattern):
            call(*args, **params)

    def test_keywords(self):
        self.refuses(TypeError, "'max_token', did you mean 'max_tokens'", self.engine.submit, 'a', max_token=3)
        self.refuses(TypeError, "'divice', did you mean 'device'", weft.Engine, self.model, divice='cpu')
        self.refuses(TypeError, 'unknown keyword argument', self.engine.submit_chat, [], xyzzy=1)
        for ours in ('on_event', 'user', 'pull', 'reserved', 'n_stop', 'prompt_len', 'sampling'):
            self.refuses(TypeError, f"unknown keyword argument '{ours}'", self.engine.submit, 'a', **{ours: None})

    def test_values(self):
        self.refuses(OverflowError, '^max_tokens: ', self.engine.submit, 'a', max_tokens=-1)
        self.refuses(TypeError, '^max_tokens: ', self.engine.submit, 'a', max_tokens='4')
        self.refuses(TypeError, '^temperature: ', self.engine.submit, 'a', temperature='hot')
        self.refuses(TypeError, '^stop: a text is expected', self.engine.submit, 'a', stop=[3])
        self.refuses(ValueError, '^stop: a zero byte', self.engine.submit, 'a', stop=['a\0'])
        self.refuses(ValueError, '^prompt: ', self.engine.submit, '\ud800')
        self.refuses(ValueError, '^messages: ', self.engine.submit_chat, [{'role': 'user', 'content': '\ud800'}], chat_template=ECHO)
        self.refuses(TypeError, '^prompt: one text or token ids are expected, not a list of texts: submit', self.engine.complete, ['One', 'Two'])
        self.refuses(TypeError, '^prompt: a text or token ids are expected, not None', self.engine.complete, None)
        self.refuses(TypeError, '^prompt: a text or token ids are expected, not int', self.engine.submit, 3)
        self.refuses(TypeError, '^tokens: ', self.engine.submit, [1.5])
        self.refuses(TypeError, '^messages: a list of them is expected, not str', self.engine.chat, 'Hello')
        self.refuses(ValueError, '^path: a zero byte', weft.Model, 'a\0b')
        self.refuses(TypeError, '^a Model is expected, not str', weft.Engine, 'x')
        self.refuses(TypeError, '^a Model is expected, not NoneType', weft.Engine, None)

    def test_handles_are_not_copied(self):
        with self.engine.submit('a', max_tokens=1) as request:
            for owner in (self.model, self.engine, request):
                for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                    self.refuses(TypeError, 'can be neither copied nor pickled', copied, owner)

    def test_what_the_library_refuses(self):
        self.refuses(weft.FileError, '/nowhere.gguf', weft.Model, '/nowhere.gguf')
        self.refuses(weft.FileError, '/nowhere.gguf', weft.Model, os.path.join(b'/', b'nowhere.gguf'))
        self.refuses(weft.FormatError, 'meson.build', weft.Model, os.path.join(ROOT, 'meson.build'))
        self.refuses(weft.ArgumentError, 'path', weft.Model)
        self.refuses(weft.NoDeviceError, 'abacus', weft.Engine, self.model, device='abacus')
        self.refuses(weft.ArgumentError, 'temperature', self.engine.submit, 'a', temperature=-1)
        self.refuses(weft.ContextFullError, 'context', self.engine.submit, [1] * 10 ** 4)
        self.refuses(ValueError, '', self.engine.submit, 'a', top_p=7.0)
        self.assertEqual(self.engine.stats().running, 0)

    def test_errors_are_pickled(self):
        kinds = [kind for kind in vars(weft).values() if isinstance(kind, type) and issubclass(kind, weft.Error)]
        self.assertGreater(len(kinds), 10)
        for kind in kinds:
            error = pickle.loads(pickle.dumps(kind('what failed', 'WEFT_ERR_X')))
            self.assertEqual((type(error), str(error), error.status), (kind, 'what failed', 'WEFT_ERR_X'))


class Ends(WithEngine):
    CONTEXT = LONG_CONTEXT

    def test_closing_a_generator_cancels(self):
        before = self.engine.stats().generated_tokens
        pieces = self.engine.generate('One day', **LONG)
        next(pieces)
        pieces.close()
        self.idle()
        pieces = self.engine.generate('One day', **LONG)
        del pieces # never begun
        self.idle()
        for _ in self.engine.generate('One day', **LONG):
            break
        gc.collect()
        self.idle()
        self.assertLess(self.engine.stats().generated_tokens - before, LONG['max_tokens']) # or they ran to their ends

    def test_cancel(self):
        with self.engine.submit('One day', **LONG) as r:
            threading.Timer(0.02, r.cancel).start()
            with self.assertRaises(weft.CancelledError):
                r.text()
            self.assertEqual((r.result.finish, list(r)), ('cancel', []))
            r.cancel() # once more does nothing

    def test_use_after_close(self):
        model = weft.Model(weft.DEMO)
        engine = weft.Engine(model, device='cpu', context=LONG_CONTEXT)
        request = engine.submit('One day', **LONG)
        for thing in (request, engine, model):
            thing.close()
            thing.close()
            self.assertTrue(thing.closed)
        uses = (request.text, lambda: next(iter(request)), lambda: engine.submit('a'), engine.stats, lambda: engine.device,
                lambda: engine.context, lambda: model.info, lambda: model.tokenize('a'), lambda: model.detokenize([1]), model.budget,
                lambda: weft.Engine(model, device='cpu'))
        for use in uses:
            with self.assertRaises(weft.ClosedError):
                use()

    def test_any_order(self):
        model = weft.Model(weft.DEMO)
        engine = weft.Engine(model, device='cpu', context=LONG_CONTEXT)
        model.close()
        del model
        gc.collect()
        self.assertEqual(engine.complete('One day', max_tokens=4), ', a little boy')
        request = engine.submit('One day', **LONG)
        engine.close()
        with self.assertRaises(weft.CancelledError):
            request.text()

    def test_a_request_keeps_its_engine(self):
        request = weft.Engine(weft.Model(weft.DEMO), device='cpu').submit('One day', max_tokens=4)
        gc.collect()
        self.assertEqual(request.text(), ', a little boy')

    def test_closing_what_another_thread_waits_for(self):
        engine = weft.Engine(self.model, device='cpu', n_seqs=1, context=LONG_CONTEXT)
        before = engine.submit('One day', **LONG)
        last, caught = engine.submit('One day', **LONG), []

        def wait():
            try:
                last.text()
            except weft.Error as e:
                caught.append(e)
        for end in (last.close, engine.close):
            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(0.05)
            end()
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive())
        self.assertTrue(caught)
        self.assertTrue(all(isinstance(e, (weft.ClosedError, weft.CancelledError)) for e in caught), caught)
        del before

    def test_opening_is_given_up(self):
        for what in ({'stop': lambda: True}, {'on_progress': lambda what, fraction: 1 // 0}):
            with self.assertRaises((weft.CancelledError, ZeroDivisionError)):
                weft.Engine(self.model, device='cpu', **what)
        seen = []
        with self.assertRaisesRegex(weft.CancelledError, '^opening the model was cancelled'):
            weft.Model(weft.DEMO, stop=lambda: True)
        weft.Model(weft.DEMO, stop=lambda: False).close()
        weft.Engine(self.model, device='cpu', on_progress=lambda *said: seen.append(said), stop=lambda: False).close()
        self.assertEqual(seen[0], ('load', 0.0))

    def test_opening_within_a_stop_function(self):
        asked = []

        def stop():
            asked.append(True)
            if len(asked) == 1:
                weft.Model(weft.DEMO, stop=lambda: False).close()
            return len(asked) > 1
        with self.assertRaises(weft.CancelledError):
            weft.Model(weft.DEMO, stop=stop)
        self.assertEqual(len(asked), 2)

    def test_log(self):
        said = []

        class Keep(logging.Handler):
            def emit(self, record):
                said.append((record.levelno, record.getMessage()))
                try:
                    self_of_test.engine.stats()
                except RuntimeError as e:
                    said.append(e)
        self_of_test, log, keep = self, logging.getLogger('weft'), Keep()
        log.addHandler(keep)
        log.setLevel(logging.INFO)
        try:
            weft.Engine(self.model, device='cpu').close()
        finally:
            log.removeHandler(keep)
            log.setLevel(logging.NOTSET)
        self.assertIn(logging.INFO, [line[0] for line in said if isinstance(line, tuple)])
        self.assertTrue(any('must not use weft' in str(line) for line in said))


class Asyncio(WithEngine):
    CONTEXT = LONG_CONTEXT

    def test_several(self):
        prompts = ['One day', 'Once upon', 'Lily', 'The dog', 'Tom', 'A cat']
        expected = [self.engine.complete(p, max_tokens=20) for p in prompts]

        async def all_of_them():
            return await asyncio.gather(*(self.engine.submit(p, max_tokens=20).text_async() for p in prompts))
        self.assertEqual(asyncio.run(all_of_them()), expected)

    def test_a_second_reader(self):
        async def main(delay):
            with self.engine.submit('One day', max_tokens=30) as r:
                async def second():
                    time.sleep(delay) # the first waits meanwhile, and the more comes for it
                    return await r.text_async()
                return await asyncio.wait_for(asyncio.gather(r.text_async(), second(), return_exceptions=True), PATIENCE)
        expected, refused = self.engine.complete('One day', max_tokens=30), 0
        for i in range(40):
            first, second = asyncio.run(main(i * 0.0001))
            self.assertEqual(first, expected)
            if second != '': # as it is where the first found all of its text there and never had to wait
                self.assertIsInstance(second, RuntimeError)
                self.assertIn('another task', str(second))
                refused += 1
        self.assertGreater(refused, 0)

    def test_a_thread_beside_a_task(self):
        """Of a task that waits a thread takes nothing, and beside a thread that waits no task does."""
        def read_in_a_thread(request, heard):
            try:
                heard.append(request.text())
            except RuntimeError as e:
                heard.append(str(e))

        def begin_in_a_thread(request, heard):
            thread = threading.Thread(target=read_in_a_thread, args=(request, heard))
            thread.start()
            while not request._reading.locked() and not heard:
                time.sleep(0)
            return thread

        async def beside_a_task(blocker):
            with self.alone.submit('One day', max_tokens=5) as r:
                task, heard = asyncio.ensure_future(r.text_async()), []
                await asyncio.sleep(0) # it waits from now on
                thread = begin_in_a_thread(r, heard)
                blocker.cancel()
                await asyncio.get_running_loop().run_in_executor(None, thread.join)
                return await asyncio.wait_for(task, PATIENCE), heard

        async def beside_a_thread(blocker):
            with self.alone.submit('One day', max_tokens=5) as r:
                heard = []
                thread = begin_in_a_thread(r, heard)
                task = asyncio.ensure_future(r.text_async())
                await asyncio.sleep(0)
                blocker.cancel()
                await asyncio.get_running_loop().run_in_executor(None, thread.join)
                return await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), PATIENCE), heard

        self.alone = weft.Engine(self.model, device='cpu', n_seqs=1, context=LONG_CONTEXT)
        expected = self.alone.complete('One day', max_tokens=5)
        with self.alone:
            with self.alone.submit('One day', **LONG) as blocker:
                text, (heard,) = asyncio.run(beside_a_task(blocker))
            self.assertEqual(text, expected)
            self.assertIn('another task or thread', heard)
            for _ in range(100): # the thread can be between two waits, and is then the one who came second
                with self.alone.submit('One day', **LONG) as blocker:
                    (refused,), (heard,) = asyncio.run(beside_a_thread(blocker))
                self.assertIn(expected, (refused, heard))
                if heard == expected:
                    break
            self.assertIn('another task or thread', str(refused))

    def test_iterating_again(self):
        """Behind a `break`, and behind a wait that was given up, nothing is lost."""
        async def some_then_the_rest():
            with self.engine.submit('One day', max_tokens=30) as r:
                got = []
                async for piece in r:
                    got.append(piece)
                    if len(got) == 3:
                        break
                return ''.join(got) + await r.text_async()

        async def impatiently():
            with self.engine.submit('One day', max_tokens=30) as r:
                got, end = [], False
                while not end:
                    pieces = r.__aiter__()
                    try:
                        while True:
                            got.append(await asyncio.wait_for(pieces.__anext__(), 0.0002))
                    except (asyncio.TimeoutError, StopAsyncIteration) as e:
                        end = isinstance(e, StopAsyncIteration)
                return ''.join(got)
        expected = self.engine.complete('One day', max_tokens=30)
        for read in (some_then_the_rest, impatiently):
            self.assertEqual(asyncio.run(read()), expected)

    def test_engine_closed_while_tasks_wait(self):
        """By their own thread, which does not read meanwhile, and by another one."""
        async def main(close):
            engine = weft.Engine(self.model, device='cpu', n_seqs=1, context=LONG_CONTEXT)
            tasks = [asyncio.ensure_future(engine.submit('One day', **LONG).text_async()) for _ in range(5)]
            await asyncio.sleep(0)
            await close(engine)
            return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)

        async def here(engine):
            engine.close()

        async def elsewhere(engine):
            await asyncio.get_running_loop().run_in_executor(None, engine.close)
        for close in (here, elsewhere):
            self.assertEqual([type(e) for e in asyncio.run(main(close))], [weft.CancelledError] * 5)

    def test_loop_closed_while_a_task_waits(self):
        """Another loop, or a thread, can read on."""
        with self.engine.submit('One day', **LONG) as r:
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda *_: None) # not that the task was pending
            task = loop.create_task(r.text_async())
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
            del task
            gc.collect()
            r.cancel()
            with self.assertRaises(weft.CancelledError):
                r.text()

    def test_two_loops(self):
        """Each in a thread of its own, with one engine."""
        expected, got = self.engine.complete('One day', max_tokens=40), [None] * 4

        async def several():
            return await asyncio.gather(*(self.engine.submit('One day', max_tokens=40).text_async() for _ in range(4)))

        def work(i):
            got[i] = asyncio.run(several())
        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(got))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(got, [[expected] * 4] * 4)

    def test_cancelled_and_closed(self):
        async def read_all(request):
            async for _ in request:
                pass

        async def main():
            blocked = [self.engine.submit('One day', **LONG) for _ in range(12)]
            task = asyncio.ensure_future(read_all(blocked[-1]))
            await asyncio.sleep(0.02)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            task = asyncio.ensure_future(read_all(blocked[-2]))
            await asyncio.sleep(0.02)
            blocked[-2].close()
            with self.assertRaises(weft.Error):
                await asyncio.wait_for(task, PATIENCE)
            for request in blocked:
                request.close()
        asyncio.run(main())
        self.idle()


class Interpreters(unittest.TestCase):
    OPEN = ('import logging\nlogging.getLogger("weft").setLevel(logging.ERROR)\n' # not that the context is long
            f'm = weft.Model(weft.DEMO)\ne = weft.Engine(m, device="cpu", context={LONG_CONTEXT})\nlong = {LONG}\n')

    def ends(self, p, rc=0, stderr=''):
        out, err = p.communicate(timeout=PATIENCE)
        self.assertEqual((p.returncode, err), (rc, stderr), out)
        return out

    def test_end_with_requests_alive(self):
        self.ends(program(self.OPEN + 'r = [e.submit("One day", **long) for _ in range(20)]\nnext(iter(r[0]))'))
        self.ends(program(self.OPEN + 'g = e.generate("One day", **long)\nnext(g)\nkept = [g]\nkept.append(kept)'))

    def test_end_beside_a_daemon(self):
        self.ends(program(self.OPEN + 'import contextlib, threading, time\n'
                          'def read(request):\n    with contextlib.suppress(weft.Error):\n        request.text()\n'
                          'r = [e.submit("One day", **long) for _ in range(20)]\n'
                          'threading.Thread(target=read, args=r[-1:], daemon=True).start()\ntime.sleep(0.05)'))

    def test_ctrl_c(self):
        p = program(self.OPEN + 'r = [e.submit("One day", **long) for _ in range(20)]\nprint("ready", flush=True)\nr[-1].text()')
        self.assertEqual(p.stdout.readline(), 'ready\n')
        time.sleep(0.1)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=PATIENCE) # 0.5 s on a machine with nothing else to do
        self.assertTrue(err.rstrip().endswith('KeyboardInterrupt'), err)
        self.assertEqual(p.returncode, -signal.SIGINT)

    def test_ctrl_c_while_opening(self):
        text = ('import signal\nm = weft.Model(weft.DEMO)\n'
                'try:\n    weft.Engine(m, device="cpu", on_progress=lambda *_: signal.raise_signal(signal.SIGINT))\n'
                'except KeyboardInterrupt:\n    print("stopped")')
        self.assertEqual(self.ends(program(text)), 'stopped\n')

    def test_fork(self):
        text = self.OPEN + ('import os, sys\nr = e.submit("One day", **long)\npid = os.fork()\n'
                            'if pid:\n    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n'
                            'else:\n    try:\n        r.text()\n    except weft.ClosedError:\n        sys.exit(7)')
        self.assertEqual(self.ends(program(text)), '7\n')

    def test_what_a_child_opens(self):
        text = self.OPEN + ('import os, sys\npid = os.fork()\n'
                            'if pid:\n    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n'
                            'else:\n    m.close()\n    mine = weft.Engine(weft.Model(weft.DEMO), device="cpu")\n'
                            '    kept = mine.submit("One day", **long)\n'
                            '    sys.exit(7 if mine.complete("One day", max_tokens=4) == ", a little boy" else 1)')
        self.assertEqual(self.ends(program(text)), '7\n')


class Documents(unittest.TestCase):
    def test_doctests(self):
        for name in ('weft', 'weft._engine'):
            found = doctest.testmod(importlib.import_module(name))
            self.assertEqual(found.failed, 0, name)
            self.assertGreater(found.attempted, 0, name)

    def test_guide(self):
        text = re.sub(r'^```.*$', '', read('docs/python.md'), flags=re.M)
        guide = doctest.DocTestParser().get_doctest(text, {}, 'docs/python.md', 'docs/python.md', 0)
        self.assertGreater(len(guide.examples), 10)
        self.assertEqual(doctest.DocTestRunner().run(guide).failed, 0)

    def test_example(self):
        done = subprocess.run([sys.executable, os.path.join(ROOT, 'examples', 'several.py')], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        lines = done.stdout.splitlines()
        self.assertEqual(lines[-4:], lines[-8:-4])

    def test_metadata(self):
        said = importlib.metadata.metadata('weft')
        self.assertEqual((said['License-Expression'], said['License-File'], said['Requires-Python']), ('MIT', 'LICENSE', '>=3.9'))
        self.assertIn('weft', said['Author-email'])
        self.assertIn('import weft', said.get_payload())
        distribution = importlib.metadata.distribution('weft')
        self.assertEqual(distribution.read_text('licenses/LICENSE'), read('LICENSE'))
        self.assertIn(f'Tag: cp{sys.version_info.major}{sys.version_info.minor}-abi3-', distribution.read_text('WHEEL'))

    def test_versions(self):
        versions = {re.search(r"\bversion: '([\d.]+)'", read(path))[1] for path in ('meson.build', 'python/meson.build')}
        self.assertEqual(versions, {weft.__version__})
        self.assertEqual(weft.library_version(), weft.__version__)


if __name__ == '__main__':
    unittest.main()
