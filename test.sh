#!/bin/bash
# Builds weft in several ways and runs every test; the last line is `N passed, N failed, N skipped`.
#
#   ./test.sh               everything, at most 20 minutes on 2 cores
#   ./test.sh --long        fuzzing for an hour each, and soaks of half an hour and an hour
#   ./test.sh asan fuzz     only these stages: plain, asan, tsan, cpu-only, fuzz
#
# All builds, logs and caches are in build-test/. Where CI is set in the environment, missing test data is a
# failure; elsewhere a counted skip.
set -uo pipefail
cd "$(dirname "$0")"

fuzz_seconds=30
stages=()
for word in "$@"; do
    case $word in
    --long)
        fuzz_seconds=3600
        export WEFT_TEST_LONG=1
        ;;
    plain | asan | tsan | cpu-only | fuzz) stages+=("$word") ;;
    -h | --help)
        sed -n '2,9s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "test.sh: unknown word $word; see ./test.sh --help" >&2
        exit 2
        ;;
    esac
done
[ ${#stages[@]} -gt 0 ] || stages=(plain asan tsan cpu-only fuzz)

out=$PWD/build-test
mkdir -p "$out/log" "$out/cache"
# Nothing from outside may change what the tests see, and nothing of theirs stays outside.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS OCL_ICD_VENDORS WEFT
export XDG_CACHE_HOME=$out/cache POCL_CACHE_DIR=$out/cache/pocl
# Not detect_stack_use_after_return: with it gcc 12 misaligns 64-byte vectors on the stack, seen as SEGV in SIMD code.
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp

passed=0 failed=0 skipped=0
began=$SECONDS

end() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
    exit
}

# --- one check after the other --------------------------------------------------------------------

log_of() { echo "$out/log/${1//[^[:alnum:]]/-}.log"; }

# Counts a check that has ended: verdict NAME EXIT-CODE SECONDS; on failure the end of its log is shown.
verdict() {
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "ok    $1 ($3 s)"
    else
        failed=$((failed + 1))
        echo "FAIL  $1 ($3 s, exit code $2); the end of $(log_of "$1"):"
        tail -n 30 "$(log_of "$1")" | sed 's/^/      /'
    fi
    return "$2"
}

# A check of our own: check NAME COMMAND...; the output goes to a log.
check() {
    local name=$1 start=$SECONDS
    shift
    "$@" >"$(log_of "$name")" 2>&1
    verdict "$name" $? $((SECONDS - start))
}

# The same beside what comes next; it is counted by await_all.
beside_names=() beside_pids=() beside_starts=()
beside() {
    local name=$1
    shift
    "$@" >"$(log_of "$name")" 2>&1 &
    beside_names+=("$name") beside_pids+=($!) beside_starts+=($SECONDS)
}

await_all() {
    for i in "${!beside_pids[@]}"; do
        wait "${beside_pids[$i]}"
        verdict "${beside_names[$i]}" $? $((SECONDS - beside_starts[i]))
    done
    beside_names=() beside_pids=() beside_starts=()
}

# A build without warnings: compile FOLDER MESON-OPTIONS... [-- TARGET-PATTERN]
compile() {
    local folder=$out/$1 options=() targets=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
    if [ -f "$folder/build.ninja" ]; then
        meson configure "$folder" "${options[@]}" || return
    else
        meson setup "$folder" "${options[@]}" || return
    fi
    if [ $# -gt 1 ]; then
        ninja -C "$folder" build.ninja
        mapfile -t targets < <(ninja -C "$folder" -t targets all | sed 's/: .*//' | grep -E "$2")
    fi
    ninja -C "$folder" "${targets[@]}" >"$folder/compile.log" 2>&1
    local rc=$?
    cat "$folder/compile.log"
    [ $rc = 0 ] || return $rc
    if grep -q 'warning:' "$folder/compile.log"; then
        echo "the build has warnings"
        return 1
    fi
}

# Runs tests of a build: run_tests TITLE FOLDER [WRAPPER...] -- [NAME-PATTERN]; without a pattern, all.
run_tests() {
    local title=$1 folder=$out/$2 wrapper=() start=$SECONDS
    shift 2
    while [ "$1" != -- ]; do wrapper+=("$1"); shift; done
    local pattern=${2:-} names=() log=$out/log/${title//[^[:alnum:]]/-}.log
    if [ -n "$pattern" ]; then
        mapfile -t names < <(meson test -C "$folder" --list 2>/dev/null | sed -n 's/^weft[^/]* \/ //p; /^[a-z]/{/ \/ /!p}' |
            grep -E "$pattern" | sort -u)
        if [ ${#names[@]} = 0 ]; then
            check "$title: there are tests" false
            return
        fi
    fi
    rm -f "$folder/meson-logs/testlog.json"
    "${wrapper[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs -t 5 "${names[@]}" >"$log" 2>&1
    local ok=0 bad=1 skip=0 bad_names="no test ran"
    if [ -f "$folder/meson-logs/testlog.json" ]; then
        read -r ok bad skip bad_names < <(python3 tests/count.py "$folder/meson-logs/testlog.json")
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    if [ "$bad" = 0 ] && [ $((ok + skip)) -gt 0 ]; then
        echo "ok    $title: $ok passed, $skip skipped ($((SECONDS - start)) s)"
    else
        echo "FAIL  $title: $bad failed: $bad_names ($((SECONDS - start)) s); the end of $log:"
        tail -n 40 "$log" | sed 's/^/      /'
    fi
}

# Thread sanitizer needs its address ranges free; some kernels put libraries there unless told not to.
plain_addresses=()
setarch "$(uname -m)" -R true 2>/dev/null && plain_addresses=(setarch "$(uname -m)" -R)

# --- fuzzing ---------------------------------------------------------------------------------------

# Looks for new failures for a while, beginning from the seeds that belong to the target.
fuzz() {
    local target=$1 name=${1##*/fuzz_}
    local folder=$out/corpus/$name
    mkdir -p "$folder"
    cp "$out/fuzz/tests/fuzz/$name"_*.seed "$folder" 2>/dev/null
    "$target" -max_total_time="$fuzz_seconds" -rss_limit_mb=2048 -timeout=20 -max_len=8192 \
        -artifact_prefix="$out/log/fuzz-$name-" -print_final_stats=1 "$folder"
}

fuzz_all() {
    local target found=1
    for target in "$out"/fuzz/tests/fuzz/fuzz_*; do
        [ -x "$target" ] && [ -f "$target" ] || continue
        beside "fuzz ${target##*/fuzz_}, $fuzz_seconds s beside the others" fuzz "$target"
        found=0
    done
    [ $found = 0 ] || check "fuzz: there are targets" false
}

# --- leaks -----------------------------------------------------------------------------------------

leaks() {
    valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,possible \
        --errors-for-leak-kinds=definite "$out/cpu-only/src/cli/weft" run --device cpu -t 1 -q -p "One day" -n 3
}

# --- stages ----------------------------------------------------------------------------------------

stage_plain() {
    check "build" compile plain || return
    run_tests "tests" plain --
    if [ -n "${WEFT_TEST_LONG:-}" ]; then
        check "soak of half an hour" env WEFT="$out/plain/src/cli/weft" python3 tests/cli/soak.py 1800
        check "soak of the server, an hour" env WEFT="$out/plain/src/cli/weft" python3 tests/serve/soak.py 3600
    fi
}

# Other OpenCL drivers leak while they are loaded, which would be counted against every test.
only_pocl() {
    local icd=/etc/OpenCL/vendors/pocl.icd
    if [ -f $icd ]; then export OCL_ICD_VENDORS=$icd; fi
}

sanitized=(-Dbuildtype=debugoptimized -Db_lundef=false)

stage_asan() {
    check "build with address and undefined-behaviour sanitizers" compile asan "${sanitized[@]}" \
        -Db_sanitize=address,undefined || return
    # Not the soak of the program: the sanitizer keeps freed memory, which looks like a leak. Nor what spends its time
    # in drivers and kernels, which have no sanitizer; tokenizers have unit tests and a fuzzer.
    only_pocl
    run_tests "tests with address and undefined-behaviour sanitizers" asan -- \
        '^(unit |fault |cli (chat|run|measure|bench_)|serve (bad|life|many|protocol)|batch_invariance )'
    unset OCL_ICD_VENDORS
    # At 3 requests a second it takes little from the stages beside which it runs.
    beside "soak of the server with these sanitizers, beside what follows" \
        env WEFT="$out/asan/src/cli/weft" python3 tests/serve/soak.py 60 3
}

stage_tsan() {
    check "build with the thread sanitizer" compile tsan "${sanitized[@]}" -Db_sanitize=thread \
        -Dopencl=disabled -Dopenblas=disabled || return
    run_tests "concurrency with the thread sanitizer" tsan "${plain_addresses[@]}" -- \
        '^(unit (cpu_queue|engine|dev_prepare|file_map)|fault null|cli run|serve many)$'
}

stage_cpu-only() {
    check "build without OpenCL" compile cpu-only -Dopencl=disabled || return
    run_tests "tests without OpenCL" cpu-only -- '^(golden cpu|cli [^or]|cli run|layers)'
    check "no leak after load, run and close" leaks
}

stage_fuzz() {
    CC=clang check "build of the fuzzers" compile fuzz -Dbuildtype=debugoptimized -Dopencl=disabled -Dfuzz=true \
        -- '^tests/fuzz/(fuzz_[a-z0-9_]*|[a-z0-9_]*\.seed)$' && fuzz_all
}

# --- what Debian has no package of ------------------------------------------------------------------

# The official client, for tests of the server that are skipped without it.
openai_client() {
    local site=$out/site
    python3 -c 'import openai' 2>/dev/null && return
    if [ ! -d "$site" ]; then
        rm -rf "$site.part"
        if ! python3 -m pip install -q --disable-pip-version-check --target "$site.part" openai >"$out/log/pip.log" 2>&1; then
            echo "test.sh: the Python package openai could not be installed, its tests are skipped; see $out/log/pip.log" >&2
            return
        fi
        mv "$site.part" "$site"
    fi
    export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
}

# --- all of it -------------------------------------------------------------------------------------

./setup.sh --test || { failed=1; end; }
openai_client
for stage in "${stages[@]}"; do "stage_$stage"; done
await_all
echo "total $((SECONDS - began)) s"
end
