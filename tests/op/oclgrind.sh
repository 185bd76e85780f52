#!/bin/sh
# Kernels under oclgrind: wild accesses, data races and wrong API calls (races), reads of memory that
# nobody wrote (uninitialized). Any report fails.   oclgrind.sh OP_TEST races|uninitialized OP...
#
# The second check needs unoptimised kernels, as oclgrind 21.10 stops at LLVM's freeze; its own crash on
# unoptimised gemv and its pace leave only the plain gemm. sample, router of scores, and decode_split in its second pass, read back what they
# wrote to global memory, which it reports as never written (printed there, the values are those that were written).
set -u
op_test=$1 check=$2
shift 2
command -v oclgrind >/dev/null || { echo "skipped: oclgrind is missing"; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME="$dir" OCL_ICD_VENDORS="$dir" # kernels of other drivers stay out
seed=$(date +%s)
failed=0

run() {
    oclgrind --max-errors 20 --log "$dir/log" "$@" --seed "$seed" >"$dir/out" 2>&1 && test ! -s "$dir/log" && return
    echo "FAILED: oclgrind $* --seed $seed"
    cat "$dir/out" "$dir/log"
    failed=1
}

# Those of an op whose reads of uninitialized memory are looked for.
variants() {
    case $1 in
    sample) ;;
    router) echo norm ;;
    gemm) echo naive ;;
    grouped_gemm) echo naive gemv ;;
    attention) echo naive decode flash ;;
    *) echo all ;;
    esac
}

for op; do
    if test "$check" = races; then
        run --check-api --data-races "$op_test" first-opencl --tiny --op $op
    else
        for variant in $(variants $op); do
            run --build-options -cl-opt-disable --uninitialized "$op_test" first-opencl --tiny --op $op $(test $variant = all || echo --variant $variant)
        done
    fi
    test "$check" = uninitialized -a -z "$(variants $op)" || grep cases, "$dir/out"
done
exit $failed
