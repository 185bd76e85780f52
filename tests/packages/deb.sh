#!/bin/bash
# The Debian packages: built from an archive of the repository, looked at by lintian, and in a clean root made by debootstrap installed, used,
# upgraded, removed and purged.
#
#   deb.sh FOLDER    works in the folder, which may be removed afterwards
#
# The mirror is the one that apt has here. Ends with 77 where it is not root, or a program or the mirror is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/packages/common.sh
work=$1

# debhelper gives the build a home of its own, in which a cache of compilers would be empty. What -O3 adds to a build is tested by test.sh's.
build() {
    export DEB_CFLAGS_MAINT_APPEND=-O1
    if command -v ccache >/dev/null; then
        CCACHE_DIR=$(ccache -k cache_dir)
        export CCACHE_DIR PATH=/usr/lib/ccache:$PATH
    fi
    (cd "$sources" && dpkg-buildpackage -us -uc -j2)
    mkdir "$work/first"
    mv "$work"/*.* "$work/first"
}

# The same files under a higher version, by which an upgrade goes.
build_next() {
    local deb tree=$work/tree
    mkdir "$work/second"
    for deb in "$work"/first/{weft,libweft0,libweft-dev}_*.deb; do
        rm -rf "$tree" && dpkg-deb -R "$deb" "$tree"
        sed -i "s/^Version: $version\$/Version: $next/; s/(= $version)/(= $next)/g" "$tree/DEBIAN/control"
        dpkg-deb -Znone -b "$tree" "$work/second"
    done
    rm -rf "$tree"
}

check_packages() {
    local name
    lintian --allow-root -EI --pedantic --fail-on error,warning,info,pedantic,experimental "$work"/first/*.changes
    for name in weft libweft0 libweft-dev weft-dbgsym; do
        rm -rf "$work/out" && dpkg-deb -x "$work/first/${name}_$version"_*.deb "$work/out"
        [ -z "$(find "$work/out" -type d -empty)" ] || { find "$work/out" -type d -empty; return 1; }
    done
}

# Its home is not in the way of what the packages leave: caches belong to users.
inside() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/debs/home LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

# install FOLDER: its packages, with what they need from the mirror
install() {
    rm -rf "$root/debs" && mkdir "$root/debs"
    cp "$work/$1"/{weft,libweft0,libweft-dev}_*.deb "$root/debs"
    inside sh -c 'apt-get install -y -q --no-install-recommends /debs/*.deb'
}

use() {
    cp -r "$sources/debian/tests" "$root/debs"
    inside /debs/tests/program
    inside /debs/tests/library
    # shellcheck disable=SC2016 # dpkg's own
    [ "$(inside dpkg-query -W -f '${Version} ' weft libweft0 libweft-dev)" = "$1 $1 $1 " ]
}

# Paths that none but these packages have are gone, and nothing else has their name.
remove() {
    local ours left
    ours=$(inside dpkg-query -L weft libweft0 libweft-dev | grep -vx /. | sort -u)
    inside apt-get remove -y -q weft libweft0 libweft-dev
    inside dpkg --purge weft libweft0 libweft-dev
    left=$(while read -r path; do
        if [ -e "$root$path" ] && ! inside dpkg-query -S "$path" >/dev/null 2>&1; then echo "$path"; fi
    done <<<"$ours")
    left+=$(find "$root" -xdev -name '*weft*' ! -path "$root/debs/*")
    left+=$(inside dpkg-query -W '*weft*' 2>/dev/null || true)
    [ -z "$left" ] || { echo "left behind: $left"; return 1; }
}

needs debootstrap dpkg-buildpackage dh lintian unshare
own_mounts "$@"
fresh_folder
root=$work/root sources=$work/weft
step "a clean root beside, and the packages"
clean_root "$root" >"$work/root.log" 2>&1 &
archive "$sources"
version=$(dpkg-parsechangelog -l "$sources/debian/changelog" -S Version)
next=$version+1
build
step "lintian"
check_packages
step "version $next"
build_next
wait $! || { tail "$work/root.log"; skip "debootstrap could not make a root"; }
mount -t proc proc "$root/proc"
step "install"
inside apt-get update -q
inside apt-get install -y -q --no-install-recommends man-db gcc libc6-dev pkg-config
install first
step "use"
use "$version"
step "upgrade"
install second
use "$next"
step "remove"
remove
step "nothing is left"
