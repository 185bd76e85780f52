#!/usr/bin/env bash
# The CPU path against llama.cpp on models of 1.1B parameters: a prompt of 512, one sequence, 16 sequences; in turns.
#   bench/cpu.sh WEFT OUT [FORMAT]...      (default: Q4_K_M Q5_K_M Q6_K Q8_0 Q4_0 F16)
# Builds nothing. Writes the models to OUT at first use (4.5 GB for all; LAYERS=4 makes them smaller), logs, table.txt with the ratios
# weft / llama.cpp, and rows of results beside them, which belong in bench/results if the machine was quiet. $PYTHON has numpy and
# llama-cpp-python, compiled for this processor (pip builds it so; with gcc 12 on one with AMX:
# CMAKE_ARGS="-DCMAKE_CXX_FLAGS='-include $PWD/bench/baselines/amx_config.h'", or it faults); or TOOLS is a folder with llama.cpp's own programs.
# THREADS: of both (by default what weft takes by itself, and one a core for llama.cpp). ROUNDS: 3.
set -u
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
cd "$(dirname "$0")/.." || exit 1
weft=$1 out=$2 python=${PYTHON:-python3} threads=(${THREADS:+-t "$THREADS"}) rounds=${ROUNDS:-3} rows=()
shift 2
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
mkdir -p "$out" || exit 1
[ -n "${LAYERS:-}" ] || rows=(--results "$out")
[ $# -gt 0 ] || set -- Q4_K_M Q5_K_M Q6_K Q8_0 Q4_0 F16

model() {
    [ -f "$out/$1.gguf" ] || $python bench/make_model.py --shape llama-1.1b ${LAYERS:+--layers "$LAYERS"} --type "$1" "$out/$1.gguf" >&2
    echo "$out/$1.gguf"
}

compare() {
    local file
    file=$(model "$1")
    $python bench/baselines/llamacpp.py "$weft" "$file" -p 512 -n 64 -s 16 -r "$rounds" "${threads[@]}" ${TOOLS:+--tools "$TOOLS"} "${rows[@]}" >"$out/$1.log" 2>&1 ||
        { tail -3 "$out/$1.log"; return 1; }
    printf '%-8s' "$1"
    sed -n 's/.*median ratio //p' "$out/$1.log" | while read -r ratio; do printf ' %8s' "$ratio"; done
    echo
}

{
    printf '%-8s %8s %8s %8s   weft / llama.cpp, %s threads, load %s before\n' format prompt decode x16 "${THREADS:-their default}" "$(cut -d' ' -f1 /proc/loadavg)"
    for format; do compare "$format"; done
} | tee "$out/table.txt"
