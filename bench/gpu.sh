#!/usr/bin/env bash
# Builds weft on a machine with a GPU, checks it on every OpenCL device there, and times it.
#   bench/gpu.sh OUT [check|time]...   (default: both; logs and results go to OUT)
# The Llama-3-8B shape needs 17 GB of disk under /tmp and as much device memory.
set -u
cd "$(dirname "$0")/.."
out=$1
shift
steps=${*:-check time}
mkdir -p "$out"
python=/usr/bin/python3
$python -c 'import numpy' 2>/dev/null || python=python3

build() {
    [ -d build-gpu ] || meson setup build-gpu >"$out/setup.log" 2>&1 || { cat "$out/setup.log"; exit 1; }
    ninja -C build-gpu >"$out/build.log" 2>&1 || { tail -40 "$out/build.log"; exit 1; }
    build-gpu/src/cli/weft --list-devices
}

devices() { build-gpu/src/cli/weft --list-devices | grep -o 'opencl:[0-9.]*' | sort -u; }

check() {
    for d in cpu $(devices); do
        echo "== $d"
        timeout 200 build-gpu/tests/golden/golden "$d" >"$out/golden-$d.log" 2>&1
        tail -1 "$out/golden-$d.log"
        grep -v '^ok' "$out/golden-$d.log" | head -5 | cut -c1-300
        timeout 300 build-gpu/tests/op/op_test "$d" --quick >"$out/op-$d.log" 2>&1
        tail -1 "$out/op-$d.log"
        grep -i -E 'fail|wrong' "$out/op-$d.log" | head -5 | cut -c1-300
    done
}

time_model() {
    gpu=$(devices | while read -r d; do build-gpu/src/cli/weft info --device "$d" 2>/dev/null | grep -qi gpu && echo "$d" && break; done)
    [ -f /tmp/llama3-8b.gguf ] || $python bench/make_model.py --shape llama3-8b --type F16 /tmp/llama3-8b.gguf
    timeout 280 build-gpu/src/cli/weft bench -m /tmp/llama3-8b.gguf --device "${gpu:-gpu}" -p 512 -n 128 -r 3 --results "$out/rows.csv"
}

build
for s in $steps; do
    case $s in
    check) check ;;
    time) time_model ;;
    *) echo "unknown step $s" >&2; exit 2 ;;
    esac
done
