#!/bin/sh
# Kernels of a level for 64-bit ARM compile without warnings, where Debian's cross compiler is installed.
#   compiles_arm.sh SOURCE_ROOT FLAG... FILE...
# docs/aarch64-linux-gnu.ini says how to build all of weft for such a processor, and how to run its tests here.
set -u
compiler=aarch64-linux-gnu-gcc root=$1
shift
command -v $compiler >/dev/null || { echo "skipped: $compiler is missing: ./setup.sh --test --more installs it"; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
$compiler -std=c11 -O1 -Wall -Wextra -Werror -Wno-missing-field-initializers -Wmissing-prototypes -D_GNU_SOURCE \
    -I"$root/include" -I"$root/src" -I"$root" -c "$@"
