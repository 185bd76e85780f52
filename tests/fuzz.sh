#!/bin/bash
# Fuzzes from the inputs that are kept in tests/fuzz/corpus/, keeps what it found there, and adds up all runs.
#
#   tests/fuzz.sh                       10,000,000 executions of each target
#   tests/fuzz.sh --runs N [TARGET...]  N of these targets: frame, gguf, grammar, jinja, json, request, safetensors, sse, tokenizer, tokenizer_json
#   tests/fuzz.sh --seconds S ...       S seconds each instead
#   tests/fuzz.sh --length BYTES ...    inputs no longer than this: many more executions in the same time
#   tests/fuzz.sh --dry ...             keeps nothing, neither inputs nor figures
#   tests/fuzz.sh --build FOLDER ...    with the fuzzers of this build, as they are; else build-fuzz/ is brought up to date
#   tests/fuzz.sh --replay [TARGET...]  only runs the kept inputs, once
#   tests/fuzz.sh --keep TARGET FILE    keeps an input for good, whatever it reaches: one that found a bug
#   tests/fuzz.sh --table               all runs added up; --update writes that to docs/reliability.md, --check compares
#
# Each run adds a row to tests/fuzz/runs.tsv: edges as libFuzzer counts them (`cov`), how many of them this run added, and the
# executions behind the last of those. Its inputs are then merged and packed anew, the fewest that reach the same.
# An input that fails stays in the build's found/, and the command fails. Ctrl-C ends a run early; it counts as far as it came.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
rows=tests/fuzz/runs.tsv kept=tests/fuzz/corpus page=docs/reliability.md
out=$PWD/build-fuzz

# Leaks and every error count. What was freed is kept back for a run, not for thousands, and stacks of allocations are not kept:
# both take most of the time, and an input that failed can be run again without these two.
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0:use_sigaltstack=0:malloc_context_size=0:quarantine_size_mb=2:thread_local_quarantine_size_kb=64
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

die() { echo "fuzz.sh: $*" >&2; exit 2; }

# The longest input. More reaches nothing that less does not, but where a limit of the target itself is higher: heads beyond 32 KiB
# and bodies beyond the server's limits have tests of their own.
length_of() {
    case $1 in
    gguf) echo 8192 ;; # a file with a tensor of each format has 7,300 bytes
    frame) echo 4096 ;;
    grammar | jinja | json | request | safetensors | tokenizer | tokenizer_json) echo 2048 ;;
    sse) echo 1024 ;;
    *) die "no target $1" ;;
    esac
}


# --- inputs ----------------------------------------------------------------------------------------

# With those that the build makes: unpack TARGET FOLDER
unpack() {
    mkdir -p "$2" && tar -xzf "$kept/$1.tar.gz" -C "$2" || return
    local seed
    for seed in "$out/tests/fuzz/$1"_*.seed; do [ ! -f "$seed" ] || cp "$seed" "$2"; done
}

# The same inputs give the same file: pack TARGET FOLDER
pack() {
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -cf - -C "$2" \
        --files-from=<(cd "$2" && find . -type f -printf '%P\n') | gzip -9n >"$kept/$1.part" && mv "$kept/$1.part" "$kept/$1.tar.gz"
}

# The fewest inputs that reach what those of a folder do, and those that stay for good: minimise TARGET FOLDER
minimise() {
    local few=$2.few
    rm -rf "$few" && mkdir "$few"
    "$out/tests/fuzz/fuzz_$1" -merge=1 -max_len="$(length_of "$1")" "$few" "$2" >"$out/log/$1-merge.log" 2>&1 || return
    find "$2" -name 'found-*' -exec cp {} "$few" \;
    rm -rf "$2" && mv "$few" "$2"
}

keep() { # TARGET FILE
    local folder
    folder=$(mktemp -d)
    unpack "$1" "$folder"
    cp "$2" "$folder/found-$(sha1sum <"$2" | cut -c1-12)" && pack "$1" "$folder"
    rm -rf "$folder"
}

# --- figures ---------------------------------------------------------------------------------------

# From the log of a run: executions, edges, new edges, executions behind the last of those.
figures() {
    awk '/ cov: /{ n = substr($1, 2) + 0; for (i = 2; i < NF; i++) if ($i == "cov:") c = $(i + 1)
                   if ($2 == "INITED") first = last = c; else if (c > last) { last = c; at = n } }
         /number_of_executed_units/{ all = $2 }
         END { printf "%d\t%d\t%d\t%d\n", all, last, last - first, all - at }' "$1"
}

# Executions behind the last edge go on counting through runs that added none.
table() {
    echo '| target | executions | edges | since the last new edge |'
    echo '|---|---|---|---|'
    awk -F '\t' 'function n(x,  s) { s = ""; while (length(x) > 3) { s = "," substr(x, length(x) - 2) s; x = substr(x, 1, length(x) - 3) } return x s }
        NR == 1 { next }
        { all[$1] += $3; edges[$1] = $5; idle[$1] = $6 ? $7 : idle[$1] + $3; sum += $3 }
        END { for (t in all) printf "| %s | %s | %d | %s |\n", t, n(all[t] ""), edges[t], n(idle[t] "") | "sort"
              close("sort"); printf "| all | %s | | |\n", n(sum "") }' "$rows"
}

page_with_table() { awk -v table="$(table)" '/<!-- fuzz -->/ { print; print table; skip = 1 } /<!-- end -->/ { skip = 0 } !skip' "$page"; }
write_page() { page_with_table >"$page.part" && mv "$page.part" "$page"; }
check_page() { diff -u "$page" <(page_with_table) || die "$page does not say what $rows says: run tests/fuzz.sh --update"; }

# The last commit of what is fuzzed; + where it was changed since.
code() { echo "$(git log -1 --format=%h -- src)$(git diff --quiet HEAD -- src || echo +)"; }

record() { # TARGET LOG SECONDS
    local n edges new idle
    IFS=$'\t' read -r n edges new idle < <(figures "$2")
    [ "$n" -gt 0 ] || return
    printf '%s\t%s\t%d\t%d\t%d\t%d\t%d\n' "$1" "$(code)" "$n" "$3" "$edges" "$new" "$idle" >>"$rows"
    write_page
    echo "$1: $n executions in $3 s, $edges edges, $new of them new, none in the last $idle"
}

# --- runs ------------------------------------------------------------------------------------------

# Shows new edges, and every now and then how far it is.
progress() { trap '' INT; awk -v t="$1" '/ cov: /{ for (i = 2; i < NF; i++) if ($i == "cov:") c = $(i + 1); if (c != last || $2 == "pulse") { print t ": " $0; fflush() } last = c }'; }

run() { # TARGET
    local folder=$out/corpus/$1 began=$SECONDS log words=()
    mkdir -p "$out/log" "$out/found"
    log=$out/log/$1-$(date +%m%dT%H%M%S).log
    unpack "$1" "$folder" || return
    [ ! -f "tests/fuzz/$1.dict" ] || words=(-dict="tests/fuzz/$1.dict")
    trap : INT # libFuzzer ends by itself
    "$out/tests/fuzz/fuzz_$1" "$limit" -max_len="${length:-$(length_of "$1")}" "${words[@]}" -entropic=0 -rss_limit_mb=2048 -timeout=20 \
        -print_final_stats=1 -artifact_prefix="$out/found/$1-" "$folder" 2>&1 | tee -i "$log" | progress "$1"
    local rc=${PIPESTATUS[0]}
    trap - INT
    [ "$rc" != 72 ] || rc=0 # it was interrupted
    [ "$rc" = 0 ] || { tail -n 40 "$log"; echo "fuzz.sh: $1 failed; its input is in $out/found/" >&2; }
    if ! $dry; then
        (flock 9 && record "$1" "$log" $((SECONDS - began))) 9>>"$out/lock" # another may run beside this
        minimise "$1" "$folder" && pack "$1" "$folder" || return
    fi
    return "$rc"
}

replay() { # TARGET
    local folder
    folder=$(mktemp -d)
    mkdir -p "$out/found"
    unpack "$1" "$folder" && "$out/tests/fuzz/fuzz_$1" -runs=0 -max_len=1000000 -artifact_prefix="$out/found/$1-" "$folder"
    local rc=$?
    rm -rf "$folder"
    return "$rc"
}

compile() {
    [ -f "$out/build.ninja" ] || CC=clang meson setup "$out" -Dbuildtype=debugoptimized -Dopencl=disabled -Dfuzz=true || return
    ninja -C "$out" "${targets[@]/#/tests/fuzz/fuzz_}" tests/fuzz/gguf_values.seed
}

# --- the command line ------------------------------------------------------------------------------

compiled=false dry=false length='' limit=-runs=10000000 what=run targets=()
while [ $# -gt 0 ]; do
    case $1 in
    --runs | --seconds | --length | --build) [ $# -gt 1 ] || die "$1 wants a value" ;;&
    --runs) limit=-runs=$2 && shift ;;
    --seconds) limit=-max_total_time=$2 && shift ;;
    --length) length=$2 && shift ;;
    --build) out=$2 compiled=true && shift ;;
    --dry) dry=true ;;
    --replay) what=replay ;;
    --table) table; exit ;;
    --update) write_page; exit ;;
    --check) check_page; exit ;;
    --keep) [ $# = 3 ] || die "--keep wants a target and a file"; keep "$2" "$3"; exit ;;
    -h | --help) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit ;;
    -*) die "unknown option $1; see tests/fuzz.sh --help" ;;
    *) targets+=("$1") ;;
    esac
    shift
done
[ ${#targets[@]} -gt 0 ] || targets=(frame gguf grammar jinja json request safetensors sse tokenizer tokenizer_json)
if ! $compiled; then
    mkdir -p "$out/log"
    (flock 9 && compile >"$out/log/compile.log" 2>&1) 9>>"$out/lock" || { tail -n 20 "$out/log/compile.log"; die "the fuzzers do not compile"; }
fi
failed=0
for target in "${targets[@]}"; do "$what" "$target" || failed=1; done
exit $failed
