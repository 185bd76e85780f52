#!/bin/bash
# Builds weft in several ways and runs its tests; the last line is `N passed, N failed, N skipped`.
#
#   ./test.sh               the short tier, at most 20 minutes on 2 cores; it says what it leaves out
#   ./test.sh --more        the rest: every file of kernels with every format, every kernel with what is typical of them, longer soaks and fuzzing
#   ./test.sh --all         both, as continuous integration runs them
#   ./test.sh --long        both, with fuzzing for an hour each, soaks of half an hour and an hour, and images of containers
#   ./test.sh asan fuzz     only these stages of a tier: plain, asan, tsan, cpu-only, fuzz
#
# All builds, logs and caches are in build-test/. Where CI is set in the environment, what is skipped is a failure,
# unless it needs other hardware; elsewhere it is counted. What is skipped is named at the end.
set -uo pipefail
cd "$(dirname "$0")"

python=/usr/bin/python3 # of all tests, whatever python3 comes first on the PATH
short=true more=false long=false
stages=()
for word in "$@"; do
    case $word in
    --more) short=false more=true ;;
    --all) more=true ;;
    --long) more=true long=true ;;
    plain | asan | tsan | cpu-only | fuzz) stages+=("$word") ;;
    -h | --help)
        sed -n '2,11s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "test.sh: unknown word $word; see ./test.sh --help" >&2
        exit 2
        ;;
    esac
done
[ ${#stages[@]} -gt 0 ] || stages=(plain asan tsan cpu-only fuzz)
# Each once; the longer tier has nothing for the thread sanitizer and for the build without OpenCL.
mapfile -t stages < <(printf '%s\n' "${stages[@]}" | awk -v short=$short '!seen[$0]++ && (short == "true" || $0 !~ /^(tsan|cpu-only)$/)')

fuzz_seconds=30 soak_seconds=60
if $more; then fuzz_seconds=60 soak_seconds=120; fi
if $long; then fuzz_seconds=3600; fi

out=$PWD/build-test
rm -rf "$out/cache" # stages may share what they compiled, runs may not
mkdir -p "$out/log" "$out/cache"
# Nothing from outside may change what the tests see, and nothing of theirs stays outside.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS OCL_ICD_VENDORS WEFT WEFT_CLBUILD PYTHONPATH PYTHONHOME
export XDG_CACHE_HOME=$out/cache POCL_CACHE_DIR=$out/cache/pocl
# Not detect_stack_use_after_return: with it gcc 12 misaligns 64-byte vectors on the stack, seen as SEGV in SIMD code.
# Not use_sigaltstack: PoCL's LLVM installs a signal stack of its own, which where the kernel wants little (no AMX) is
# larger than the sanitizer's, and the sanitizer unmaps the wrong one when a thread ends.
# Not intercept_memmem: it looks at all that is left of a text in each search, which is quadratic (2 s become 80).
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0:use_sigaltstack=0:intercept_memmem=0
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp

passed=0 failed=0 skipped=0
named=()    # what was skipped, and why
broken=()   # what failed
left_out=() # what only the longer tier has
began=$SECONDS

list() { # list TITLE WORD...
    [ $# = 1 ] || { echo "$1:" && shift && printf '      %s\n' "$@"; }
}

end() {
    list "failed" "${broken[@]}" # again here, where a log that is cut in the middle still has them
    list "skipped" "${named[@]}"
    list "left out here, in ./test.sh --more" "${left_out[@]}"
    echo "total $((SECONDS - began)) s"
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
        broken+=("$1")
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

# Begins the builds of all stages, one after the other. Each but the first takes what the tests of the stages before leave of the cores: tests
# wait, for each other and for clients, and the last of a stage run alone.
build_pids=()
build_all() {
    local stage before=''
    for stage in "${stages[@]}"; do
        {
            if [ -n "$before" ]; then
                renice -n 19 "$BASHPID" >/dev/null
                tail --pid="$before" -f /dev/null
            fi
            "build_$stage"
        } >"$(log_of "build $stage")" 2>&1 &
        build_pids+=($!) before=$!
    done
}

# Waits for the build of a stage, and counts it with the seconds that it was waited for: built STAGE
built() {
    local i start=$SECONDS
    for i in "${!stages[@]}"; do [ "${stages[i]}" != "$1" ] || break; done
    wait "${build_pids[i]}"
    verdict "build $1" $? $((SECONDS - start))
}

# A build without warnings: compile FOLDER MESON-OPTIONS... [-- TARGET-PATTERN]
compile() {
    local folder=$out/$1 options=("-Dpython=$python") targets=()
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

# Names of a build's tests, the longest first: meson runs tests that are named in the order of their names. names_of FOLDER [MESON-OPTION...]
names_of() {
    meson test -C "$out/$1" --list "${@:2}" 2>/dev/null | sed -n 's/^weft[^/]* \/ //p; /^[a-z]/{/ \/ /!p}' | awk '!seen[$0]++'
}

# Runs tests of a build: run_tests TITLE FOLDER [WRAPPER...] -- [--suite SUITE | --no-suite SUITE | NAME-PATTERN]; else all.
run_tests() {
    local title=$1 folder=$out/$2 wrapper=() start=$SECONDS
    shift 2
    while [ "$1" != -- ]; do wrapper+=("$1"); shift; done
    shift
    local which=("$@") log
    log=$(log_of "$title")
    if [ $# = 1 ]; then
        mapfile -t which < <(names_of "${folder##*/}" | grep -E "$1")
        if [ ${#which[@]} = 0 ]; then
            check "$title: there are tests" false
            return
        fi
    fi
    rm -f "$folder/meson-logs/testlog.json"
    "${wrapper[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs -t 5 "${which[@]}" >"$log" 2>&1
    count_tests "$title" "$folder/meson-logs/testlog.json" "$log" $((SECONDS - start))
}

# The same with a pattern of each tier's names, in one run where both are wanted, so that no core waits in between, and WHAT is named where the
# longer one is left out: run_tiers TITLE FOLDER SHORT-PATTERN LONGER-PATTERN WHAT
run_tiers() {
    local pattern=$3
    if ! $short; then pattern=$4; elif $more; then pattern="$3|$4"; else left_out+=("$5"); fi
    run_tests "$1" "$2" -- "$pattern"
}

# Adds up what meson's log says: count_tests TITLE TESTLOG LOG SECONDS
count_tests() {
    local ok=0 bad=1 skip=0 bad_names=() skip_names=() said
    if [ -f "$2" ] && said=$("$python" tests/count.py "$2"); then
        read -r ok bad skip <<<"$said"
        mapfile -t bad_names < <(sed -n 's/^failed //p' <<<"$said")
        mapfile -t skip_names < <(sed -n 's/^skipped //p' <<<"$said")
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    named+=("${skip_names[@]}")
    if [ "$bad" = 0 ] && [ $((ok + skip)) -gt 0 ]; then
        echo "ok    $1: $ok passed, $skip skipped ($4 s)"
    else
        echo "FAIL  $1: $bad failed ($4 s); the end of $3:"
        tail -n 40 "$3" | sed 's/^/      /'
        list "FAIL  $1" "${bad_names[@]:-no test ran}"
        mapfile -t -O ${#broken[@]} broken < <(sed -n "s/^failed \(.*\)/\1, $1:/p; s/^said /    /p" <<<"$said")
    fi
}

# Thread sanitizer needs its address ranges free; some kernels put libraries there unless told not to.
plain_addresses=()
setarch "$(uname -m)" -R true 2>/dev/null && plain_addresses=(setarch "$(uname -m)" -R)

# --- fuzzing ---------------------------------------------------------------------------------------

# Looks for new failures for a while, beginning with the inputs that are kept.
fuzz() { tests/fuzz.sh --build "$out/fuzz" --dry --seconds "$fuzz_seconds" "$1"; }

fuzz_all() {
    local target found=1
    for target in "$out"/fuzz/tests/fuzz/fuzz_*; do
        [ -x "$target" ] && [ -f "$target" ] || continue
        beside "fuzz ${target##*/fuzz_}, $fuzz_seconds s beside the others" fuzz "${target##*/fuzz_}"
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

build_plain() { compile plain; }

stage_plain() {
    built plain || return
    if $short && $more; then
        run_tests "tests" plain -- --no-suite part # of tests of the longer tier
    elif $more; then
        run_tests "tests that take longer" plain -- --suite more
    else
        run_tests "tests" plain -- --no-suite more
        mapfile -t -O ${#left_out[@]} left_out < <(names_of plain --suite more)
    fi
    if $long; then
        check "images of containers" tests/packages/image.sh "$out/image"
        check "soak of half an hour" env WEFT="$out/plain/src/cli/weft" "$python" tests/cli/soak.py 1800
        check "soak of the server, an hour" env WEFT="$out/plain/src/cli/weft" "$python" tests/serve/soak.py --segment 3600
    fi
}

# Other OpenCL drivers leak while they are loaded, which would be counted against every test.
only_pocl() {
    local icd=/etc/OpenCL/vendors/pocl.icd
    if [ -f $icd ]; then export OCL_ICD_VENDORS=$icd; fi
}

sanitized=(-Dbuildtype=debugoptimized -Db_lundef=false)

build_asan() { compile asan "${sanitized[@]}" -Db_sanitize=address,undefined; }

stage_asan() {
    built asan || return
    # Not the soak of the program: the sanitizer keeps freed memory, which looks like a leak. Nor what spends its time
    # in drivers and kernels, which have no sanitizer; tokenizers have unit tests and a fuzzer.
    only_pocl
    run_tiers "tests with address and undefined-behaviour sanitizers" asan \
        '^(unit |fault |cli (chat|run|measure|bench_)|serve (bad|broken|fair|framing|front|life|many|model_file|protocol)|batch_invariance )' \
        '^(bad models|golden opencl|cli (tokenize|usage)|serve (crowd|fields|meaning|memory|proxy))$' \
        "with these sanitizers: bad models, golden opencl, cli tokenize, cli usage, serve crowd, fields, meaning, memory and proxy"
    unset OCL_ICD_VENDORS
    # Of SIMD kernels the sanitizers see nothing (cpu/meson.build), of their sources at the plain level all: each op with each format.
    if $short; then check "CPU kernels with these sanitizers" "$out/asan/tests/op/op_test" cpu --tiny; fi
    # At 3 requests a second it takes little from the stages beside which it runs.
    beside "soak of the server with these sanitizers, $soak_seconds s beside what follows" \
        env WEFT="$out/asan/src/cli/weft" "$python" tests/serve/soak.py --segment "$soak_seconds" --rate 3
    $more || left_out+=("the soak of the server with sanitizers: 120 s in place of $soak_seconds s")
}

tsan_units='cpu_queue|engine|engine_api|verify_bind|file_map|weights'

build_tsan() {
    compile tsan "${sanitized[@]}" -Db_sanitize=thread -Dopencl=disabled -Dopenblas=disabled \
        -- "^(src/cli/weft|tests/unit/unit|tests/fault/test_null_faults|tests/op/op_test)\$"
}

# Kernels at the plain level, as above: all of them, and with work for several threads those whose threads share what they prepare.
race_kernels() {
    local op_test=$out/tsan/tests/op/op_test
    "$op_test" cpu --tiny && "$op_test" cpu --quick --op attention --variant pages-c && "$op_test" cpu --quick --op gemm --variant rows-c
}

stage_tsan() {
    built tsan || return
    run_tests "concurrency with the thread sanitizer" tsan "${plain_addresses[@]}" -- \
        "^(unit ($tsan_units)|fault null|cli run|serve (many|framing|front))\$"
    export -f race_kernels && export out
    check "CPU kernels with the thread sanitizer" "${plain_addresses[@]}" bash -c race_kernels
    # Steps on the caller's thread, beside that of the engine. Not unit ablation, which takes minutes here.
    check "ablation with the thread sanitizer" "${plain_addresses[@]}" "$out/tsan/src/cli/weft" bench ablation --device cpu -t 2 \
        --max-num-batched-tokens 64 --max-num-seqs 8 -r 3
}

build_cpu-only() { compile cpu-only -Dopencl=disabled -Dcbc=disabled; }

stage_cpu-only() {
    built cpu-only || return
    # Not cli bench_paper and logits cpu, which compute on the CPU: in this build with the same objects as in the first. Nor cli readme, of texts.
    run_tests "tests without OpenCL and CBC" cpu-only -- \
        '^(golden cpu|unit (shipped_plans|plan_worlds)|cli (usage|run|chat|measure|plan|kernels|settings|sampling|bench_serve|bench_throughput|terminal|install)|layers)'
    check "no leak after load, run and close" leaks
}

build_fuzz() {
    CC=clang compile fuzz -Dbuildtype=debugoptimized -Dopencl=disabled -Dfuzz=true -- '^tests/fuzz/(fuzz_[a-z0-9_]*|[a-z0-9_]*\.seed)$'
}

stage_fuzz() {
    built fuzz || return
    run_tests "inputs kept from fuzzing" fuzz -- --suite fuzz
    fuzz_all
    $more || left_out+=("fuzzing: 60 s a target in place of $fuzz_seconds s")
}

# --- what Debian has no package of ------------------------------------------------------------------

# The official client, for tests of the server that are skipped without it.
openai_client() {
    local site=$out/site
    "$python" -c 'import openai' 2>/dev/null && return
    if [ ! -d "$site" ]; then
        rm -rf "$site.part"
        if ! "$python" -m pip install -q --disable-pip-version-check --target "$site.part" openai >"$out/log/pip.log" 2>&1; then
            echo "test.sh: the Python package openai could not be installed, its tests are skipped; see $out/log/pip.log" >&2
            return
        fi
        mv "$site.part" "$site"
    fi
    export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
}

# --- all of it -------------------------------------------------------------------------------------

run_stages() {
    local stage
    build_all
    for stage in "${stages[@]}"; do "stage_$stage"; done
    await_all
    end
}

# In a process group of their own, which ends as a whole: what runs beside hears of no signal otherwise, and a shell runs no trap before what it
# has in front ends.
stages_in_a_group() {
    local signal
    set -m
    run_stages &
    set +m
    for signal in 1 2 15; do trap "trap '' INT TERM HUP; kill -- -$! 2>/dev/null; wait; exit $((128 + signal))" "$signal"; done
    wait "$!"
}

setup=(--test)
if $more; then setup+=(--more); fi
./setup.sh "${setup[@]}" || { failed=1; end; }
openai_client
stages_in_a_group
