#!/bin/bash
# The archive of a release, as `meson dist` makes it of what is committed: unpacked away from repository and test data, it configures,
# compiles without warnings, and some of its tests pass.
#
#   dist.sh FOLDER    works in the folder, which may be removed afterwards
#
# Ends with 77 where this is no repository.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/packages/common.sh
work=$1
needs_repository
fresh_folder

step "the archive"
meson setup "$work/build" -Dtests=false
meson dist -C "$work/build" --no-tests --allow-dirty --formats gztar
tar -x -C "$work" -f "$work"/build/meson-dist/weft-*.tar.gz
cd "$work"/weft-*/
[ ! -e .git ]

step "its build"
unset WEFT_TEST_DATA
build=build/two # as far below the sources as test.sh's builds: a cache of compilers then knows all but what differs in the archive
meson setup $build
ninja -C $build src/cli/weft | tee "$work/log"
if grep warning: "$work/log"; then exit 1; fi
$build/src/cli/weft version | grep -v unknown

step "some of its tests"
meson test -C $build --print-errorlogs 'cli settings' 'cli pages' 'packages versions' 'count self'
step "done"
