#!/usr/bin/env bash
# llama.cpp's CUDA build as a peer, from the source package of llama-cpp-python, without what its benchmarks do not need.
#
#   llamacpp_cuda.sh fetch FILE.tar.xz         where there is a package index: the sources, trimmed (3 MB)
#   llamacpp_cuda.sh build FILE.tar.xz FOLDER  where there is nvcc: llama-bench and llama-batched-bench in FOLDER/bin (3 minutes on 16 cores)
#   llamacpp_cuda.sh rows FOLDER MODEL.gguf TYPE SHAPE
#                                              its rates as lines of peers, for WEFT_PEER of weft bench --shape SHAPE:
#                                              prompts of 512 and 2048, one sequence, 64 and 256 of them
#
# CUDA_ARCH (90) is the GPU that it is compiled for; the programs run on the CPU, too, with CUDA_VISIBLE_DEVICES= (llamacpp.py --tools).
set -euo pipefail

die() { echo "llamacpp_cuda.sh: $*" >&2; exit 2; }

# tests, servers, other backends and pictures stay behind; two tools are left
trim() { # TREE
    local keep
    cd "$1"
    mkdir ../few ../few/tools
    for keep in CMakeLists.txt LICENSE AUTHORS cmake common ggml include licenses src vendor tools/llama-bench tools/batched-bench; do
        cp -r "$keep" "../few/$keep"
    done
    cd ../few
    find ggml/src -mindepth 1 -maxdepth 1 -type d ! -name ggml-cuda ! -name ggml-cpu -exec rm -r {} +
    printf 'find_package(Threads REQUIRED)\nllama_add_compile_flags()\nadd_subdirectory(batched-bench)\nadd_subdirectory(llama-bench)\n' >tools/CMakeLists.txt
}

fetch() { # FILE
    local work out
    out=$(realpath "$1")
    work=$(mktemp -d)
    python3 -m pip download --no-deps --no-binary llama-cpp-python -d "$work" llama-cpp-python >&2
    mkdir "$work/all"
    tar -xzf "$work"/llama_cpp_python-*.tar.gz -C "$work/all" --strip-components=1 --wildcards '*/vendor/llama.cpp/*'
    (trim "$work/all/vendor/llama.cpp")
    tar -C "$work/all/vendor/few" -cJf "$out" .
    rm -rf "$work"
    ls -l "$out"
}

build() { # FILE FOLDER
    local src=$2/src
    mkdir -p "$src"
    tar -xJf "$1" -C "$src"
    cmake -S "$src" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF -DGGML_NATIVE=ON \
        -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCH:-90}" -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TOOLS=ON >"$2/configure.log" 2>&1 || { tail -20 "$2/configure.log"; die "it does not configure"; }
    ninja -C "$2" llama-bench llama-batched-bench >"$2/build.log" 2>&1 || { tail -20 "$2/build.log"; die "it does not build"; }
}

# -fa: with flash attention, which is faster there
rows() { # FOLDER MODEL TYPE SHAPE
    { "$1/bin/llama-bench" -m "$2" -p 512,2048 -n 128 -r 3 -ngl 99 -fa 1 -o jsonl
      "$1/bin/llama-batched-bench" -m "$2" -npp 128 -ntg 64 -npl 64,256 -c 49152 -b 2048 -ub 512 -ngl 99 -fa 1 --output-format jsonl; } 2>"$1/rows.log" |
        python3 -c '
import json, sys
for line in sys.stdin:
    r = json.loads(line) if line.startswith("{") else {}
    if r.get("n_prompt"): what, shape, rate = "prompt", "P=%d" % r["n_prompt"], r["avg_ts"]
    elif r.get("n_gen"): what, shape, rate = "decode", "N=%d" % r["n_gen"], r["avg_ts"]
    elif "speed_tg" in r: what, shape, rate = "decode", "N=%d,B=%d" % (r["tg"], r["pl"]), r["speed_tg"]
    else: continue
    print("model_%s,%s,\"%s,%s\",llama.cpp CUDA,%.6g,tokens/s" % (what, sys.argv[1], shape, sys.argv[2], rate), flush=True)' "$3" "$4" ||
        { tail -5 "$1/rows.log"; die "it does not run"; }
}

[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
verb=$1
shift
case $verb in
fetch | build | rows) "$verb" "$@" ;;
*) die "no verb $verb: fetch, build or rows" ;;
esac
