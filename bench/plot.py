#!/usr/bin/env python3
"""Draws what weft's commands print for programs. Needs matplotlib.

    weft bench throughput ... --arrivals poisson --request-rate 1,2,4 -o csv >rates.csv;  bench/plot.py rates.csv latency.svg
    weft plan --cost ... --json >cost.json;                                       bench/plot.py cost.json cost.svg
    weft plan --profile PROFILE --json >pairs.json;                               bench/plot.py pairs.json pairs.svg
    weft calibrate -m MODEL -f TEXT --json >logits.json;                          bench/plot.py logits.json logits.svg

What the file has says what is drawn: normalised latency against the request rate, the time that each op takes by compute, memory, network and
energy, what ops keep of their rate beside compute (NanoFlow, figure 5), or attention logits and the range of each layer (FlashDecoding++Next,
figure 5). The picture has the format that its name ends in.
"""
import csv
import json
import sys

LIMIT_MS = 200  # NanoFlow's limit on the mean normalised latency


def draw_latency(pyplot, rows):
    fig, ax = pyplot.subplots(figsize=(9, 5.5))
    for name in dict.fromkeys(f"{r['policy']}, {r['load']}" for r in rows):
        points = sorted((float(r["rate"]), float(r["norm_mean_ms"])) for r in rows if f"{r['policy']}, {r['load']}" == name and r["norm_mean_ms"])
        ax.plot(*zip(*points), marker="o", label=name)
    ax.axhline(LIMIT_MS, linestyle="--", color="0.5", label=f"{LIMIT_MS} ms")
    ax.set(yscale="log", xlabel="requests per second", ylabel="mean normalised latency, ms per token",
           title=f"{rows[0]['model_type']} on {rows[0]['device_name']}, {rows[0]['n_seqs']} sequences, dense batch {rows[0]['dense_batch']}")
    ax.legend()
    return fig


def draw_cost(pyplot, c):
    limits, ops = ["compute", "memory", "network", "energy"], c["ops"]
    fig, ax = pyplot.subplots(figsize=(9, 1 + 0.45 * len(ops)))
    for k, limit in enumerate(limits):
        at = [i + 0.2 * k - 0.3 for i in range(len(ops))]
        ax.barh(at, [1e3 * op[limit + "_s"] for op in ops], 0.2, label=limit)
    ax.set_yticks(range(len(ops)), [op["name"] for op in ops])
    ax.invert_yaxis()
    ax.set(xlabel="ms", title=f"{c['model_type']} on {c['n_devices']} x {c['device_name']}, {c['decodes'] + c['prefill']:.0f} tokens a step:\n"
                              f"at best {c['optimum_tokens_s']:.0f} tokens/s, bound by {c['bound']}")
    ax.legend()
    return fig


def draw_rates(pyplot, c):
    if not c["rates"]:
        sys.exit("no ops were measured beside each other: `weft tune --overlap` measures them on devices whose kernels can leave a share to others")
    fig, ax = pyplot.subplots(figsize=(7, 6))
    for kind in dict.fromkeys(r["class"] for r in c["rates"]):
        rows = [r for r in c["rates"] if r["class"] == kind]
        spread = [[min(r["spread"], r["rate"]) for r in rows], [min(r["spread"], max(1 - r["rate"], 0)) for r in rows]]
        ax.errorbar([r["lost"] for r in rows], [r["rate"] for r in rows], yerr=spread, marker="o", label=kind, capsize=2)
    ax.plot([0, 1], [0, 1], ":", color="0.5", label="P = R: nothing gained")
    ax.set(xlabel="R: part of its rate that compute loses", ylabel="P: part of their rate that the others keep",
           title=f"{c['model_type'] or 'a model'} on {c['device_name'] or 'a device'}, contexts of {c['context']}: ops beside compute")
    ax.legend()
    return fig


def draw_logits(pyplot, c):
    """In steps of half a unit; below, for each layer, where the largest logits of its rows lie, the range that was chosen, and phi."""
    fig, (top, ax) = pyplot.subplots(2, 1, figsize=(9, 5 + 0.3 * len(c["layers"])), sharex=True)
    for key, name in ("n", "every x"), ("n_rows", "the largest x of a row"):
        steps = {}
        for b in c["bins"]:
            at = int(2 * b["from"] // 1) / 2 + 0.25
            steps[at] = steps.get(at, 0) + b[key]
        total = sum(steps.values())
        points = sorted((x, 100 * n / total) for x, n in steps.items() if n)
        top.plot(*zip(*points), marker=".", label=name)
    top.set(yscale="log", ylabel="share in steps of 0.5, %", title=f"Attention logits of {c['model_type']}, and the ranges of the asynchronous softmax")
    top.legend()
    for layer in c["layers"]:
        y = layer["layer"]
        ax.plot([layer["row_min"], layer["row_max"]], [y, y], color="0.4")
        if layer["fits"]:
            ax.barh(y, layer["b"] - layer["a"], left=layer["phi"] + layer["a"], height=0.6, alpha=0.3, color="C2")
            ax.plot([layer["phi"]] * 2, [y - 0.3, y + 0.3], color="C2")
    ax.set(xlabel="attention logit x = q.k * scale", ylabel="layer", yticks=range(len(c["layers"])))
    ax.invert_yaxis()
    return fig


def main(source, picture):
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        sys.exit("plot.py: there is no picture, for matplotlib is not installed")
    with open(source, newline="") as f:
        text = f.read()
    data = json.loads(text) if text.lstrip()[:1] in ("[", "{") else list(csv.DictReader(text.splitlines()))
    if isinstance(data, list):
        if not data or "norm_mean_ms" not in data[0]:
            sys.exit(f"plot.py: {source} has no latencies by rate, as of `weft bench throughput --arrivals`")
        fig = draw_latency(pyplot, data)
    else:
        draw = next((d for key, d in (("ops", draw_cost), ("rates", draw_rates), ("bins", draw_logits)) if key in data), None)
        if not draw:
            sys.exit(f"plot.py: {source} has nothing that is drawn here; `bench/plot.py` alone says what is")
        fig = draw(pyplot, data)
    fig.tight_layout()
    fig.savefig(picture)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
