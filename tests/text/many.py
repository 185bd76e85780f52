#!/usr/bin/env python3
"""10,000 random strings a tokenizer of data/NAME.json: the ids are those that Hugging Face's library gave, by a digest of each hundred strings.
make_tokenizers.py --many made the strings (data/many.txt.gz) and the digests (data/many.json, with the library's version).

    many.py LIBWEFT
"""
import ctypes
import gzip
import hashlib
import json
import pathlib
import sys
import tempfile

DATA = pathlib.Path(__file__).resolve().parent / 'data'
STRINGS, DIGESTS = DATA / 'many.txt.gz', DATA / 'many.json'
EACH = 100  # strings of a digest
NO_ADD_SPECIAL = 1  # of weft_text_flags


class Params(ctypes.Structure):
    _fields_ = [('path', ctypes.c_char_p), ('shape', ctypes.c_char_p), ('type', ctypes.c_char_p), ('layers', ctypes.c_uint32), ('vocab_only', ctypes.c_bool),
                ('reserved', ctypes.c_uint64 * 8)]


class Weft:
    """The vocabulary of a model, through the library."""

    def __init__(self, lib, path):
        self.lib, self.model = lib, ctypes.c_void_p()
        lib.weft_last_error.restype = ctypes.c_char_p
        params = Params(path=str(path).encode(), vocab_only=True)
        if lib.weft_model_open(ctypes.byref(params), ctypes.byref(self.model)):
            raise RuntimeError(lib.weft_last_error().decode())

    @classmethod
    def of_json(cls, lib, text):
        """Of the text of a tokenizer.json."""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, 'tokenizer.json').write_text(text, encoding='utf-8')
            return cls(lib, folder)

    def encode(self, text, flags=0):
        data, ids, n = text if isinstance(text, bytes) else text.encode(), ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        if self.lib.weft_tokenize(self.model, data, ctypes.c_size_t(len(data)), flags, ctypes.byref(ids), ctypes.byref(n)):
            raise RuntimeError(self.lib.weft_last_error().decode())
        got = ids[:n.value]
        self.lib.weft_free(ids)
        return got


def digests(encode, strings):
    """Of the ids of each EACH strings."""
    hundreds = (strings[i:i + EACH] for i in range(0, len(strings), EACH))
    return [hashlib.sha256(json.dumps([encode(s) for s in some]).encode()).hexdigest()[:8] for some in hundreds]


def read_strings():
    return json.loads(gzip.decompress(STRINGS.read_bytes()))


def main():
    lib, strings, failed = ctypes.CDLL(sys.argv[1]), read_strings(), 0
    wanted = json.loads(DIGESTS.read_text())
    assert len(strings) == 10000 and len(wanted['ids']) == len(list(DATA.glob('*.ids'))), (len(strings), len(wanted['ids']))
    for name, want in wanted['ids'].items():
        got = digests(Weft.of_json(lib, (DATA / f'{name}.json').read_text(encoding='utf-8')).encode, strings)
        wrong = [i * EACH for i, (a, b) in enumerate(zip(got, want, strict=True)) if a != b]
        failed += bool(wrong)
        print(f'{"FAILED" if wrong else "ok":6} {name}: {f"other ids among the {EACH} strings from {wrong} on" if wrong else f"{len(strings)} strings"}', flush=True)
    sys.exit(failed > 0)


if __name__ == '__main__':
    main()
