#!/usr/bin/env python3
"""Each architecture in the formats that `weft convert` writes: logits on the CPU against a float64 pass over the weights that the file holds,
with keys and values as the cache has them.

- The float64 pass itself: over each folder of tests/model/data in BF16 it gives the logits that transformers gave, to the digits that F32 has.
- These folders in each type. Their rows are no multiple of most blocks, so the converter takes other formats, which are looked at, too.
- In F16 also with the residual stream in F16, which keeps models of few layers within the same bounds.
- One folder of each architecture made four times as wide, with random weights, so that rows are blocks of 256; those behind the feed-forward still are not.

    architectures.py WEFT SOURCES [more]     more: the types that the run without it leaves out
"""
import json
import pathlib
import re
import shutil
import sys
import tempfile

from common import end, np, run, say
import convert
import folders
import gguf_write as gw
import hf
import reference
import tolerances

FIRST = ['F16', 'Q8_0', 'Q4_K_M', 'Q6_K', 'MXFP4']
LATER = [t for t in convert.TYPES if t not in FIRST]
EXACT = 2e-6  # of the range: transformers' logits are stored in F32
CLEAR = 0.02  # between the scores of the last expert that is taken and of the next: rounding must not choose another
PLAIN = ('ffn_gate_inp', 'position_embd')  # matrices that stay F32
TIMES = 4
WIDTHS = ['hidden_size', 'intermediate_size', 'head_dim', 'moe_intermediate_size', 'shared_expert_intermediate_size', 'n_embd', 'ffn_dim', 'ffn_hidden_size', 'word_embed_proj_dim']
KEPT = ['vocab_size', 'max_position_embeddings', 'n_positions', 'num_experts', 'num_local_experts', 'num_attention_heads']


# ---- wide models ----------------------------------------------------------------------------------------------------------


def wide_config(config):
    config = dict(config, **{k: config[k] * TIMES for k in WIDTHS if config.get(k)})
    for rope in ('rope_parameters', 'rope_scaling'):
        lists = {k: v * TIMES for k, v in (config.get(rope) or {}).items() if isinstance(v, list)}
        if lists:
            config[rope] = {**config[rope], **lists}
    return config


def widen(folder, copy, rng):
    """The folder with matrices and vectors TIMES as wide, of random numbers of the same size where many are summed."""
    shutil.copytree(folder, copy)
    config = json.loads((folder / 'config.json').read_text())
    kept = {1, config.get('num_key_value_heads')} - {None} | {config[k] + more for k in KEPT if k in config for more in (0, 2)}  # OPT has 2 positions more
    hf.write_json(copy, 'config.json', wide_config(config))
    tensors = []
    for name, x in folders.tensors_of(folder):
        shape = [n if n in kept else n * TIMES for n in x.shape]
        size = x.std() / np.sqrt(TIMES if x.ndim > 1 else 1)
        tensors.append((name, (x.mean() * (x.ndim == 1) + size * rng.standard_normal(shape)).astype(np.float32)))
    hf.write_safetensors(copy / 'model.safetensors', tensors, 'BF16')


# ---- what a file holds ----------------------------------------------------------------------------------------------------


def bits(kind):
    _, block, size = gw.TYPES[kind]
    return 8 * size / block


def is_wide(kind):
    """Has it blocks that only wide rows fill?"""
    return gw.TYPES[base_of(kind)][1] > 32


def base_of(kind):
    """The format of most matrices in a file of that type."""
    return re.sub('_[SML]$', '', kind)


def wrong_formats(file, kind):
    """Matrices whose format has fewer bits than the type, or another one of plain numbers; and whether none has the type's own. Blocks fit rows, or the file
    could not be read."""
    base, wrong, own = base_of(kind), [], False
    for name, (dims, number, _) in file.tensors.items():
        got = convert.NAMES[number]
        want = 'F32' if len(dims) == 1 or name.endswith('.bias') or any(part in name for part in PLAIN) else convert.fitting(base, dims[0])
        exact = want == 'F32' or kind in ('F16', 'BF16')
        wrong += [f'{name} is {got}, not {want}'] if (got != want if exact else bits(got) < bits(want)) else []
        own |= len(dims) > 1 and want != 'F32' and got == (base if dims[0] % 256 == 0 else want)
    return wrong or ([] if own or kind == 'F32' else [f'nothing is {base}'])


# ---- logits -------------------------------------------------------------------------------------------------------------------


def clear_tokens(model, first):
    """Ids, those first or random ones, among which no choice of experts is close; and their logits."""
    rng, ids = np.random.default_rng(3), first
    for _ in range(400):
        model.gap = np.inf
        logits = model.logits(ids)
        if model.gap > CLEAR:
            return ids, logits
        ids = [int(i) for i in rng.integers(0, 256, 8)]
    raise RuntimeError('all choices of experts are close')


class Cached(reference.Model):
    """Keys and values are those of the cache, in F16: large scores make of their rounding a difference as large as the tolerance."""

    def attention(self, q, k, v, *more):
        k, v = (x.astype(np.float16).astype(np.float64) for x in (k, v))
        return super().attention(q, k, v, *more)


class Test:
    def __init__(self, weft, top):
        self.weft, self.top, self.seen = weft, top, set()

    def converted(self, folder, kind):
        out = self.top / 'out.gguf'
        run(self.weft, 'convert', '-m', folder, '-o', out, '--type', kind, '-q', '--force')
        return out

    def reference(self, folder, ids):
        """Returns what the architecture is called, and whether it has experts."""
        model = reference.Model(self.converted(folder, 'BF16'))
        want, got = np.load(folder / 'logits.npy'), model.logits(ids)
        error = np.abs(got - want).max() / (want.max() - want.min())
        say(f'{folder.name} float64', error <= EXACT, f'{error:.1e} of the range of transformers\' logits')
        return model.arch, model.experts > 0

    def logits(self, name, folder, kind, ids):
        model = Cached(self.converted(folder, kind))
        wrong = wrong_formats(model.file, kind)
        ids, want = clear_tokens(model, ids)
        for more in ['', 'WEFT_F16_RESIDUAL'] if kind == 'F16' else ['']:
            run(*(['env', f'{more}=1'] if more else []), self.weft, 'perplexity', '-m', self.top / 'out.gguf', '--tokens', ','.join(map(str, ids)), '--logits', self.top / 'got.npy', '--device', 'cpu')
            error = tolerances.model_error('logits', np.load(self.top / 'got.npy'), want)
            say(' '.join([name, kind, more]).strip(), error <= 1 and not wrong, '; '.join([f'{error:.2f} of the tolerance', *wrong[:3]]))  # NaN fails

    def folder(self, folder, types):
        facts = json.loads((folder / 'ids.json').read_text())
        ids = facts['prompt'] + facts['generated']
        what = self.reference(folder, ids)
        for kind in types:
            self.logits(folder.name, folder, kind, ids)
        if what not in self.seen:
            self.seen.add(what)
            widen(folder, self.top / folder.name, np.random.default_rng(facts['seed'] + 1))
            for kind in filter(is_wide, types):
                self.logits(f'{folder.name} wide', self.top / folder.name, kind, ids)


def main():
    data = pathlib.Path(sys.argv[2]) / 'tests/model/data'
    with tempfile.TemporaryDirectory() as name:
        test = Test(sys.argv[1], pathlib.Path(name))
        for folder in sorted(p.parent for p in data.glob('*/ids.json')):
            test.folder(folder, LATER if sys.argv[3:] == ['more'] else FIRST)
    end()


if __name__ == '__main__':
    main()
