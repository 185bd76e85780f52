#!/usr/bin/env bash
# Whether overlap pays on this CPU: steps of 512 tokens, 64 of them decodes at contexts of about 2,048, of a model of 1.1B parameters, and decode
# attention alone with all cores and with shares of them. Takes about two minutes on 16 cores.
#   bench/overlap_cpu.sh WEFT OUT [THREADS]     (default: all cores)
# Writes OUT/attention.md, OUT/ablation.md, OUT/search.txt. SECONDS_OF_SEARCH: 40.
set -u
[ $# -ge 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2; }
weft=$1 out=$2 threads=${3:-$(nproc)}
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
mkdir -p "$out" || exit 1
on_cpu=(--device cpu -t "$threads")
steps=(--shape llama-1.1b -c 2048 --kv-memory 4G --max-num-seqs 65 --max-num-batched-tokens 512 --context 2040)

attention() {
    local cores
    for cores in "$threads" $((threads * 3 / 4)) $((threads / 2)) $((threads / 4)) 1; do
        [ "$cores" -gt 0 ] || continue
        echo "$cores of $threads cores"
        WEFT_WORK_GROUPS=$cores "$weft" bench ops "${on_cpu[@]}" --op decode_attention --shape B=64,L=2048,H=32,KV=4,D=64 -r 3 -q | grep decode_attention
    done
}

attention | tee "$out/attention.md"
"$weft" bench ablation "${on_cpu[@]}" "${steps[@]}" -r 3 -q | tee "$out/ablation.md"
WEFT_ANEW=1 WEFT_QUICK=1 "$weft" tune --overlap --seconds "${SECONDS_OF_SEARCH:-40}" "${on_cpu[@]}" "${steps[@]}" --profile "$out/profile" -o "$out/plans" 2>&1 | tee "$out/search.txt"
