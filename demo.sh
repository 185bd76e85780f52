#!/bin/bash
# Builds weft, lists the devices, and lets the built-in demo model write a story on the best OpenCL device
# and on the CPU path. Says how fast each was and whether the two agree. What is missing is installed first
# (./setup.sh --help says what). It takes no options.
set -euo pipefail
cd "$(dirname "$0")"

case ${1-} in
'') ;;
-h | --help)
    sed -n '2,4s/^# //p' "$0"
    exit 0
    ;;
*)
    echo "demo.sh: unknown word $1; see ./demo.sh --help" >&2
    exit 2
    ;;
esac

./setup.sh
out=$PWD/build
log=$out/demo.log
if [ ! -f "$out/build.ninja" ]; then meson setup "$out" >/dev/null; fi
echo "Building ..."
if ! ninja -C "$out" src/cli/weft >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "demo.sh: the build failed; all of its output is in $log" >&2
    exit 1
fi
if grep -q weft-clbuild "$out/build.ninja"; then ninja -C "$out" cl/weft-clbuild >>"$log" 2>&1; fi
weft=$out/src/cli/weft

echo
echo "Devices (auto takes the best GPU, and the CPU path where there is none):"
"$weft" --list-devices

# Greedy text, so that two right devices write the same story.
prompt="One day"
story() { "$weft" run --device "$1" --temp 0 -p "$prompt" -n 200; }
speed() { sed -n 's/^weft: \(prompt .*\)$/    \1/p' "$1"; }

# The first OpenCL device that works.
opencl=
for id in $("$weft" --list-devices | sed -n 's/^\(opencl:[^ ]*\).*/\1/p'); do
    if "$weft" run --device "$id" -q -p "$prompt" -n 1 >/dev/null; then
        opencl=$id
        break
    fi
done

for device in $opencl cpu; do
    echo
    echo "The demo model continues \"$prompt\" on $device:"
    echo
    # Straight to the terminal as it is written, and to a file to compare.
    story "$device" 2>"$out/demo-$device.err" | tee "$out/demo-$device.txt" | { printf '    %s' "$prompt"; fold -s -w 90 | sed '2,$s/^/    /'; } ||
        { cat "$out/demo-$device.err" >&2; exit 1; }
    echo
    echo
    speed "$out/demo-$device.err"
done

echo
if [ -z "$opencl" ]; then
    echo "There is no OpenCL device that works here, so there is nothing to compare with."
    exit 1
fi
if cmp -s "$out/demo-$opencl.txt" "$out/demo-cpu.txt"; then
    echo "$opencl and cpu agree: they wrote the same $(wc -c <"$out/demo-cpu.txt") bytes."
else
    echo "$opencl and cpu do not agree: $(cmp "$out/demo-$opencl.txt" "$out/demo-cpu.txt" 2>&1 || true)"
    exit 1
fi
