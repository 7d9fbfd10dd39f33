#!/usr/bin/env bash
# Builds the shipped files into target/dist/ and checks them:
#   libneap.so  lib/libneap.a  neap  neap-lab  neap-lab-rust  include/neap.h  include/neap/
# ci/install-prefix.sh installs what programs are linked with.
#
# dist.sh MACHINE [library]: builds for another machine (aarch64), into target/dist-MACHINE/. With
# `library` it builds libneap.so and its headers alone. The compiler is MACHINE-linux-gnu-gcc, and
# cargo's target MACHINE-unknown-linux-gnu must be installed (ci/aarch64.sh).
#
# The library is built alone in a directory of its own. Built as a dependency of the command, it
# would have the same file name but no link-time optimisation.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
work=$target/dist-build
dist=$target/dist
machine=${1:-$(uname -m)}
extent=${2:-all}
built=dist
options=()
tools=
if [ $# -gt 0 ]; then
    triple=$machine-unknown-linux-gnu
    dist=$dist-$machine
    built=$triple/dist
    tools=$machine-linux-gnu-
    options=(--target "$triple" --config "target.$triple.linker='${tools}gcc'")
    export CC=${tools}gcc LD=${tools}ld OBJCOPY=${tools}objcopy
fi
# Most bytes of the library: 500 KiB. Decisions 25, 31 and 32 say what takes them. A static that is
# all zero at first takes none; one with a single other byte takes all of its bytes.
size_limit=512000

fail() {
    echo "ci/dist.sh: $*" >&2
    exit 1
}

# Linked to no C library: where the linker looks for libc.so first, it finds a script that is empty.
# So one file serves glibc of any version and musl.
mkdir -p "$work/no-libc"
echo "/* no library */" >"$work/no-libc/libc.so"
link_library() { # link_library FEATURES
    cargo rustc "${options[@]}" --profile dist -p neap-c --lib --crate-type cdylib --features "$1" \
        --target-dir "$work/library" \
        -- -C link-arg=-Wl,-soname,libneap.so -L "native=$(realpath "$work/no-libc")"
}
# Whether the table's entry with the slot's offset is where blocks begin (heap/src/cache/x86_64.rs).
entry_is_where_blocks_begin() {
    local entry
    entry=$(readelf --relocs --wide "$work/library/$built/libneap_c.so" | awk '/R_X86_64_TPOFF64/ { print $1 }')
    [ "$(wc -w <<<"$entry")" -eq 1 ] || fail "the library has not one entry with the slot's offset: $entry"
    [ $((0x$entry % 16)) -eq 0 ]
}
# In parallel with the library, because link-time optimisation mostly uses a single processor.
jobs=()
trap 'kill "${jobs[@]}" 2>/dev/null || true' EXIT
if [ "$extent" = all ]; then
    cargo rustc "${options[@]}" --profile dist -p neap-c --lib --crate-type staticlib --features archive \
        --target-dir "$work/archive" &
    jobs+=($!)
    cargo build "${options[@]}" --profile dist -p neap-cli -p neap-lab --bins --target-dir "$work/commands" &
    jobs+=($!)
fi
link_library near
if [ "$machine" = x86_64 ] && entry_is_where_blocks_begin; then
    link_library near,shifted
    ! entry_is_where_blocks_begin || echo "ci/dist.sh: malloc may be some percent slower: see docs/decisions/0006" >&2
fi
for job in "${jobs[@]}"; do wait "$job"; done
jobs=()

mkdir -p "$dist"
install -m 755 "$work/library/$built/libneap_c.so" "$dist/libneap.so"
install -D -m 644 capi/include/neap.h "$dist/include/neap.h"
install -m 644 -D --target-directory="$dist/include/neap" capi/include/neap/*.hpp
if [ "$extent" = all ]; then
    install -m 755 "$work/commands/$built/"{neap,neap-lab,neap-lab-rust} "$dist/"
    ci/archive.sh "$work/archive/$built/libneap_c.a" "$dist/lib/libneap.a"
fi

defined() { # defined FILE NAME: whether the file defines NAME for the dynamic loader
    nm --dynamic --defined-only "$1" | grep " [TWi] $2\$" >/dev/null
}

library=$dist/libneap.so
readelf --dynamic "$library" | grep 'SONAME.*\[libneap\.so\]' >/dev/null || fail "the library has another soname"
for name in malloc calloc realloc free posix_memalign malloc_usable_size free_sized _Znwm _ZdlPvm; do
    defined "$library" "$name" || fail "the library does not define $name"
done
# One file for every C library: it names none, and no version of a name. All names but the weak ones
# are in glibc 2.17 and musl 1.2.2; the list says where it was looked up.
readelf --dynamic "$library" | grep NEEDED && fail "the library needs another: see capi/src/imports.rs"
imports=$(awk -v machine="$machine" '!/^#/ && (NF == 2 || $3 == machine) { print $1, $2 }' capi/tests/imports.golden)
diff <(echo "$imports") \
    <(nm --dynamic --undefined-only "$library" | awk '{ print $1, $2 }') ||
    fail "the library's undefined names (>) are not those of capi/tests/imports.golden (<)"
musl=$(compgen -G '/lib/ld-musl-*.so.1' | head -n 1) || true
if [ -n "$musl" ]; then
    lacks=$(comm -13 <(nm --dynamic --defined-only "$musl" | awk '{ print $3 }' | sort) \
        <(echo "$imports" | awk '$1 == "U" { print $2 }' | sort))
    [ -z "$lacks" ] || fail "musl lacks: $lacks"
else
    echo "SKIPPED: whether this machine's musl has these names: install musl-tools" >&2
fi
# No call of malloc's family is a cancellation point, so the library must call none of these.
for name in open open64 openat openat64 close read pread pread64 write writev pwrite pwrite64 fcntl fcntl64 \
    sendmsg sendto recvmsg connect accept poll select nanosleep clock_nanosleep usleep fsync fdatasync msync waitpid; do
    if nm --dynamic --undefined-only "$library" | grep -E " U $name(@|\$)" >/dev/null; then
        fail "the library calls $name, a cancellation point: use heap/src/os/file.rs"
    fi
done
# The words that a fork writes stand on one page (heap/src/os/lock.rs, fork.rs). A second page costs
# both processes a fault.
read -r start bytes < <(readelf --sections --wide "$library" |
    sed -n 's/^.* neap_fork *PROGBITS *\([0-9a-f]*\) [0-9a-f]* \([0-9a-f]*\) .*/\1 \2/p')
[ $((0x$start >> 12)) -eq $(((0x$start + 0x$bytes - 1) >> 12)) ] ||
    fail "the section neap_fork lies on two pages: align it"
if [ "$extent" = all ] && defined "$dist/neap" malloc; then
    fail "the command defines malloc: the library was linked into it"
fi
"${CC:-cc}" -fsyntax-only -Wall -Wextra -Werror -x c "$dist/include/neap.h"
# What the loader maps: with pages of 64 KiB, the file is padded between its two segments.
size=0
while read -r bytes; do size=$((size + bytes)); done < <(readelf --segments --wide "$library" | awk '$1 == "LOAD" { print $5 }')
[ "$size" -le $size_limit ] || fail "the library has $size bytes, the limit is $size_limit: see docs/decisions/0025"

find "$dist" -type f -exec ls -l {} +
