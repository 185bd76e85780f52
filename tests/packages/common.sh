# shellcheck shell=bash
# What the scripts beside it share. They set work, the folder that they work in.

suite=bookworm

step() {
    echo "== $* ($SECONDS s)"
}

skip() {
    echo "skipped: $1"
    exit 77
}

needs() { # needs PROGRAM...
    local program
    [ "$(id -u)" = 0 ] || skip "a clean root needs root"
    for program; do
        command -v "$program" >/dev/null || skip "$program is missing: ./setup.sh --test --more installs it"
    done
    needs_repository
}

needs_repository() {
    git rev-parse --git-dir >/dev/null 2>&1 || skip "it begins with the repository, and this is none"
}

# Runs the script again where what it mounts goes with it: own_mounts "$@"
own_mounts() {
    [ -z "${OWN_MOUNTS:-}" ] || return 0
    OWN_MOUNTS=yes exec unshare --mount "$0" "$@"
}

fresh_folder() {
    rm -rf --one-file-system "$work"
    mkdir -p "$work"
    work=$(cd "$work" && pwd)
    trap clean_up EXIT
}

clean_up() {
    local mounts
    mapfile -t mounts < <(findmnt -rno TARGET | grep "^$work/" | sort -r)
    [ ${#mounts[@]} = 0 ] || umount "${mounts[@]}"
    rm -rf --one-file-system "$work"
}

# Debian's mirror, as apt has it here.
mirror() {
    apt-get indextargets --format "\$(ORIGIN) \$(CODENAME) \$(REPO_URI)" "Created-By: Packages" | sed -n "s/^Debian $suite //p" | sort -u | head -n 1
}

clean_root() { # clean_root FOLDER
    local from
    from=$(mirror)
    debootstrap --variant=minbase "$suite" "$1" "${from:-http://deb.debian.org/debian}"
}

# What git knows of the files as they are now: archive FOLDER
archive() {
    local state index=$1.index
    mkdir -p "$1"
    cp "$(git rev-parse --git-path index)" "$index" # one of its own: nobody else finds the index locked
    state=$(GIT_INDEX_FILE=$index git -c user.name=test -c user.email=test@localhost stash create)
    rm "$index"
    git archive "${state:-HEAD}" | tar -x -C "$1"
}
