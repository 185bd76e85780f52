#!/usr/bin/env bash
# Builds weft on a machine with a GPU, checks it there, and times it.
#   bench/gpu.sh OUT [check|check-all|check-tiers|ops|clblast|tune|time|tiers|peers|load|overlap|steady|
#   features|rounds|experts]...   (default: check ops time)
# Logs and results go to OUT. check is for the GPU, check-all for every OpenCL device, check-tiers for the GPU's lower tiers, which
# tiers times: they are what other vendors' cards get. ops and clblast measure single
# ops, with PyTorch or CLBlast beside them; tune writes the choice of kernels; time measures whole models, whose
# Llama-3-8B shape needs 17 GB of disk under /tmp and as much device memory; load runs 1,000 requests of ShareGPT with
# each policy on it (traces: $WEFT_TEST_DATA/traces or ../shared/data/traces); overlap compares one and two
# nano-batches under a load of mostly decoding (it needs 90 GB of device memory); steady tells what --deterministic costs.
# peers takes turns with llama.cpp's CUDA build, whose sources are $LLAMACPP (bench/baselines/llamacpp_cuda.sh fetch), for each of
# $PEERS (llama3-8b:F16, ...: shape and type); its model files need up to 27 GB under /tmp, one at a time. features tells what
# grammars, adapters and KV in host memory cost or save (bench/features.py); rounds runs conversations whose KV takes four times the
# cache, with the tiers below it and without, and a load that reuses nothing; experts has those of a mixture on the CPU, with llama.cpp
# beside it where peers has built it.
set -u
cd "$(dirname "$0")/.."
out=$1
shift
steps=${*:-check ops time}
mkdir -p "$out"
python=/usr/bin/python3
$python -c 'import numpy' 2>/dev/null || python=python3
weft=build-gpu/src/cli/weft

build() {
    [ -d build-gpu ] || meson setup build-gpu >"$out/setup.log" 2>&1 || { cat "$out/setup.log"; exit 1; }
    ninja -C build-gpu >"$out/build.log" 2>&1 || { tail -40 "$out/build.log"; exit 1; }
    $weft --list-devices
}

devices() { $weft --list-devices | grep -o 'opencl:[0-9.]*' | sort -u; }

# Of the devices named.
check() {
    for d in "$@"; do
        echo "== $d"
        log=$out/check-${d//:/-}
        timeout 100 build-gpu/tests/golden/batch_invariance "$d" . || true
        timeout 200 build-gpu/tests/golden/golden "$d" >"$log-golden.log" 2>&1 || grep FAILED "$log-golden.log" | head -5 | cut -c1-300
        tail -1 "$log-golden.log"
        timeout 400 build-gpu/tests/op/op_test "$d" >"$log-op.log" 2>&1 || grep -E 'FAIL|wrong' "$log-op.log" | head -5 | cut -c1-300
        tail -1 "$log-op.log"
    done
}

tiers=(base dot neutral)

check_tiers() {
    for tier in "${tiers[@]}"; do
        echo "== --tier $tier"
        log=$out/check-$tier-op.log
        timeout 200 build-gpu/tests/op/op_test gpu --quick --tier $tier >"$log" 2>&1 || grep -E 'FAIL|wrong' "$log" | head -5 | cut -c1-300
        tail -1 "$log"
    done
}

# The file of the 8B shape in a format, written at first use.
model_8b() {
    local file=/tmp/llama3-8b-$1.gguf
    [ -f "$file" ] || $python bench/make_model.py --shape llama3-8b --type "$1" "$file" >&2
    echo "$file"
}

time_models() {
    for type in F16 Q4_0; do
        timeout 280 $weft bench -m "$(model_8b $type)" --device gpu -p 512,2048 -n 128 -r 3 --results "$out"
    done
}

time_tiers() {
    for tier in "${tiers[@]}" matrix; do
        local on="--tier $tier --device gpu --results $out"
        for type in F16 Q8_0 Q4_0 Q4_K_M; do
            timeout 120 $weft bench --shape llama3-8b --type $type $on -r 3 -p 512,2048 -n 64
            timeout 120 $weft bench --shape llama3-8b --type $type $on -r 3 -p 0 -n 64 -s 64
        done
        for kv in f16 q8_0; do
            timeout 60 $weft bench ops --op decode_attention,prefill_attention $on --kv-dtype $kv
        done
    done
}

trace() {
    timeout 400 $weft bench throughput -q -m "$(model_8b F16)" --device gpu --profile "$@"
}

load() {
    local sharegpt="--dataset-path ${WEFT_TEST_DATA:-../shared/data}/traces/sharegpt.csv --num-prompts 1000 -c 4096 --kv-memory 60G"
    trace $sharegpt --max-num-seqs 256 --results "$out"
    trace $sharegpt --max-num-seqs 1000 --policy nanoflow --results "$out"
}

overlap() {
    for n in 1 2; do
        echo "== --nano-batches $n"
        trace --const 512:1024 --num-prompts 512 --max-num-seqs 512 -c 2048 --kv-memory 110G --policy nanoflow --nano-batches $n
    done
}

steady() {
    for more in "" --deterministic; do
        timeout 100 $weft bench -m "$(model_8b F16)" --device gpu -p 512 -n 32 -r 2 $more
    done
}

# Peer and weft one after the other: a row of results is of one run.
ops() {
    python3 bench/baselines/torch_peer.py >"$out/torch.csv" || return
    WEFT_PEER=$out/torch.csv timeout 400 $weft bench ops --device gpu --results "$out"
}

clblast() {
    $python bench/baselines/clblast.py --device NVIDIA --rows 1,16,512,2048 >"$out/clblast.csv" || return
    WEFT_PEER=$out/clblast.csv timeout 400 $weft bench ops --device gpu --op gemm --type F32 --results "$out"
}

features() {
    timeout 500 $python bench/features.py $weft "$(model_8b F16)"
}

# 100 conversations of five rounds: 4,900 tokens each in the end, 64 GB. Blocks are stored at once: a second sighting would come too late
# for the second round.
rounds() {
    local on="$weft bench throughput --shape llama3-8b --device gpu --policy nanoflow --kv-memory 16G -c 8192"
    local host="--kv-host 64G" less="--kv-host 16G" disk="--kv-host 16G --kv-disk /tmp/weft-kv:60G"
    for below in "" "$host" "$less" "$disk"; do
        echo "== rounds $below"
        WEFT_KV_STORE_ALWAYS=1 WEFT_ROUNDS=5 WEFT_ROUND_TOKENS=500 timeout 200 $on --const 900:400 --num-prompts 100 $below
    done
    rm -f /tmp/weft-kv
    for below in "" "$host" "" "$host"; do
        echo "== no reuse $below"
        timeout 100 $on --const 512:256 --num-prompts 500 $below
    done
}

experts() {
    timeout 200 $weft bench --shape mixtral-8x7b --type Q4_K_M --device gpu --experts cpu -p 512 -n 32 -r 3
    [ -x /tmp/llama.cpp/bin/llama-bench ] || return
    $python bench/make_model.py --shape mixtral-8x7b --type Q4_K_M /tmp/moe.gguf >&2
    timeout 250 /tmp/llama.cpp/bin/llama-bench -m /tmp/moe.gguf -ngl 99 -ncmoe 99 -p 512 -n 32 -r 3
    rm -f /tmp/moe.gguf
}

# One shape in one type: the peer from a file, weft without one.
peer() { # SHAPE:TYPE
    local shape=${1%:*} type=${1#*:} file=/tmp/peer.gguf
    if [ -x /tmp/llama.cpp/bin/llama-bench ] && [ "$shape" != llama3-70b ]; then
        $python bench/make_model.py --shape "$shape" --type "$type" $file >&2
        timeout 250 bench/baselines/llamacpp_cuda.sh rows /tmp/llama.cpp $file "$type" "$shape" >"$out/peer.csv"
        rm -f $file
    else
        : >"$out/peer.csv"
    fi
    cat "$out/peer.csv"
    local bench="env WEFT_PEER=$out/peer.csv timeout 250 $weft bench --shape $shape --type $type"
    bench+=" --device gpu -r 3 --results $out"
    $bench -p 512,2048 -n 128
    $bench -p 0 -n 64 -s 64
    $bench -p 0 -n 64 -s 256
}

peers() {
    [ -z "${LLAMACPP:-}" ] || [ -d /tmp/llama.cpp ] || bench/baselines/llamacpp_cuda.sh build "$LLAMACPP" /tmp/llama.cpp
    for p in ${PEERS:-llama3-8b:F16 llama3-8b:Q8_0 llama3-8b:Q4_0 llama3-8b:Q4_K_M}; do
        echo "== $p"
        peer "$p"
    done
}

tune() {
    timeout 400 $weft tune --device gpu --shape N=6144,K=4096 --shape N=4096,K=4096 --shape N=28672,K=4096 --shape N=4096,K=14336 \
        --shape H=32,KV=8,D=128 --type F16,Q4_0 -f "$out/nvidia.tune"
}

build
for s in $steps; do
    case $s in
    check) check gpu ;;
    check-all) check cpu $(devices) ;;
    ops | clblast | tune | peers | load | overlap | steady | features | rounds | experts) $s ;;
    check-tiers) check_tiers ;;
    time) time_models ;;
    tiers) time_tiers ;;
    *) echo "unknown step $s" >&2; exit 2 ;;
    esac
done
