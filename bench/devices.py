#!/usr/bin/env python3
"""The table of docs/devices.md, drawn from the reports in bench/devices/.

    devices.py [--check]

--check: change nothing, and fail if the table is not that of the reports.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs" / "devices.md"
BEGIN, END = "<!-- devices.py: table -->\n", "<!-- devices.py: end -->\n"
HEAD = ["device, driver", "weft", "checks", "tier", "read GB/s", "Q4_K, 1 row", "F16, 512 rows", "prompt", "decode"]


def best(rows, **wanted):
    """The row of the highest tier that has it; rows come from the lowest tier on."""
    return next((r for r in reversed(rows) if all(r.get(k) == v for k, v in wanted.items())), {})


def share(row):
    return f"{row['rate']:.3g} {row['unit']} ({row['ceiling_pct'] or 0:.0f} %)" if row else ""


def speed(report, test):
    rates = [best(report["models"], test=test, type=t).get("tokens_s") for t in ("F16", "Q4_K_M")]
    return " / ".join(f"{r:.0f}" if r else "failed" for r in rates)


def row(report):
    device, checks, ops = report["device"], report["checks"], report["ops"]
    top = next((r for r in reversed(ops) if "ceilings" in r), {"tier": "none", "ceilings": {"read_gb_s": 0}})
    gemm = [r for r in ops if r.get("op") == "gemm"]
    checked = f"{checks['failed']} of {checks['passed'] + checks['failed']} failed" + ("" if checks["whole"] else ", not all")
    return [f"{device['name']}, {device['driver']}", report["weft"]["commit"], checked, top["tier"],
            f"{top['ceilings']['read_gb_s']:.0f}", share(best(gemm, dtype="Q4_K", shape="M=1,N=4096,K=4096")),
            share(best(gemm, dtype="F16", shape="M=512,N=4096,K=4096")), speed(report, "pp128"), speed(report, "tg16")]


def table():
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "bench" / "devices").glob("*.json"))]
    rows = [HEAD, ["---"] * len(HEAD), *map(row, reports)]
    return "".join("| " + " | ".join(cell.replace("|", "/") for cell in r) + " |\n" for r in rows)


def main():
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    drawn = before + BEGIN + table() + END + rest.split(END)[1]
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(drawn, encoding="utf-8")
    elif drawn != text:
        sys.exit("docs/devices.md has not the table of bench/devices: run bench/devices.py")


if __name__ == "__main__":
    main()
