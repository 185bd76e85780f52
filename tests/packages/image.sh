#!/bin/bash
# An image of packaging/Containerfile, built by buildah on a root made by debootstrap in place of one from a registry. In it, the program runs
# as a user without rights, and the server answers the health check that the image has.
#
#   image.sh FOLDER [TARGET [BUILD-ARGUMENT...]]    works in the folder, which may be removed afterwards; the target is cpu
#
# Ends with 77 where it is not root, or a program or the mirror is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/packages/common.sh
work=$1 target=${2:-cpu}
arguments=()
for argument in "${@:3}"; do arguments+=(--build-arg "$argument"); done
needs buildah debootstrap unshare
own_mounts "$@"
fresh_folder
export BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$work/storage" --runroot "$work/run" "$@"; }

step "a base"
clean_root "$work/base" >"$work/root.log" 2>&1 || { tail "$work/root.log"; skip "debootstrap could not make a root"; }
rm -rf "$work/base"/var/cache/apt/*
base=$(buildah from scratch)
buildah add -q "$base" "$work/base" / >/dev/null
buildah commit -q --rm "$base" base >/dev/null
rm -rf "$work/base"

step "the image $target"
archive "$work/weft"
buildah build --format docker --target "$target" --build-arg BASE=localhost/base "${arguments[@]}" -f packaging/Containerfile -t "weft-$target" "$work/weft"

step "the program"
container=$(buildah from "weft-$target")
inside() { buildah run "$container" "$@"; }
[ "$(inside id -u)" = 10001 ]
inside weft version
[ "$(inside weft run --device cpu -t 1 --temp 0 -q -p "One day" -n 8 | wc -w)" -gt 4 ]
inside weft --list-devices

step "the server"
mapfile -t health < <(buildah inspect --type image --format '{{range .Docker.Config.Healthcheck.Test}}{{println .}}{{end}}' "weft-$target" | sed '/^$/d')
[ "${health[0]}" = CMD ]
if inside "${health[@]:1}"; then
    echo "healthy without a server"
    exit 1
fi
# shellcheck disable=SC2016 # of the shell in the container
inside bash -c '
    weft serve --device cpu -t 1 &
    for ((tries = 60; tries > 0; tries--)); do
        if "$@" 2>/dev/null; then break; fi
        sleep 1
    done
    kill $! && wait $! && ((tries > 0))' bash "${health[@]:1}"
step "done"
