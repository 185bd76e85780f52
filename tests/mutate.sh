#!/bin/bash
# Plants bugs, one at a time, and looks whether the test that should notice each fails. The last line is
# `N caught, N missed, N no longer apply, N errors`; the exit code is 0 only if all are caught.
#
#   tests/mutate.sh                all bugs of tests/mutations/, minutes
#   tests/mutate.sh NAME...        only these
#   tests/mutate.sh --jobs N ...   N at a time; the default is 2
#   tests/mutate.sh --times N ...  each bug has to be caught N times in a row, for a test that may be lucky
#   tests/mutate.sh --resume       all that the last run, ended or not, has not seen caught
#   tests/mutate.sh --list         names, tests and bugs
#   tests/mutate.sh --check BUILD  fast: every patch applies, and names a test of that build
#
# A bug is a file NAME.patch: lines of a header, an empty line, and a diff of git.
#
#   test: unit sched               the test that has to fail
#   args: --op gemm                words for its program, which choose the part of the test that is meant; optional
#   bug: what the patch breaks, in one line; the word in front may be left out
#
# Verdicts are kept in build-mutate/lines, and the log of each test in build-mutate/NAME.log. --resume goes on from there, with the sources
# as they are now; a patch that was written anew since is run again.
#
# Each job has a copy of the sources and a build folder in build-mutate/, which are kept and brought up to date by the next run.
# A test must pass without the bug first, else its failure would mean nothing; one that is skipped or runs into the time limit
# has not noticed anything, and a patch that does not compile is an error of the patch.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
root=$PWD
patches=$root/tests/mutations out=$root/build-mutate
limit=${MUTATE_LIMIT:-300} # seconds for one test
jobs=2 times=1 resume=no

# --- the header of a patch ---------------------------------------------------------------------------

# Sets test, args and bug. Without a process, for there are many patches.
read_header() { # read_header NAME
    local line
    test='' args='' bug=''
    while IFS= read -r line; do
        case $line in
        'diff --git'*) return ;;
        'test: '*) test=${line#test: } ;;
        'args: '*) args=${line#args: } ;;
        ?*) bug=${bug:-${line#bug: }} ;;
        esac
    done <"$patches/$1.patch"
}
names() { find "$patches" -name '*.patch' -printf '%f\n' | sed 's/\.patch$//' | sort; }

# --- --check -----------------------------------------------------------------------------------------

# What is wrong with a patch by itself: flaws NAME TESTS-OF-THE-BUILD
flaws() {
    local test args bug
    read_header "$1"
    [ -n "$test" ] || echo "$1: no line \"test: NAME OF A TEST\" before the diff"
    [ -n "$bug" ] || echo "$1: no line before the diff says what the bug is"
    [ -z "$test" ] || [[ $'\n'$2$'\n' = *$'\n'"$test"$'\n'* ]] || echo "$1: the build has no test \"$test\""
    applies "$root" "$1" || echo "$1: no longer applies; write it anew for the code as it is"
}

# git, without what lies above a folder: applies FOLDER NAME [WORD...]
applies() { (cd "$1" && GIT_CEILING_DIRECTORIES=$(dirname "$1") git apply --check "${@:3}" "$patches/$2.patch"); }

check() { # check BUILD
    local tests found
    tests=$(python3 -c 'import json, sys; print(*(t["name"] for t in json.load(open(sys.argv[1]))), sep="\n")' "$1/meson-info/intro-tests.json") || return
    found=$(for name in $(names); do flaws "$name" "$tests"; done 2>&1)
    [ -z "$found" ] || { echo "$found"; return 1; }
    echo "$(names | wc -l) patches apply"
}

# --- one tree for each job -----------------------------------------------------------------------------

# The tracked files and those that git does not ignore, as they are now. Only what differs is written, with the time of now: a file whose
# bug was taken back may be older than the objects that still have it.
copy_sources() { # copy_sources TREE
    local file
    mkdir -p "$1"
    git ls-files -z --cached --others --exclude-standard | sort -z >"$1.now"
    if [ -f "$1.then" ]; then comm -z -13 "$1.now" "$1.then" | (cd "$1" && xargs -0r rm -f); fi
    while IFS= read -r -d '' file; do
        [ -e "$file" ] || { rm -f "$1/$file"; continue; }
        cmp -s "$file" "$1/$file" || { mkdir -p "$1/$(dirname "$file")" && cp --preserve=mode "$file" "$1/$file"; } || return
    done <"$1.now"
    mv "$1.now" "$1.then"
    # Tests look for their data beside the sources.
    [ ! -d "$root/../shared" ] || ln -sfn "$(readlink -f "$root/../shared")" "$out/shared"
}

prepare() { # prepare JOB
    local tree=$out/$1 log=$out/$1.log
    copy_sources "$tree" || return
    [ -f "$tree/build/build.ninja" ] || (cd "$tree" && meson setup build) >"$log" 2>&1 || { tail "$log"; return 1; }
    ninja -C "$tree/build" -j"$threads" >"$log" 2>&1 || { tail "$log"; return 1; }
}

# --- one bug -------------------------------------------------------------------------------------------

# Builds what a test needs and runs it: verdict JOB TEST ARGS; says passed, failed, skipped, "no end" or "does not build".
verdict() {
    local build=$out/$1/build
    rm -f "$build/meson-logs/testlog.json"
    XDG_CACHE_HOME=$out/cache meson test -C "$build" --print-errorlogs --timeout-multiplier "$multiplier" \
        ${3:+"--test-args=$3"} "$2" >"$out/$1.log" 2>&1
    [ $? != 125 ] || { echo "does not build"; return; }
    python3 - "$build/meson-logs/testlog.json" <<'EOF'
import json, sys
words = {"OK": "passed", "FAIL": "failed", "ERROR": "failed", "SKIP": "skipped", "TIMEOUT": "no end"}
try:
    print(*{words.get(json.loads(line)["result"], "failed") for line in open(sys.argv[1], encoding="utf-8")} or ["did not run"])
except OSError:
    print("did not run")
EOF
}

# Without the bug the test passes; each is run once a job.
passes_without() { # passes_without JOB TEST ARGS
    local mark
    mark=$out/$1.passed/$(tr -c '[:alnum:]\n' _ <<<"$2 $3")
    [ -e "$mark" ] && return
    [ "$(verdict "$1" "$2" "$3")" = passed ] && : >"$mark"
}

keep_log() { cp "$out/$1.log" "$out/$2.log"; } # keep_log JOB NAME

plant() { # plant JOB NAME: one line
    local tree=$out/$1 test args bug began said
    read_header "$2"
    cp "$patches/$2.patch" "$out/$1.patch" # which may be written anew meanwhile
    applies "$tree" "$2" 2>/dev/null || { echo "NO LONGER APPLIES $2"; return; }
    passes_without "$1" "$test" "$args" || { keep_log "$1" "$2"; echo "ERROR $2: \"$test\" does not pass without the bug; see $out/$2.log"; return; }
    began=$SECONDS
    (cd "$tree" && GIT_CEILING_DIRECTORIES=$out git apply "$out/$1.patch")
    said=$(verdicts "$1" "$test" "$args")
    keep_log "$1" "$2"
    (cd "$tree" && GIT_CEILING_DIRECTORIES=$out git apply -R "$out/$1.patch")
    case $said in
    failed) echo "caught $2 ($test, $((SECONDS - began)) s)" ;;
    "does not build") echo "ERROR $2: does not build; see $out/$2.log" ;;
    *) echo "MISSED $2 ($test: $said, $((SECONDS - began)) s)" ;;
    esac
}

# The first of some runs that is no failure, else "failed".
verdicts() { # verdicts JOB TEST ARGS
    local i said
    for ((i = 0; i < times; i++)); do
        said=$(verdict "$@")
        [ "$said" = failed ] || break
    done
    echo "$said"
}

# One job takes the next name until none is left: work JOB
work() {
    prepare "$1" || { echo "ERROR job $1 could not build the sources" >>"$out/lines"; return; }
    rm -rf "$out/$1.passed"
    mkdir "$out/$1.passed"
    local name line
    while name=$(take) && [ -n "$name" ]; do
        line=$(plant "$1" "$name")
        (flock 8; echo "$line" >>"$out/lines"; echo "[$(wc -l <"$out/lines") of $total] $line") 8>>"$out/lock"
    done
}

# The first name of the queue, which is shortened by it.
take() { (flock 9; sed -n 1p "$out/queue"; sed -i 1d "$out/queue") 9>>"$out/queue.lock"; }

count() { grep -c "^$1" "$out/lines"; }

# Lines of bugs that were caught stay, but of a patch that is newer; the others' names are what is left.
forget_all_but_caught() {
    local name
    touch "$out/lines"
    for name in $(sed -n 's/^caught \([^ ]*\) .*/\1/p' "$out/lines"); do
        [ "$patches/$name.patch" -nt "$out/$name.log" ] || grep "^caught $name " "$out/lines"
    done >"$out/lines.new"
    mv "$out/lines.new" "$out/lines"
}

left() { # left NAME...
    for name in "$@"; do grep -q "^caught $name " "$out/lines" || echo "$name"; done
}

run() { # run NAME...
    total=$#
    mkdir -p "$out"
    exec 7>"$out/running"
    flock -n 7 || { echo "mutate.sh: another run uses $out" >&2; exit 2; }
    # A test of 600 s ends after the limit; those with other limits in proportion.
    threads=$((($(nproc) + jobs - 1) / jobs))
    multiplier=$(python3 -c "print($limit / 600)")
    if [ $resume = yes ]; then forget_all_but_caught; else : >"$out/lines"; fi
    left "$@" >"$out/queue"
    for ((i = 1; i <= jobs; i++)); do work "$i" 7>&- & done
    wait
    echo "$(count caught) caught, $(count MISSED) missed, $(count 'NO LONGER APPLIES') no longer apply, $(count ERROR) errors"
    [ "$(count caught)" = "$total" ]
}

# --- arguments -------------------------------------------------------------------------------------------

# Nothing from outside changes what the tests see.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS OCL_ICD_VENDORS WEFT WEFT_CLBUILD PYTHONPATH PYTHONHOME
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=1

chosen=()
while [ $# -gt 0 ]; do
    case $1 in
    --list)
        for name in $(names); do read_header "$name" && printf '%-32s %-24s %s\n' "$name" "$test" "$bug"; done
        exit
        ;;
    --check) check "${2:?BUILD}"; exit ;;
    --jobs) jobs=${2:?a number} && shift ;;
    --times) times=${2:?a number} && shift ;;
    --resume) resume=yes ;;
    -h | --help)
        sed -n '2,24s/^# \{0,1\}//p' "$0"
        exit
        ;;
    -*)
        echo "mutate.sh: unknown word $1; see tests/mutate.sh --help" >&2
        exit 2
        ;;
    *)
        [ -f "$patches/$1.patch" ] || { echo "mutate.sh: no $patches/$1.patch; see tests/mutate.sh --list" >&2; exit 2; }
        chosen+=("$1")
        ;;
    esac
    shift
done
[ ${#chosen[@]} -gt 0 ] || mapfile -t chosen < <(names)
run "${chosen[@]}"
