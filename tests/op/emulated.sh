#!/bin/sh
# The CPU path on processors that this machine is not, emulated: op_test, with small problems of every op and format, and for 64-bit ARM, whose
# kernels no other test runs, with more of them.
#   emulated.sh arm SOURCE_ROOT                   compiled for 64-bit ARM, without warnings: NEON and the dot product
#   emulated.sh x86 OP_TEST MODEL KERNELS         the build's own program; MODEL is a processor without AVX-512, say, on which an
#                                                 instruction of AVX-512 would end it. What these kernels compute `op cpu` checks at length
#   emulated.sh amx OP_TEST                       a program with AMX's tiles in AVX-512 (amx_tiles.h): products of every format
# KERNELS: words in the names of kernels, each of which must run. AVX-512 runs in no emulator that Debian 12 has; `op cpu` names what it
# could not run.
set -u
need() { command -v "$1" >/dev/null || { echo "skipped: $1 is missing: ./setup.sh --test --more installs it"; exit 77; }; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# Passed, and so are kernels whose names have these words.
judge() { # judge EXIT-CODE WORD...
    grep -E ' cases|FAIL' "$dir/log"
    [ "$1" = 0 ] || { tail "$dir/log"; return 1; }
    shift
    for word; do grep -qE "[ -]$word +[1-9][0-9]* cases" "$dir/log" || { echo "no kernel of $word ran"; return 1; }; done
}

# compile FLAG... FILE...: an object for each file.
compile() {
    mkdir -p "$dir/$1" && (cd "$dir/$1" && shift && aarch64-linux-gnu-gcc -std=c11 -O2 -Wall -Wextra -Werror -Wno-missing-field-initializers \
        -Wmissing-prototypes -ffp-contract=off -D_GNU_SOURCE -DWF_VERSION=\"emulated\" -I"$root/include" -I"$root/src" -I"$root" -I"$root/tests" -c "$@")
}

arm() {
    need aarch64-linux-gnu-gcc
    need qemu-aarch64
    root=$1 cpu=$1/cpu ops=
    for op in $(sed -n 's/^RUN.*(\(.*\))$/\1/p' "$cpu/ops/levels.def") decode probe gemm_int8; do ops="$ops $cpu/ops/$op.c"; done
    src=$root/src
    # shellcheck disable=SC2086 # a word for each file
    compile base "$src"/base/*.c "$src"/tensor/*.c "$src"/tensor/quant/*.c "$src"/sample/*.c "$src"/dev/*.c "$src"/verify/*.c &&
        compile ref "$cpu"/ref/*.c && compile stub "$root/cl/stub.c" && compile test "$root"/tests/op/op_test.c "$root"/tests/op/cases.c "$root"/tests/op/coverage.c "$root"/tests/op/workers.c &&
        compile cpu $(find "$cpu" -maxdepth 1 -name '*.c' ! -name blas.c) "$cpu/x86/amx_absent.c" "$cpu/ops/grouped_gemm.c" &&
        compile c -fstack-reuse=none -DWF_LEVEL=c $ops && compile neon -DWF_LEVEL=neon $ops &&
        compile dotprod -DWF_LEVEL=dotprod -march=armv8.2-a+dotprod "$cpu/ops/gemm_int8.c" "$cpu/ops/probe.c" &&
        compile avx2 -DWF_LEVEL=avx2 "$cpu/ops/absent.c" && compile avx512 -DWF_LEVEL=avx512 "$cpu/ops/absent.c" &&
        aarch64-linux-gnu-gcc -static "$dir"/*/*.o -o "$dir/op_test" -lpthread -lm || exit 1
    qemu-aarch64 -cpu max "$dir/op_test" cpu --quick >"$dir/log" 2>&1
    judge $? neon dotprod || exit 1
    # Without the dot product, which no other op has: the same kernels as above, on a processor that refuses its instructions.
    for op in gemm grouped_gemm; do
        qemu-aarch64 -cpu cortex-a53 "$dir/op_test" cpu --tiny --op $op >"$dir/log" 2>&1
        judge $? neon || exit 1
    done
}

x86() {
    need qemu-x86_64
    program=$1 model=$2
    shift 2
    qemu-x86_64 -cpu "$model" "$program" cpu --tiny >"$dir/log" 2>&1
    judge $? "$@"
}

amx() {
    grep -q avx512_fp16 /proc/cpuinfo || { echo "skipped: needs other hardware: AVX-512 with FP16, which AMX's kernels use as well"; exit 77; }
    "$1" cpu --quick --op gemm >"$dir/log" 2>&1
    judge $? amx amx-int8 amx-q8_0x16
}

"$@"
