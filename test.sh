#!/bin/bash
# Builds weft in several ways and runs its tests; the last line is `N passed, N failed, N skipped`.
#
#   ./test.sh               every kind of check, at most 40 minutes on 2 cores, as continuous integration runs it (`--all` is the same): a test runs in one build,
#                           and tests that take long run a third of their cases where nothing that they test has changed
#   ./test.sh --long        all cases of all tests, with published models, fuzzing for an hour each, soaks of half an hour and an hour, and images of containers
#   ./test.sh asan fuzz     only these stages: plain, asan, tsan, fuzz, and real, published models and Python clients, which are fetched and stay in build-test/real (1.3 GB)
#   ./test.sh quick NAME... while one writes: builds what the tests need whose names have one of these words, and runs them up to the first that fails
#
# Which cases a run has follows from the commit, and is printed; WEFT_TEST_TURN=N in the environment chooses them instead, and WEFT_TEST_BASE=COMMIT says since
# when changes count. All builds, logs and caches are in
# build-test/. Where CI is set in the environment, what is skipped is a failure, unless it needs other hardware; elsewhere it is counted. What is skipped is
# named at the end.
set -uo pipefail
cd "$(dirname "$0")"

python=/usr/bin/python3 # of all tests, whatever python3 comes first on the PATH
long=false
stages=()
words=()
for word in "$@"; do
    case ${words[0]:-}$word in
    --all) ;;
    --long) long=true ;;
    plain | asan | tsan | fuzz | real) stages+=("$word") ;;
    quick | quick?*) words+=("$word") ;;
    -h | --help)
        sed -n '2,15s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "test.sh: unknown word $word; see ./test.sh --help" >&2
        exit 2
        ;;
    esac
done
[ ${#stages[@]} -gt 0 ] || { stages=(plain asan tsan fuzz); ! $long || stages+=(real); }
mapfile -t stages < <(printf '%s\n' "${stages[@]}" | awk '!seen[$0]++') # each once

fuzz_seconds=60 soak_seconds=60
if $long; then fuzz_seconds=3600; fi

out=$PWD/build-test
[ ${#words[@]} -gt 0 ] || rm -rf "$out/cache" # stages share what they compiled, runs do not
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
# die_after_fork=0: a child of fork has threads of its own in a test (unit cpu_queue).
export TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp

passed=0 failed=0 skipped=0
named=()    # what was skipped, and why
broken=()   # what failed
began=$SECONDS

list() { # list TITLE WORD...
    [ $# = 1 ] || { echo "$1:" && shift && printf '      %s\n' "$@"; }
}

end() {
    list "skipped" "${named[@]}"
    list "failed" "${broken[@]}" # again, and last: a log that is cut still has its end
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

# Runs tests of a build: run_tests TITLE FOLDER [WRAPPER...] -- NAME-PATTERN | --suite SUITE | -f FILTER, a command that reads names and prints those to run.
run_tests() {
    local title=$1 folder=$out/$2 wrapper=() start=$SECONDS
    shift 2
    while [ "$1" != -- ]; do wrapper+=("$1"); shift; done
    shift
    local which=("$@") log
    log=$(log_of "$title")
    if [ "$1" != --suite ]; then
        [ "$1" = -f ] || set -- -f grep -E "$1"
        mapfile -t which < <(names_of "${folder##*/}" | "${@:2}")
        if [ ${#which[@]} = 0 ]; then
            check "$title: there are tests" false
            return
        fi
    fi
    rm -f "$folder/meson-logs/testlog.json"
    "${wrapper[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs -t 5 "${which[@]}" >"$log" 2>&1
    count_tests "$title" "$folder/meson-logs/testlog.json" "$log" $((SECONDS - start))
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

# --- which cases a run has --------------------------------------------------------------------------

# The state that this one is compared with: $WEFT_TEST_BASE, where it left its upstream branch or origin/main, or else 20 commits ago.
base_of() {
    local other found
    for other in ${WEFT_TEST_BASE:-} '@{upstream}' origin/main origin/HEAD; do
        found=$(git merge-base HEAD "$other" 2>/dev/null) || continue
        [ "$found" = "$(git rev-parse HEAD)" ] || { echo "$found"; return; }
    done
    git rev-parse --verify --quiet HEAD~20 2>/dev/null || git rev-list --max-parents=0 HEAD 2>/dev/null | tail -n 1
}

# Have these files changed since then? touched PATTERN
touched() { grep -qE "$1" <<<"$changed"; }

# Sets turn, which rotates what a run has a part of, parts of whose tests (tests/support/part.h), and whole_packages.
choose_cases() {
    local commit base
    commit=$(git rev-parse --short=8 HEAD 2>/dev/null) || commit=0 # of an archive
    turn=${WEFT_TEST_TURN:-$((16#$commit % 12))}
    parts='' whole_packages=true changed=''
    $long && return
    if base=$(base_of) && [ -n "$base" ]; then
        changed=$(git diff --name-only "$base"; git ls-files --others --exclude-standard)
        touched '^(cl/|src/(cl|dev|tensor|verify|select)/|tests/(op|support)/)' || parts+=" cl=$((turn % 3))/3"
        touched '^(cpu/|src/(tensor|dev|verify|sample)/|tests/(op|support)/)' || parts+=" cpu=$((turn % 3))/3"
        touched '^(src/(model|exec|plan|mem|tensor|verify)/|cl/|tests/(golden|model|support)/)' || parts+=" model=$((turn % 3))/3"
        touched '^(meson(\.build|_options\.txt)|setup\.sh)$|^(debian|packaging|python|tests/packages)/' || whole_packages=false
    fi
    echo "turn $turn of commit $commit, changes since ${base:0:8}: parts of long tests:${parts:- none, all is whole}" \
        "$($whole_packages || echo 'packages=1/3')(the same again: WEFT_TEST_TURN=$turn)"
}

# --- stages ----------------------------------------------------------------------------------------

# Which build a test runs in. What says how the server, the program and the library behave runs with sanitizers, and a quarter of it, by turns, in the plain
# build; the rest runs in the plain build: what spends its time in drivers and kernels, which have no sanitizer, or in commands that other tests run with
# them, what measures memory, which the sanitizers keep when it is freed, and what builds, installs or preloads something.
sanitized_tests='^(unit|fault|cli|serve) '
plain_tests='^(cli (soak|api|static|install|pages|readme|ops|bench_paper)|serve (soak|kill|large|signals|webui|markdown|chats))$'
# Three builds of all that there is, of which a run has one where nothing about them has changed.
builds_of_all='^(packages deb|packages dist|cli static)$'

# Its place in the turns: turn_of NAME N
turn_of() {
    local sum
    sum=$(cksum <<<"$1")
    echo $(((${sum%% *} + turn) % $2))
}

names_for() { # names_for asan|plain: a filter of names
    local name
    while read -r name; do
        if [[ $name =~ $builds_of_all ]] && ! $whole_packages; then
            case "$((turn % 3)) $name" in "0 packages deb" | "1 packages dist" | "2 cli static") [ "$1" = asan ] || echo "$name" ;; esac
        elif [[ $name =~ $sanitized_tests && ! $name =~ $plain_tests ]] && [ "$(turn_of "$name" 4)" != 0 ]; then
            [ "$1" = plain ] || echo "$name"
        elif [ "$1" = plain ] || { $long && [[ $name =~ $sanitized_tests && ! $name =~ $plain_tests ]]; }; then
            echo "$name"
        fi
    done
}

build_plain() { compile plain; }

stage_plain() {
    built plain || return
    WEFT_TEST_PART=$parts run_tests "tests" plain -- -f names_for plain
    if $long; then
        check "images of containers" tests/packages/image.sh "$out/image"
        check "a million requests over the tiers of the KV cache, and a thousand kills" env WEFT_KV_ROUNDS=24 bash -c \
            "'$out/plain/tests/unit/unit' tiers && '$out/plain/tests/unit/unit' disk"
        check "a thousand kills of a server with KV on disk" env WEFT_KV_ROUNDS=250 WEFT="$out/plain/src/cli/weft" "$python" tests/serve/test_kv.py \
            -k test_kills
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
    only_pocl
    run_tests "tests with address and undefined-behaviour sanitizers" asan -- -f names_for asan
    unset OCL_ICD_VENDORS
    check "no leak after load, run and close" "$out/asan/src/cli/weft" run --device cpu -t 1 -q -p "One day" -n 3
    # Of SIMD kernels the sanitizers see nothing (cpu/meson.build), of their sources at the plain level all: each op with each format.
    check "CPU kernels with these sanitizers" "$out/asan/tests/op/op_test" cpu --tiny
    # At 3 requests a second it takes little from the stages beside which it runs.
    beside "soak of the server with these sanitizers, $soak_seconds s beside what follows" \
        env WEFT="$out/asan/src/cli/weft" "$python" tests/serve/soak.py --segment "$soak_seconds" --rate 3
}

# This build is also the one without OpenCL, OpenBLAS and CBC.
tsan_units='cpu_queue|engine|engine_api|engine_beside|verify_bind|file_map|weights|null_faults|comm|ranks|draft_model'
without_units='shipped_plans|plan_worlds'

build_tsan() {
    compile tsan "${sanitized[@]}" -Db_sanitize=thread -Dopencl=disabled -Dopenblas=disabled -Dcbc=disabled \
        -- "^(src/cli/weft|tests/unit/unit|tests/op/op_test|tests/golden/golden)\$"
}

# Kernels at the plain level, as above: all of them, and with work for several threads those whose threads share what they prepare.
race_kernels() {
    local op_test=$out/tsan/tests/op/op_test
    "$op_test" cpu --tiny && "$op_test" cpu --quick --op attention --variant pages-c && "$op_test" cpu --quick --op gemm --variant rows-c
}

stage_tsan() {
    built tsan || return
    run_tests "concurrency with the thread sanitizer, and what is without OpenCL and CBC" tsan "${plain_addresses[@]}" -- \
        "^(unit ($tsan_units|$without_units)|golden cpu|cli (run|usage|plan|kernels|settings)|serve (many|framing|front))\$"
    export -f race_kernels && export out
    check "CPU kernels with the thread sanitizer" "${plain_addresses[@]}" bash -c race_kernels
    # Steps on the caller's thread, beside that of the engine. Not unit ablation, which takes minutes here.
    check "ablation with the thread sanitizer" "${plain_addresses[@]}" "$out/tsan/src/cli/weft" bench ablation --device cpu -t 2 \
        --max-num-batched-tokens 64 --max-num-seqs 8 -r 3
}

build_fuzz() {
    CC=clang compile fuzz -Dbuildtype=debugoptimized -Dopencl=disabled -Dfuzz=true -- '^tests/fuzz/(fuzz_[a-z0-9_]*|[a-z0-9_]*\.seed)$'
}

stage_fuzz() {
    built fuzz || return
    run_tests "inputs kept from fuzzing" fuzz -- --suite fuzz
    fuzz_all
}

build_real() { compile plain; }

stage_real() {
    built real || return
    run_tests "published models" plain -- --suite real
}

# --- what Debian has no package of ------------------------------------------------------------------

# The official clients, for tests of the server that are skipped without them.
official_clients() {
    local site=$out/site names=(openai anthropic ollama)
    "$python" -c 'import openai, anthropic, ollama' 2>/dev/null && return
    if [ ! -d "$site/${names[-1]}" ]; then
        rm -rf "$site.part"
        if "$python" -m pip install -q --disable-pip-version-check --target "$site.part" "${names[@]}" >"$out/log/pip.log" 2>&1; then
            rm -rf "$site" && mv "$site.part" "$site"
        else
            echo "test.sh: the Python packages ${names[*]} could not be installed, tests without them are skipped; see $out/log/pip.log" >&2
        fi
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

# The plain build, incrementally; meson builds what these tests need. A developer's own folder `build` serves as well.
quick() {
    local folder=$out/plain word names=()
    [ -f "$folder/build.ninja" ] || [ ! -f build/build.ninja ] || folder=$PWD/build
    [ -f "$folder/build.ninja" ] || meson setup "$folder" "-Dpython=$python" >"$(log_of "setup quick")" || return
    for word; do mapfile -t -O ${#names[@]} names < <(meson test -C "$folder" --list 2>/dev/null | sed -n 's/^.* \/ //p' | grep -E -- "$word"); done
    if [ ${#names[@]} = 0 ]; then
        echo "test.sh: no test has one of these words: $*; meson test -C $folder --list names all" >&2
        return 2
    fi
    mapfile -t names < <(printf '%s\n' "${names[@]}" | awk '!seen[$0]++')
    meson test -C "$folder" --print-errorlogs --maxfail 1 -t 5 "${names[@]}"
    local rc=$?
    [ -f "$folder/meson-logs/testlog.json" ] && "$python" tests/count.py "$folder/meson-logs/testlog.json" |
        sed -n '1s/\([0-9]*\) \([0-9]*\) \([0-9]*\)/\1 passed, \2 failed, \3 skipped/p'
    return $rc
}

if [ ${#words[@]} -gt 0 ]; then
    quick "${words[@]:1}"
    exit
fi
choose_cases
./setup.sh --test --more || { failed=1; end; }
official_clients
stages_in_a_group
