#!/usr/bin/env python3
"""The rows of README.md and docs/folders.md that the tables in the code make; the test `cli readme` compares them.

    supported.py --write    writes them anew

What an architecture stands for is the first sentence of its file.
"""
import os
import pathlib
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAMILIES = {"Llama": ["llama"], "Qwen": ["qwen2", "qwen2moe", "qwen3", "qwen3moe"], "Gemma": ["gemma2", "gemma3"], "GPT": ["gpt2", "gpt-oss"], "Phi": ["phi3"],
            "embeddings": ["bert", "modern-bert", "nomic-bert"], "others": ["command-r", "falcon", "granite", "olmo2", "opt", "smollm3", "starcoder2"]}
KINDS = {"llama": "SentencePiece", "gpt2": "byte-level BPE"}
TIERS = {"BASE": "without any extension", "DOT": "for products of bytes", "NEUTRAL": "for any vendor's matrix units", "MATRIX": "for NVIDIA's alone"}
LEVELS = {"c": "plain C", "avx2": "AVX2", "avx512": "AVX-512", "amx": "AMX", "neon": "NEON", "dotprod": "int8 dot products of ARM"}


def read(path):
    return pathlib.Path(os.path.join(ROOT, path)).read_text(encoding="utf-8")


def found(pattern, path):
    """All that the pattern finds in a table; one that finds nothing there no longer knows the table."""
    rows = re.findall(pattern, read(path))
    assert rows, f"{path} has nothing like {pattern}: tests/cli/supported.py reads it wrongly"
    return rows


def in_words(words, keys, path):
    """In the order of the words."""
    assert set(keys) <= set(words), f"{path}: tests/cli/supported.py lacks words for {set(keys) - set(words)}"
    return ", ".join(text for key, text in words.items() if key in keys)


def archs():
    """Of each: its name in GGUF files, transformers' classes, the models."""
    for arch in found(r"(?m)^X\((\w+)\)", "src/model/archs.def"):
        path = f"src/model/arch/{arch}.c"
        row, = found(rf'(?m)^const wf_arch wf_arch_{arch} = {{\s*"([\w-]+)",\s*((?:"[\w ]+"\s*)+)', path)
        row = row[0], "".join(re.findall('"(.*?)"', row[1]))
        models, = found(r"\A/\* [\w-]+: ((?:[^.]|\.\d)+)\.\s", path)
        yield *row, " ".join(models.replace("\n *", " ").split())


def families():
    """{family: the models of its architectures}; each architecture belongs to one."""
    models = {name: text for name, _, text in archs()}
    assert sorted(models) == sorted(sum(FAMILIES.values(), [])), "tests/cli/supported.py: FAMILIES has other architectures than src/model/archs.def"
    return {family: "; ".join(models[name] for name in members) for family, members in FAMILIES.items()}


def classes():
    """{architecture in GGUF files: classes in config.json}"""
    return {f"`{name}`": ", ".join(f"`{c}`" for c in row.split()) for name, row, _ in archs()}


def weights():
    return ", ".join(found(r'(?m)^X\(\w+, "(\w+)", \d.*wf_decode', "src/tensor/dtypes.def"))  # not what has no number in GGUF


def tokenizers():
    models = [found(r'\.model = "(\w+)"', f"src/text/{kind}.c")[0] for kind in dict.fromkeys(found(r"&wf_text_(\w+)", "src/text/tokenizer.c"))]
    return ", ".join(f"{KINDS[m]} (`{m}`)" for m in models) + "; `tokenizer.json`, and of encoders GGUF, with BPE, Unigram or WordPiece"


def devices():
    tiers = set(found(r"(?m)^X\(\w+, \w+, (\w+),", "cl/variants.def"))
    levels = set(found(r"(?m)(?:^WF_CPU_LEVEL\(|wf_cpu_has_)(\w+)[,(]", "cpu/variants.c"))
    return ("one or [several](docs/devices.md#several-devices); "
            f"OpenCL 1.2 and newer: kernels {in_words(TIERS, tiers, 'cl/variants.def')}; CPUs: {in_words(LEVELS, levels, 'cpu/variants.c')} "
            "([tested devices](docs/kernels.md#tested-devices))")


def rows():
    return {"README.md": {**families(), "weights": weights(), "tokenizers": tokenizers(), "devices": devices()}, "docs/folders.md": classes()}


def rewritten(path, text):
    for title, row in rows()[path].items():
        text, n = re.subn(rf"(?m)^\| {re.escape(title)} \|.*$", lambda _: f"| {title} | {row} |", text)
        assert n == 1, f"{path} has {n} rows '{title}'"
    return text


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    for path in rows():
        new = rewritten(path, read(path))
        pathlib.Path(os.path.join(ROOT, path)).write_text(new, encoding="utf-8")
