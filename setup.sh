#!/bin/sh
# Installs what weft needs to build and run, on Debian and Ubuntu; with --test also what tests need, with --test --more also what
# emulators and tests of packages need, as ./test.sh does (both on Debian 12). On Fedora and Arch it names the packages and the command that installs them. Only what is missing
# counts, so a second call does nothing; --dry-run says what that is and installs nothing. Runs as root, or with sudo.
set -eu

patience=600 # seconds to wait for another apt or dpkg to end: on a fresh machine the daily update may be under way
test=false more=false dry=false
usage() {
    echo "usage: ./setup.sh [--test [--more]] [--dry-run]; ./setup.sh --help says more" >&2
    exit 2
}
help() {
    cat <<END
Usage: ./setup.sh [--test [--more]] [--dry-run]

Installs what weft needs to build and run, on Debian and Ubuntu; runs as root, or
with sudo. On other systems it says what is needed. What is there already stays.

  --test     also what only tests need
  --more     with --test: also what emulators and tests of packages need
  --dry-run  print the command that installs what is missing, and install nothing
  -h, --help print this help and exit

Then: meson setup build && ninja -C build
END
}
for word; do
    case $word in
    --test) test=true ;;
    --more) more=true ;;
    --dry-run) dry=true ;;
    -h | --help)
        help
        exit 0
        ;;
    *) usage ;;
    esac
done
if $more && ! $test; then usage; fi

# Prints the column: what is needed (1), or its packages on Debian and Ubuntu (2), Fedora (3) or Arch (4).
needs() {
    while IFS='|' read -r what debian fedora arch; do
        case $1 in
        1) printf '    %s\n' "$what" ;;
        2) printf ' %s' "$debian" ;;
        3) printf ' %s' "$fedora" ;;
        4) printf ' %s' "$arch" ;;
        esac
    done <<END
a C compiler (gcc 12 or newer, or clang)|gcc libc6-dev|gcc glibc-devel|gcc
meson 1.0 or newer|meson|meson|meson
ninja|ninja-build|ninja-build|ninja
pkg-config|pkg-config|pkgconf-pkg-config|pkgconf
git|git|git|git
Python 3|python3|python3|python
OpenBLAS (optional)|libopenblas-dev libopenblas0-pthread|openblas-devel|openblas
CBC (optional, for weft plan --search)|coinor-libcbc-dev|coin-or-Cbc-devel|coin-or-cbc
CLBlast (optional)|libclblast-dev|clblast-devel|clblast
an OpenCL loader and headers (for GPUs)|ocl-icd-opencl-dev opencl-headers|ocl-icd-devel opencl-headers|ocl-icd opencl-headers
PCRE2|libpcre2-dev|pcre2-devel|pcre2
utf8proc|libutf8proc-dev|utf8proc-devel|libutf8proc
libedit|libedit-dev|libedit-devel|libedit
libcurl 7.85 or newer (for weft pull and weft bench serve)|libcurl4-openssl-dev|libcurl-devel|curl
PoCL: OpenCL where there is no GPU (optional)|pocl-opencl-icd|pocl|pocl
OpenSSL (for the checksums of weft pull)|libssl-dev|openssl-devel|openssl
cmocka (for the tests; -Dtests=false does without)|libcmocka-dev|libcmocka-devel|cmocka
END
}

# The kind of system, by its own name or that of one that it is like.
system_of() (
    ID='' ID_LIKE=''
    # A file of assignments, perhaps with the line ends of another system.
    if [ -r "$1" ]; then
        cr=$(printf '\r') lines=''
        while IFS= read -r line || [ -n "$line" ]; do
            lines="$lines${line%"$cr"}
"
        done <"$1"
        eval "$lines"
    fi
    for name in $ID $ID_LIKE; do
        case $name in
        debian | ubuntu) echo debian ;;
        fedora | arch) echo "$name" ;;
        *) continue ;;
        esac
        return
    done
    echo "unknown $ID"
)

# Those of its arguments that are not installed.
missing_of() {
    for package; do
        case $system in
        debian)
            state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) || state=
            [ "$state" = "install ok installed" ]
            ;;
        fedora) rpm -q "$package" >/dev/null 2>&1 ;;
        arch) pacman -Q "$package" >/dev/null 2>&1 ;;
        esac || printf ' %s' "$package"
    done
}

release=${WEFT_OS_RELEASE:-/etc/os-release}
system=$(system_of "$release")
skippable= # tests do without, except where CI is set
case $system in
debian)
    wanted=$(needs 2)
    install="apt-get install -y --no-install-recommends"
    ;;
fedora)
    wanted=$(needs 3)
    install="dnf install -y"
    ;;
arch)
    wanted=$(needs 4)
    install="pacman -S --needed"
    ;;
*)
    echo "setup.sh: the packages of this system ($release: ${system#unknown }) are not known; weft needs" >&2
    needs 1 >&2
    echo "setup.sh: install these, then: meson setup build && ninja -C build" >&2
    exit 1
    ;;
esac
if $test && [ "$system" = debian ]; then
    wanted="$wanted python3-numpy python3-jinja2 python3-yaml python3-pyopencl python3-pip python3-venv python3-dev clang llvm libclang-rt-14-dev clang-19 ccache oclgrind clinfo curl openssl"
    skippable="chromium-headless-shell haproxy nginx-light caddy systemd man-db mandoc zsh fish shellcheck openmpi-bin"
fi
if $more && [ "$system" = debian ]; then
    wanted="$wanted gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user debhelper debootstrap lintian buildah crun"
fi
# shellcheck disable=SC2086 # one word for each package
missing=$(missing_of $wanted)
# shellcheck disable=SC2086
skippable=$(missing_of $skippable)
if [ -z "$missing$skippable" ]; then
    exit 0
fi
if $dry; then
    echo "$install$missing$skippable"
    exit 0
fi
if [ "$system" != debian ]; then
    echo "setup.sh: packages are missing; this installs them, as root:" >&2
    echo "    $install$missing" >&2
    exit 1
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
get() {
    apt install -y --no-install-recommends "$@"
}
echo "setup.sh: installing$missing$skippable"
update
# shellcheck disable=SC2086
[ -z "$missing" ] || get $missing
# shellcheck disable=SC2086
[ -z "$skippable" ] || get $skippable || echo "setup.sh: could not install$skippable; tests that need them are skipped" >&2
