"""Models of tests/model/data whose config.json is changed, as GGUF files; and perplexity."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'model'))
import reference


def convert(weft, folder, change, top):
    """Converts the folder with `change` in its config.json to F32; returns the path in top. The copy has no telling name: llama.cpp reads
    properties of tokens out of some."""
    copy, out = pathlib.Path(top) / 'tiny', pathlib.Path(top) / 'tiny.gguf'
    shutil.copytree(folder, copy)
    config = json.loads((copy / 'config.json').read_text())
    config.get('text_config', config).update(change)
    (copy / 'config.json').write_text(json.dumps(config))
    subprocess.run([os.path.abspath(weft), 'convert', '-m', copy, '-o', out, '--type', 'F32', '-q'], check=True)
    return out


def names(path):
    """A hash of the keys and the names of tensors of a GGUF file."""
    file = reference.File(path)
    return hashlib.sha256(json.dumps([sorted(file.meta), sorted(file.tensors)]).encode()).hexdigest()[:16]


def perplexity(logits, ids):
    """Of ids by the logits at each of them; the first is given."""
    x = logits[: len(ids) - 1].astype(np.float64)
    x = x - x.max(1, keepdims=True)
    x -= np.log(np.exp(x).sum(1, keepdims=True))
    return float(np.exp(-x[np.arange(len(x)), ids[1:]].mean()))
