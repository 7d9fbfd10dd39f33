#!/usr/bin/env bash
# Builds the shipped files into target/dist/ and checks them:
#   libneap.so  lib/libneap.a  neap  neap-lab  neap-lab-rust  include/neap.h  include/neap/
# ci/install-prefix.sh installs what programs are linked with.
#
# The library is built alone in a directory of its own. Built as a dependency of the command, it
# would have the same file name but no link-time optimisation.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
work=$target/dist-build
dist=$target/dist
# Most bytes of the library: 420 KiB. Decision 25 says what takes them. A static that is all zero at
# first takes none; one with a single other byte takes all of its bytes.
size_limit=430080

# Linked to no C library: where the linker looks for libc.so first, it finds a script that is empty.
# So one file serves glibc of any version and musl.
mkdir -p "$work/no-libc"
echo "/* no library */" >"$work/no-libc/libc.so"
cargo rustc --profile dist -p neap-c --lib --crate-type cdylib --target-dir "$work/library" \
    -- -C link-arg=-Wl,-soname,libneap.so -L "native=$(realpath "$work/no-libc")"
cargo rustc --profile dist -p neap-c --lib --crate-type staticlib --features archive \
    --target-dir "$work/archive"
cargo build --profile dist -p neap-cli -p neap-lab --bins --target-dir "$work/commands"

mkdir -p "$dist"
install -m 755 "$work/library/dist/libneap_c.so" "$dist/libneap.so"
install -m 755 "$work/commands/dist/"{neap,neap-lab,neap-lab-rust} "$dist/"
install -D -m 644 capi/include/neap.h "$dist/include/neap.h"
install -m 644 -D --target-directory="$dist/include/neap" capi/include/neap/*.hpp
ci/archive.sh "$work/archive/dist/libneap_c.a" "$dist/lib/libneap.a"

fail() {
    echo "ci/dist.sh: $*" >&2
    exit 1
}

defined() { # defined FILE NAME: whether the file defines NAME for the dynamic loader
    nm --dynamic --defined-only "$1" | grep -q " [TWi] $2\$"
}

library=$dist/libneap.so
readelf --dynamic "$library" | grep -q 'SONAME.*\[libneap\.so\]' || fail "the library has another soname"
for name in malloc calloc realloc free posix_memalign malloc_usable_size free_sized _Znwm _ZdlPvm; do
    defined "$library" "$name" || fail "the library does not define $name"
done
# One file for every C library: it names none, and no version of a name. All names but the weak ones
# are in glibc 2.17 and musl 1.2.2; the list says where it was looked up.
readelf --dynamic "$library" | grep NEEDED && fail "the library needs another: see capi/src/imports.rs"
diff <(grep -v '^#' capi/tests/imports.golden) \
    <(nm --dynamic --undefined-only "$library" | awk '{ print $1, $2 }') ||
    fail "the library's undefined names (>) are not those of capi/tests/imports.golden (<)"
musl=$(compgen -G '/lib/ld-musl-*.so.1' | head -n 1) || true
if [ -n "$musl" ]; then
    lacks=$(comm -13 <(nm --dynamic --defined-only "$musl" | awk '{ print $3 }' | sort) \
        <(awk '$1 == "U" { print $2 }' capi/tests/imports.golden | sort))
    [ -z "$lacks" ] || fail "musl lacks: $lacks"
else
    echo "SKIPPED: whether this machine's musl has these names: install musl-tools" >&2
fi
# No call of malloc's family is a cancellation point, so the library must call none of these.
for name in open open64 openat openat64 close read pread pread64 write writev pwrite pwrite64 fcntl fcntl64 \
    sendmsg sendto recvmsg connect accept poll select nanosleep clock_nanosleep usleep fsync fdatasync msync waitpid; do
    if nm --dynamic --undefined-only "$library" | grep -qE " U $name(@|\$)"; then
        fail "the library calls $name, a cancellation point: use heap/src/os/file.rs"
    fi
done
# The words that a fork writes stand on one page (heap/src/os/gate.rs, fork.rs). A second page costs both processes a fault.
read -r start bytes < <(readelf --sections --wide "$library" |
    sed -n 's/^.* neap_fork *PROGBITS *\([0-9a-f]*\) [0-9a-f]* \([0-9a-f]*\) .*/\1 \2/p')
[ $((0x$start >> 12)) -eq $(((0x$start + 0x$bytes - 1) >> 12)) ] ||
    fail "the section neap_fork lies on two pages: align it"
if defined "$dist/neap" malloc; then
    fail "the command defines malloc: the library was linked into it"
fi
"${CC:-cc}" -fsyntax-only -Wall -Wextra -Werror -x c "$dist/include/neap.h"
size=$(stat -c %s "$library")
[ "$size" -le $size_limit ] || fail "the library has $size bytes, the limit is $size_limit: see docs/decisions/0025"

ls -l "$dist"/{libneap.so,lib/libneap.a,neap,neap-lab,include/neap.h}
