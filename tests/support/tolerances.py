"""The tolerances of src/verify/tolerances.def, for tests in Python."""
import os
import re

import numpy as np

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'src', 'verify', 'tolerances.def')


def number(text):
    return float.fromhex(text) if 'x' in text else float(text)


def rows(kind):
    with open(TABLE, encoding='utf-8') as f:
        found = re.findall(rf'^{kind}\((\w+), (.*?)\)', f.read(), re.M)
    return {name: [number(x.strip()) for x in numbers.split(',')] for name, numbers in found}


def op_error(op, got, want, size=None, mean=True):
    """The error of a result of F16 arithmetic, in units of its tolerance: right if at most 1. size: of the terms that are summed, for one
    that is known; mean: whether the mean square counts, as well as the largest error."""
    sigma = np.sqrt(rows('OP')[op][1])
    want = np.asarray(want, np.float64)
    error = np.abs(np.asarray(got, np.float64) - want)
    size = np.sqrt(np.mean(want**2)) if size is None else size
    eps = 2.0**-11 if got.dtype == np.float16 else 2.0**-24
    least = 2.0**-24 if got.dtype == np.float16 else 1e-37
    worst = (error / (eps * np.abs(want) + 8 * sigma * size + least)).max(initial=0)
    allowed = (sigma**2 * size**2 + eps**2 * np.mean(want**2)) * (1 + 63 / want.size)
    return max(worst, np.sqrt(np.mean(error**2) / (allowed + least**2))) if mean else worst


def model_error(what, got, want):
    """The same of values of a whole model, relative to the range of the reference's."""
    most, mean = rows('MODEL')[what]
    error, size = np.abs(np.asarray(got, np.float64) - want), want.max() - want.min()
    return max(error.max() / size / most, np.sqrt(np.mean(error**2)) / size / mean)


def matrix_error(what, got, want, layers):
    """The same of a model with so many layers whose products ran on a GPU's matrix units."""
    roundoff, roundings, layer, last = rows('MATRIX')[what]
    mean = roundoff * np.sqrt(roundings * (layer * layers + last))
    error, size = np.abs(np.asarray(got, np.float64) - want), np.sqrt(np.mean(want**2))
    return max(error.max() / size / 8, np.sqrt(np.mean(error**2)) / size) / mean
