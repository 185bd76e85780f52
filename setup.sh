#!/bin/sh
# Installs what weft needs to build and run, on Debian 12; with --test also what only ./test.sh needs. Only what
# is missing is installed, so a second call does nothing. Runs as root, or with sudo.
set -eu

case "${1:-}" in
"" | --test) ;;
*)
    echo "usage: ./setup.sh [--test]" >&2
    exit 2
    ;;
esac

build="gcc libc6-dev meson ninja-build pkg-config git python3"
libraries="libopenblas-dev libopenblas0-pthread libclblast-dev ocl-icd-opencl-dev opencl-headers
    libpcre2-dev libutf8proc-dev libedit-dev libmicrohttpd-dev libjansson-dev libcurl4-openssl-dev"
opencl_on_cpu="pocl-opencl-icd" # OpenCL where there is no GPU
wanted="$build $libraries $opencl_on_cpu libcmocka-dev" # meson's default is to build the tests too
skippable=                                              # tests do without
if [ "${1:-}" = --test ]; then
    wanted="$wanted python3-numpy python3-pyopencl clang llvm libclang-rt-14-dev clang-19 valgrind oclgrind clinfo python3-pip"
    skippable="chromium-headless-shell haproxy"
fi

# Those of its arguments that are not installed.
missing_of() {
    for package; do
        state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) || state=
        [ "$state" = "install ok installed" ] || printf ' %s' "$package"
    done
}
# shellcheck disable=SC2086 # one word for each package
missing=$(missing_of $wanted)
# shellcheck disable=SC2086
skippable=$(missing_of $skippable)
if [ -z "$missing$skippable" ]; then
    exit 0
fi

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup.sh: these packages are missing and need root to install:$missing" >&2
        echo "setup.sh: run this script as root, or install sudo" >&2
        exit 1
    fi
    as_root="sudo"
fi
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}
echo "setup.sh: installing$missing$skippable"
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q
# shellcheck disable=SC2086
[ -z "$missing" ] || install $missing
# shellcheck disable=SC2086
[ -z "$skippable" ] || install $skippable || echo "setup.sh: could not install$skippable; tests that need them are skipped" >&2
