#!/usr/bin/env python3
"""`weft convert`: what it writes is read back and compared with what went in.

- Folders that transformers made: the converted file's logits are transformers', its ids the folder's.
- The demo model to each type: tensors have the formats that llama.cpp gives a file of that type (by gguf_write.py's rules, and
  by a table where rows are no multiple of a block), their decoded values are within the format's error, and weft's logits are those of a
  float64 pass over the decoded weights.
- stories260K as a folder, converted, writes what its GGUF file writes.
- Experts are stacked.
- Trained tokenizers of tests/text/data get the name of their pre-tokenizer, and give the ids of their folder, also where a text begins with
  a space or continues behind control tokens; what the file cannot say is an error or a warning.
- Chat templates with names are kept. What config.json switches off stays off; an output matrix of its own stays.
- A signal leaves no file behind.
- Wrong options and wrong weights are errors that leave no file behind.

    convert.py WEFT SOURCES
"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from common import end, np, run, say
HERE = pathlib.Path(__file__).resolve().parent
import folders
import gguf_write as gw
import hf
import reference
import tolerances

TYPES = ['F32', 'F16', 'BF16', 'Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q2_K', 'Q3_K_S', 'Q3_K_M', 'Q3_K_L', 'Q4_K_S', 'Q4_K_M', 'Q5_K_S', 'Q5_K_M', 'Q6_K', 'IQ4_NL', 'IQ4_XS',
         'MXFP4']
NAMES = {number: name for name, (number, _, _) in gw.TYPES.items()}
FILE_TYPES = {**gw.FILE_TYPES, 'Q3_K_S': 11, 'Q3_K_M': 12, 'Q3_K_L': 13, 'Q4_K_S': 14, 'Q5_K_S': 16}
TEXTS = ['Once upon a time, there was', " I'm sure   it's\n\n12345 Größe 😀", 'a']
# What files of other mixes hold besides the format of their name (llama.cpp's src/llama-quant.cpp); of 5 layers and 2 query heads a KV head.
MIXES = {
    'Q2_K': {'attn_v': 'Q3_K', 'ffn_down': 'Q3_K', 'attn_output': 'Q3_K'},
    'Q3_K_M': {'attn_v': ['Q5_K', 'Q5_K', 'Q4_K', 'Q4_K', 'Q4_K'], 'ffn_down': 'Q4_K', 'attn_output': 'Q4_K'},
    'Q3_K_L': {'attn_v': 'Q5_K', 'ffn_down': 'Q5_K', 'attn_output': 'Q5_K'},
    'Q4_K_S': {'attn_v': ['Q5_K', 'Q5_K', 'Q5_K', 'Q5_K', 'Q4_K']},
    'Q4_K_M': {'attn_v': ['Q4_K', 'Q4_K', 'Q6_K', 'Q4_K', 'Q6_K'], 'ffn_down': ['Q4_K', 'Q4_K', 'Q6_K', 'Q4_K', 'Q6_K']},
    'Q5_K_M': {'attn_v': ['Q5_K', 'Q5_K', 'Q6_K', 'Q5_K', 'Q6_K'], 'ffn_down': ['Q5_K', 'Q5_K', 'Q6_K', 'Q5_K', 'Q6_K']},
}
NARROW = {'Q2_K': 'Q4_0', 'Q3_K': 'Q4_0', 'Q4_K': 'Q5_0', 'Q5_K': 'Q5_1', 'Q6_K': 'Q8_0', 'IQ4_XS': 'IQ4_NL'}


def fitting(kind, cols, n_dims=2):
    if n_dims == 1:
        return 'F32'
    if cols % gw.TYPES[kind][1]:
        kind = NARROW.get(kind, kind)
    return 'F16' if cols % gw.TYPES[kind][1] else kind


def expected(name, kind, cols, dims):
    """The format of a tensor in a file of that type, of a model with a tied output."""
    base = re.sub('_[SML]$', '', kind)
    if dims == 1:
        return 'F32'
    if name == 'token_embd.weight':  # and the output
        plain = base in ('F32', 'F16', 'BF16', 'Q8_0')
        return fitting(base if plain else 'Q8_0' if base == 'MXFP4' or cols % gw.TYPES[base][1] else 'Q6_K', cols)
    layer, part = re.match(r'blk\.(\d+)\.(\w+)\.weight', name).groups()
    rule = MIXES.get(kind, {}).get(part, base)
    return fitting(rule[int(layer)] if isinstance(rule, list) else rule, cols)


def number(text):
    parts = [float.fromhex(x) if 'x' in x else float(x) for x in text.split('/')]
    return parts[0] / parts[1] if parts[1:] else parts[0]


# Of src/verify/tolerances.def: step, away, group, block, least, mean.
ERRORS = {name: [number(x) for x in row.split(',')] for name, row in re.findall(r'^FORMAT\((\w+), (.*?)\)', pathlib.Path(tolerances.TABLE).read_text(), re.M)}


def allowed(kind, x):
    """The error that a format may add to each of these values: of its scale's group, taken as its block, which is no smaller."""
    if kind == 'F32':
        return np.full(x.size, 1e-30)
    step, away, group, block, least, _ = ERRORS[kind]
    if kind in ('F16', 'BF16'):
        return np.maximum(step * np.abs(x), least) + 1e-30
    size = gw.TYPES[kind][1]
    return np.repeat((max(step, away) + group + block) * np.abs(x).reshape(-1, size).max(1) + least, size)


class Test:
    def __init__(self, weft, sources, top):
        self.weft, self.sources, self.top = weft, pathlib.Path(sources), pathlib.Path(top)

    def convert(self, model, kind, name='out.gguf', *more):
        out = self.top / name
        run(self.weft, 'convert', '-m', model, '-o', out, '--type', kind, '-q', '--force', *more)
        return out

    def logits(self, model, ids):
        got = self.top / 'got.npy'
        run(self.weft, 'perplexity', '-m', model, '--tokens', ','.join(map(str, ids)), '--logits', got, '--device', 'cpu')
        return np.load(got)

    def ids(self, model, text):
        return run(self.weft, 'tokenize', '-m', model, '-p', text)

    # ---- folders -------------------------------------------------------------------------------------

    def folder(self, folder):
        facts, want = json.loads((folder / 'ids.json').read_text()), np.load(folder / 'logits.npy')
        ids = facts['prompt'] + facts['generated']
        for kind in ('BF16',):
            out = self.convert(folder, kind)
            error = tolerances.model_error('logits', self.logits(out, ids), want)
            say(f'{folder.name} {kind}', error <= 1, f'{error:.2f} of the tolerance of logits')
        same = [self.ids(folder, t) == self.ids(out, t) for t in TEXTS]
        say(f'{folder.name} ids', all(same), f'{sum(same)} of {len(same)} texts')

    def stories(self):
        data = pathlib.Path(os.environ.get('WEFT_TEST_DATA', self.sources / '..' / 'shared' / 'data')) / 'stories260K.gguf'
        if not data.exists():
            print(f'skipped: {data} is not there')
            return
        hf.main([str(data), str(self.top / 'stories')])
        out = self.convert(self.top / 'stories', 'F32', 'stories.gguf')
        for prompt in TEXTS:
            a, b = (run(self.weft, 'run', '-m', m, '-p', prompt, '-n', '60', '--greedy', '--device', 'cpu') for m in (data, out))
            ids = [self.ids(m, prompt) for m in (data, out)]
            say(f'stories260K {prompt!r}', a == b and ids[0] == ids[1] and len(a) > 20, f'{len(a)} bytes')
        self.formats(data, 'Q4_K_M')

    # ---- formats -------------------------------------------------------------------------------------

    def formats(self, model, kind):
        out = self.convert(model, kind)
        before, after = reference.File(model), reference.File(out)
        want = {name: expected(name, kind, dims[0], len(dims)) for name, (dims, _, _) in before.tensors.items()}
        wrong = [f'{name} is {NAMES[number]}, not {want[name]}' for name, (_, number, _) in after.tensors.items() if NAMES[number] != want.get(name)]
        same = want.keys() == after.tensors.keys() and after.meta['general.file_type'] == FILE_TYPES[kind]
        say(f'{model.name} {kind} formats', same and not wrong, '; '.join(wrong[:3]) or f'{len(after.tensors)} tensors')
        self.values(model, kind, out)
        return out

    def values(self, model, kind, out):
        """Each value within the error that its format allows, in units of it."""
        before, after, worst = reference.File(model), reference.File(out), ('', 0.0)
        for name, (_, number, _) in after.tensors.items():
            a, b = before.weight(name).ravel(), after.weight(name).ravel()
            worst = max(worst, (name, (np.abs(a - b) / allowed(NAMES[number], a)).max()), key=lambda pair: pair[1])
        say(f'{model.name} {kind} values', worst[1] <= 1, f'{worst[1]:.2f} of what the format allows, {worst[0]}')

    def exact(self, model, kind):
        """Logits against float64 over the weights as they are in the converted file."""
        out, ids = self.formats(model, kind), [1, 15, 200, 77, 3, 290, 42, 128, 64, 31]
        error = tolerances.model_error('logits', self.logits(out, ids), reference.Model(out).logits(ids))
        say(f'{model.name} {kind} logits', error <= 1, f'{error:.2f} of the tolerance')

    def again(self, demo):
        """From a quantised source, and what stays as it is."""
        q8 = self.convert(demo, 'Q8_0', 'q8.gguf')
        a, b = self.convert(q8, 'Q8_0', 'again.gguf').read_bytes(), q8.read_bytes()
        say('Q8_0 to Q8_0', a == b, f'{len(a)} bytes, the same')
        one, many = self.convert(demo, 'Q4_K_M', 'one.gguf', '-t', '1').read_bytes(), self.convert(demo, 'Q4_K_M', 'many.gguf', '-t', '7').read_bytes()
        say('threads', one == many, 'the same bytes with 1 and 7')
        said = subprocess.run([self.weft, 'convert', '-m', q8, '-o', self.top / 'q4.gguf', '--type', 'Q4_0'], capture_output=True, text=True)
        say('Q8_0 to Q4_0', said.returncode == 0 and 'were quantised before' in said.stderr, said.stderr.strip().split('\n')[-1])
        meta, old = reference.File(self.top / 'q4.gguf').meta, reference.File(demo).meta
        kept = {k for k in old if k != 'general.file_type'}
        say('metadata', all(meta.get(k) == old[k] for k in kept) and meta['general.quantization_version'] == 2, f'{len(kept)} keys as they were')

    # ---- experts --------------------------------------------------------------------------------------

    def experts(self):
        """One tensor an expert, in any order, becomes one of all; the router stays F32."""
        rng, path = np.random.default_rng(5), self.top / 'experts.gguf'
        x, router = rng.standard_normal((4, 48, 32), np.float32), rng.standard_normal((4, 32), np.float32)
        for order, whole in (([2, 0, 3, 1], True), ([2, 0, 3], False)):
            w = gw.Writer()
            gw.add_model(w, 'llama', 'experts', dict(width=32, layers=1, heads=1, kv_heads=1, head_dim=32, ffn=48, vocab=259, context=64), 'F32')
            w.add('llama.expert_count', 4)
            w.tensor('blk.0.ffn_gate_inp.weight', router)
            for i in order:
                w.tensor(f'blk.0.ffn_up.{i}.weight', x[i])
            w.write(path)
            if not whole:
                self.bad('an expert that is missing', 3, 'experts have no weights', '-m', path, '-o', self.top / 'new.gguf', '--type', 'F16')
                continue
            f = reference.File(self.convert(path, 'F16'))
            names = sorted(f.tensors)
            same = names == ['blk.0.ffn_gate_inp.weight', 'blk.0.ffn_up_exps.weight'] and np.array_equal(f.weight(names[1]), x.astype('<f2').astype(np.float64))
            say('experts', same and np.array_equal(f.weight(names[0]), router.astype(np.float64)), ', '.join(names))

    # ---- tokenizers and what is beside them --------------------------------------------------------------

    def with_tokenizer(self, name, change=lambda o: None, rows=640):
        """A model of zeros with that tokenizer, of at most `rows` tokens."""
        source, folder = self.sources / 'tests/model/data/llama', self.top / 'with-tokenizer'
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        tokenizer = json.loads((self.sources / f'tests/text/data/{name}.json').read_text())
        change(tokenizer)
        hf.write_json(folder, 'tokenizer.json', tokenizer)
        hf.write_json(folder, 'config.json', json.loads((source / 'config.json').read_text()) | {'vocab_size': rows})
        shapes = {k: [rows, t['shape'][1]] if k in ('model.embed_tokens.weight', 'lm_head.weight') else t['shape'] for k, t in folders.header_of((source / 'model.safetensors').read_bytes())[0].items()}
        hf.write_safetensors(folder / 'model.safetensors', [(k, np.zeros(s, np.float32)) for k, s in shapes.items()], 'F16')
        return folder

    def tokenizers(self):
        whole = lambda on: lambda o: o['model'].update(ignore_merges=on)

        def unmerged(on):
            """A token that no merges make."""
            return lambda o: (o['model']['vocab'].update({'Once': 630}), o['model'].update(ignore_merges=on))

        def tekken(on):
            """Mistral's pattern, which GGUF has with ignore_merges only."""
            def edit(o):
                pattern = o['pre_tokenizer']['pretokenizers'][0]['pattern']
                pattern['Regex'] = pattern['Regex'].replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", '').replace('{1,3}', '')
                whole(on)(o)
            return edit

        for name, change, pre in (('falcon', whole(False), 'falcon'), ('llama3', whole(True), 'llama-bpe'), ('llama3', whole(False), 'dbrx'), ('gpt4o', tekken(False), 'tekken'), ('gpt4o', whole(False), 'gpt-4o'),
                                  ('gpt4o', whole(True), 'gpt-4o'), ('starcoder', whole(False), 'starcoder'), ('llama3', unmerged(True), 'llama-bpe'), ('gpt4o', unmerged(False), 'gpt-4o')):
            folder = self.with_tokenizer(name, change)
            out = self.convert(folder, 'F16')
            got = reference.File(out).meta['tokenizer.ggml.pre']
            texts = [*TEXTS, 'Once 12 345 6789 a1b22c333 $5+7=12 ((x)) `y` \xb2 \u041f\u0440\u0438 ...!!']
            say(f'{name} pre-tokenizer', got == pre and all(self.ids(folder, t) == self.ids(out, t) for t in texts), got)
        for name, change, message in (('gpt4o', lambda o: (tekken(False)(o), unmerged(False)(o)), 'takes whole tokens before it merges (ignore_merges)'), ('gpt4o', unmerged(True), 'makes tokens by merges alone (ignore_merges)'), ('word', whole(False), 'no pre-tokenizer')):
            self.bad(f'{name} {message}', 3, message, '-m', self.with_tokenizer(name, change), '-o', self.top / 'new.gguf', '--type', 'F16')

    def spaces(self):
        """Tokenizers with byte fallback: where they put a space before text, and what is said about programs that do otherwise."""
        def without_rules(change):
            def edit(o):
                o['added_tokens'] = [t for t in o['added_tokens'] if t['content'] in ('<unk>', '<|bos|>', '<|end|>', '<raw>')]
                change(o)
            return edit

        def metaspace(scheme):
            return lambda o: o.update(normalizer=None, pre_tokenizer={'type': 'Metaspace', 'replacement': '\u2581', 'prepend_scheme': scheme, 'split': False})

        def runs(o):
            """Runs of spaces as Gemma has them: added tokens, with the first merges of all."""
            of_spaces = [t for t in o['model']['vocab'] if len(t) > 1 and not t.strip('\u2581')]
            o['added_tokens'] += [{'id': o['model']['vocab'][t], 'content': t} for t in of_spaces]
            o['model']['merges'].sort(key=lambda m: ''.join(m) not in of_spaces)

        kinds = [('gemma', runs, False, None), ('llama2', lambda o: None, True, None), ('mistral', lambda o: None, True, 'first'), ('mistral', metaspace('always'), True, 'always'), ('gemma', lambda o: None, False, None)]
        texts = ['', ' ', 'lead', ' lead', '  two', '\nline', '\n line', '\u2581x', 'a<|end|>b<|end|> c\n<|end|><|end|>  d', '<|bos|> x', '<raw> x', *TEXTS]
        for name, change, prefix, scheme in kinds:
            folder, out = self.with_tokenizer(name, without_rules(change), 960), self.top / 'spaces.gguf'
            said = subprocess.run([self.weft, 'convert', '-m', folder, '-o', out, '--type', 'F16', '--force'], capture_output=True, text=True)
            meta = reference.File(out).meta
            wrong = [t for t in texts if self.ids(folder, t) != self.ids(out, t)]
            keys = [meta['tokenizer.ggml.model'], meta['tokenizer.ggml.add_space_prefix'], meta.get('tokenizer.ggml.prepend_scheme')]
            if change == runs:
                wrong += [f'token {i}' for i in (366, 376, 433) if meta['tokenizer.ggml.tokens'][i].strip(' ')]
            say(f'{name} {scheme} spaces', keys == ['llama', prefix, scheme] and not wrong, f'{keys}, other ids for {wrong}')
            behind = scheme == 'first' and ', and behind control tokens' or ''
            warned = f'other programs give other ids where text begins with a space{behind}\n' in said.stderr
            say(f'{name} {scheme} warning', warned if scheme else 'warning' not in said.stderr, said.stderr.strip())

    def losses(self):
        """What no key of GGUF can say: an error where ordinary text gets other ids, a warning where added tokens' neighbours do, or accents."""
        def added(rules):
            return lambda o: o.update(added_tokens=[t for t in o['added_tokens'] if rules == (t['lstrip'] or t['rstrip']) and t['special'] and not t['single_word']])

        quiet, accents, beside = '', 'accents that follow their letters', "such as '<|left|>', take spaces beside them"
        for name, change, message in (('qwen2', added(False), accents), ('llama3', added(False), quiet), ('llama3', added(True), beside)):
            said = subprocess.run([self.weft, 'convert', '-m', self.with_tokenizer(name, change, 960), '-o', self.top / 'losses.gguf', '--type', 'F16', '--force'], capture_output=True, text=True)
            warnings = [line for line in said.stderr.split('\n') if 'warning' in line]
            say(f'{name} warns {message!r}', said.returncode == 0 and len(warnings) == bool(message) and message in ''.join(warnings), said.stderr.strip())
        new, mark = self.top / 'new.gguf', {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '\u2581'}
        prepend, strip = {'type': 'Prepend', 'prepend': '\u2581'}, {'type': 'Strip', 'strip_left': True, 'strip_right': False}
        behind = {'type': 'Replace', 'pattern': {'Regex': '^\u2581\u2581c'}, 'content': 'c'}
        for steps, message in (([strip, prepend, mark], "a text that begins with a space: token 1 would be 366 ('\u2581\u2581') instead of 355 ('\u2581')"), ([prepend, mark, behind], 'text between control tokens: token 7 would be')):
            def normalised(o):
                added(False)(o)
                o['normalizer'] = {'type': 'Sequence', 'normalizers': steps}

            self.bad(message, 3, message, '-m', self.with_tokenizer('llama2', normalised, 960), '-o', new, '--type', 'F16')
        self.bad('tokens in normalised text', 3, 'words, numbers and signs', '-m', self.with_tokenizer('llama2', rows=960), '-o', new, '--type', 'F16')

    def templates(self):
        folder = self.with_tokenizer('llama3')
        named = [{'name': 'default', 'template': 'plain'}, {'name': 'tool_use', 'template': '{{ tools | length }} tools'}, {'name': 'a-b', 'template': 'other'}]
        hf.write_json(folder, 'tokenizer_config.json', {'chat_template': named})
        meta = reference.File(self.convert(folder, 'F16')).meta
        got = [meta.get('tokenizer.' + k) for k in ('chat_template', 'chat_template.tool_use', 'chat_template.a_b', 'chat_templates')]
        say('chat templates', got == ['plain', '{{ tools | length }} tools', 'other', ['tool_use', 'a_b']], str(got))

    def changed(self, name, change):
        """A folder of tests/model/data with another config.json, and its logits as a folder and converted."""
        folder = self.top / 'changed'
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.sources / 'tests/model/data' / name, folder)
        config = json.loads((folder / 'config.json').read_text())
        hf.write_json(folder, 'config.json', config | change)
        return [self.logits(m, list(range(10, 40))) for m in (folder, self.convert(folder, 'F32'))]

    def switched_off(self):
        """A soft cap of null is none, as of a cap that no score reaches; without the key it is Gemma 2's."""
        caps = ['attn_logit_softcapping', 'final_logit_softcapping']
        none, huge, own = (self.changed('gemma2', dict.fromkeys(caps, v)) for v in (None, 1e6, 2.0))
        for what, a, b, c in zip(('folder', 'converted'), none, huge, own):
            error, capped = tolerances.model_error('logits', a, b), tolerances.model_error('logits', a, c)
            say(f'no soft caps, {what}', error <= 1 < capped, f'{error:.2g} of the tolerance, with caps {capped:.2g}')

    def tied(self):
        """tie_word_embeddings, while the file has another output matrix: transformers takes that."""
        own, tied = self.changed('llama', {}), self.changed('llama', {'tie_word_embeddings': True})
        for what, a, b in zip(('folder', 'converted'), own, tied):
            say(f'tied with an output matrix, {what}', np.array_equal(a, b), 'the same logits')

    def signals(self):
        source, w = self.top / 'large.gguf', gw.Writer()
        gw.add_model(w, 'llama', 'large', dict(width=4096, layers=1, heads=32, kv_heads=32, head_dim=128, ffn=4096, vocab=259, context=64), 'F32')
        rows = np.random.default_rng(1).standard_normal((4096, 4096), np.float32)
        for i in range(4):
            w.tensor(f'blk.0.x{i}.weight', rows)
        w.write(source)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            p = subprocess.Popen([self.weft, 'convert', '-m', source, '-o', self.top / 'new.gguf', '--type', 'Q2_K', '-t', '1', '-q'], stderr=subprocess.PIPE,
                                 preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))  # nohup may have it ignored
            until = time.monotonic() + 60
            while p.poll() is None and not list(self.top.glob('new*.part')) and time.monotonic() < until:
                time.sleep(0.005)
            p.send_signal(number)
            p.communicate(timeout=60)
            left = [f.name for f in self.top.glob('new*')]
            say(f'signal {number}', p.returncode == 128 + number and not left, f'exit {p.returncode}, left {left}')
            for f in self.top.glob('new*'):
                f.unlink()

    # ---- errors ----------------------------------------------------------------------------------------

    def bad(self, what, code, message, *args, before=None):
        done = subprocess.run([self.weft, 'convert', *map(str, args)], capture_output=True, text=True, preexec_fn=before)
        left = [p.name for p in self.top.glob('*.part')] + [p.name for p in self.top.glob('new*')]
        ok = done.returncode == code and message in done.stderr and not left
        say(what, ok, f'exit {done.returncode}, {done.stderr.strip()[-200:]!r}, left {left}')

    def errors(self, demo):
        new, copy, keep = self.top / 'new.gguf', self.top / 'copy.gguf', self.top / 'keep.gguf'
        shutil.copy(demo, copy)
        keep.write_bytes(b'precious')
        (self.top / 'link.gguf').symlink_to(copy)
        self.bad('no type', 2, '--type', '-m', demo, '-o', new)
        self.bad('unknown type', 2, 'Q4_K_M', '-m', demo, '-o', new, '--type', 'Q4_K_X')
        self.bad('no output', 2, '-o', '-m', demo, '--type', 'F16')
        self.bad('no model', 3, 'cannot open', '-m', self.top / 'none.gguf', '-o', new, '--type', 'F16')
        self.bad('the model itself', 2, 'is the model', '-m', copy, '-o', copy, '--type', 'F16', '--force')
        self.bad('the model by a link', 2, 'is the model', '-m', copy, '-o', self.top / 'link.gguf', '--type', 'F16', '--force')
        self.bad('a file that exists', 2, '--force', '-m', demo, '-o', keep, '--type', 'F16')
        self.bad('a folder as output', 1, 'is no file', '-m', demo, '-o', self.top, '--type', 'F16')
        self.bad('no such folder', 1, 'cannot write', '-m', demo, '-o', self.top / 'none' / 'new.gguf', '--type', 'F16')
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        self.bad('no room', 1, 'cannot write', '-m', demo, '-o', new, '--type', 'F16', before=limit)
        self.bad('no room over a file', 1, 'cannot write', '-m', demo, '-o', keep, '--type', 'F16', '--force', before=limit)
        say('what was there', keep.read_bytes() == b'precious' and copy.read_bytes() == demo.read_bytes(), 'is as it was')
        tiny = self.top / 'tiny.gguf'
        for fill, message in (('blk.1.ffn_up.weight=nan', 'not finite'), ('blk.1.ffn_up.weight=1e6', 'BF16')):
            self.tiny(tiny, '--fill', fill)
            self.bad(fill, 3, message, '-m', tiny, '-o', new, '--type', 'Q8_0')

    def tiny(self, path, *options):
        run(sys.executable, self.sources / 'tests/model/tiny.py', *options, path)


def main():
    weft, sources = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as top:
        test = Test(weft, sources, top)
        demo = test.sources / 'models' / 'demo.gguf'
        folders = sorted(p for p in (test.sources / 'tests/model/data').iterdir() if (p / 'ids.json').exists())
        assert len(folders) >= 5, folders
        for folder in folders:
            test.folder(folder)
        for kind in TYPES:
            test.exact(demo, kind) if kind in ('Q4_K_M', 'Q8_0', 'MXFP4') else test.formats(demo, kind)
        test.stories()
        test.again(demo)
        test.experts()
        test.tokenizers()
        test.spaces()
        test.losses()
        test.templates()
        test.switched_off()
        test.tied()
        test.signals()
        test.errors(demo)
    end()


if __name__ == '__main__':
    main()
