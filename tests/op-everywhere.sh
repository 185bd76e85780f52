#!/bin/sh
# Runs the op tests on every OpenCL device of this machine, the CPU path, and two CPU drivers that need a
# hand: Mesa's rusticl on llvmpipe, and Intel's runtime from its Python packages (pip install intel-opencl-rt
# intel-cmplr-lib-rt, into the Python found or a virtual environment named by WEFT_INTEL). Prints a table.
#
#   tests/op-everywhere.sh [BUILD] [op_test options, e.g. --quick]
#
# Exit code 0: all passed. Logs stay in the folder named at the end.
set -u
build=${1:-build}
test $# -gt 0 && shift
op_test=$build/tests/op/op_test
test -x "$op_test" || { echo "$op_test is missing: build first"; exit 2; }
logs=$(mktemp -d)
export RUSTICL_ENABLE="${RUSTICL_ENABLE:-llvmpipe}"
bad=0

row() { printf '%-14s %-44s %-8s %6s %6s  %s\n' "$@"; }

# row_of ID LOG CODE
row_of() {
    name=$(sed -n '1s/^[^(]*(\(.*\)), seed.*/\1/p' "$2")
    last=$(grep ' cases, .* runs, .* failed$' "$2" | tail -1)
    runs=$(echo "$last" | sed -n 's/.* cases, \(.*\) runs.*/\1/p')
    failed=$(echo "$last" | sed -n 's/.* runs, \(.*\) failed$/\1/p')
    case $3 in 0) verdict=passed ;; 77) verdict=absent ;; *) verdict=FAILED bad=1 ;; esac
    row "$1" "${name:-?}" "$verdict" "${runs:--}" "${failed:--}" "$(date +%F)"
}

# check LABEL DEVICE options...
check() {
    label=$1 device=$2
    shift 2
    log=$logs/$(echo "$label" | tr ':/ ' '___')
    "$op_test" "$device" "$@" >"$log" 2>&1
    row_of "$label" "$log" $?
}

intel_library() {
    for root in "${WEFT_INTEL:-}" "$(python3 -c 'import sys; print(sys.prefix)' 2>/dev/null)"; do
        test -n "$root" && test -e "$root/lib/libintelocl.so" && echo "$root/lib/libintelocl.so" && return
    done
}

row device name result runs failed date
check cpu cpu "$@"
"$op_test" --devices | grep '^opencl' >"$logs/devices"
while read -r id; do check "$id" "$id" "$@"; done <"$logs/devices"
intel=$(intel_library)
if test -n "$intel"; then
    mkdir "$logs/icd" && echo "$intel" >"$logs/icd/intel.icd"
    export OCL_ICD_VENDORS="$logs/icd" LD_LIBRARY_PATH="$(dirname "$intel"):${LD_LIBRARY_PATH:-}"
    check "intel cpu" first-opencl "$@"
fi
echo "logs: $logs"
exit $bad
