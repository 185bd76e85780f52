#!/bin/sh
# Installs what weft needs to build and run, on Debian 12; with --test also what only ./test.sh needs, with --test --more
# also what only its longer tier needs. Only what is missing is installed, so a second call does nothing. Runs as root, or with sudo.
set -eu

patience=600 # seconds to wait for another apt or dpkg to end: on a fresh machine the daily update may be under way
case "$*" in
"" | --test | "--test --more") ;;
*)
    echo "usage: ./setup.sh [--test [--more]]" >&2
    exit 2
    ;;
esac

build="gcc libc6-dev meson ninja-build pkg-config git python3"
libraries="libopenblas-dev libopenblas0-pthread libclblast-dev ocl-icd-opencl-dev opencl-headers
    libpcre2-dev libutf8proc-dev libedit-dev libmicrohttpd-dev libjansson-dev libcurl4-openssl-dev"
opencl_on_cpu="pocl-opencl-icd" # OpenCL where there is no GPU
wanted="$build $libraries $opencl_on_cpu libcmocka-dev" # meson's default is to build the tests too
skippable=                                              # tests do without, except where CI is set
if [ "${1:-}" = --test ]; then
    wanted="$wanted python3-numpy python3-jinja2 python3-pyopencl python3-pip clang llvm libclang-rt-14-dev clang-19 valgrind oclgrind clinfo curl"
    skippable="chromium-headless-shell haproxy systemd"
fi
if [ "${2:-}" = --more ]; then
    wanted="$wanted gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
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
        echo "setup.sh: these packages are missing and need root to install:$missing$skippable" >&2
        echo "setup.sh: run this script as root, or install sudo" >&2
        [ -z "$missing" ] || exit 1
        exit 0 # tests do without the others
    fi
    as_root="sudo"
fi
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o "DPkg::Lock::Timeout=$patience" "$@"
}
# apt-get waits for dpkg's lock, but not for that of its own lists.
update() {
    waited=0
    until said=$(apt update 2>&1); do
        printf '%s\n' "$said"
        case $said in *"Could not get lock"*) ;; *) return 1 ;; esac
        [ "$waited" -lt "$patience" ] || return 1
        sleep 5
        waited=$((waited + 5))
    done
    printf '%s\n' "$said"
}
install() {
    apt install -y --no-install-recommends "$@"
}
echo "setup.sh: installing$missing$skippable"
update
# shellcheck disable=SC2086
[ -z "$missing" ] || install $missing
# shellcheck disable=SC2086
[ -z "$skippable" ] || install $skippable || echo "setup.sh: could not install$skippable; tests that need them are skipped" >&2
