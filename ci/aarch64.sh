#!/usr/bin/env bash
# aarch64.sh [quick|full]: Neap on AArch64, by cross compilers and qemu-user, that of Debian 13. It
# builds and inspects the library, compares instruction counts with golden ones, and runs Debian's
# programs.
#
# `full` builds the command and the archive as well, makes the packages and uses them, and runs the
# tests of the heap and of the C surface. ci/aarch64/left-out.txt lists what cannot run under
# emulation. A test that begins to fail or to skip fails the script
# (docs/decisions/0029-aarch64.md).
set -euo pipefail
cd "$(dirname "$0")/.."
extent=${1:-quick}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
triple=aarch64-unknown-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
    echo "ci/aarch64.sh: $*" >&2
    exit 1
}

# ---- what it needs

skip() {
    [ -z "${REQUIRE_ALL:-}" ] || die "$*"
    echo "SKIPPED: AArch64: $*"
    exit 0
}
for program in aarch64-linux-gnu-gcc aarch64-linux-gnu-g++; do
    command -v $program >/dev/null || skip "install gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross"
done
# Rust's standard library comes from rustup's server, which some machines cannot reach.
if [ ! -e "$(rustc --print target-libdir --target $triple)" ]; then
    echo "SKIPPED: AArch64: rustup target add $triple"
    exit 0
fi
export SYSROOT_UNDER_TEST=/usr/aarch64-linux-gnu QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64

# Debian 13's emulator is a static program. That of Debian 12 has no clone3, and aborts in children
# of processes with threads.
. ci/debian.sh
emulators=$target/suites/qemu-trixie
[ -e "$emulators" ] || unpack_debian trixie "$(dpkg --print-architecture)" "$emulators" qemu-user
export PATH=$emulators/usr/bin:$PATH
# Only that of Debian 12 has pages larger than this machine's.
older=$target/suites/qemu-bookworm
[ -e "$older" ] || unpack_debian bookworm "$(dpkg --print-architecture)" "$older" qemu-user-static

# ---- the library

if [ "$extent" = full ]; then
    ci/dist.sh aarch64
else
    ci/dist.sh aarch64 library
fi
library=$target/dist-aarch64/libneap.so
ci/aarch64/count.sh "$library" >"$work/counts"
diff lab/golden/aarch64.txt "$work/counts" ||
    die "the instruction counts (>) are not those of lab/golden/aarch64.txt (<)"
echo "pass aarch64/counts"

# ---- Debian's programs

packages=(libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 liblzma5 libcrypt1 libtinfo6 libreadline8
    python3.11-minimal libpython3.11-minimal libpython3.11-stdlib python3.11-venv libffi8 libssl3 perl-base
    sqlite3 libsqlite3-0 lua5.4 liblua5.4-0 gawk libsigsegv2 libmpfr6 libgmp10 xz-utils jq libjq1 libonig5
    musl musl-dev)
root=$target/suites/aarch64/$(printf '%s\n' bookworm "${packages[@]}" | sha256sum | cut -c 1-12)

[ -e "$root" ] || unpack_debian bookworm arm64 "$root" "${packages[@]}"

# same NAME COMMAND...: the command prints the same under the library, and refills its caches.
same() {
    local name=$1 program=$root/$2
    shift 2
    timeout 120 "${emulator:-qemu-aarch64}" -L "$root" "$program" "$@" >"$work/plain" || die "$name: status $? without the library"
    NEAP_STATS=json NEAP_STATS_FILE=$work/$name.json timeout 300 "${emulator:-qemu-aarch64}" -L "$root" \
        -E "LD_PRELOAD=$library" "$program" "$@" >"$work/neap" 2>"$work/messages" ||
        die "$name: status $? under the library: $(tail -n 5 "$work/messages")"
    cmp "$work/plain" "$work/neap" || die "$name prints something else under the library"
    [ ! -s "$work/messages" ] || die "$name wrote on stderr: $(cat "$work/messages")"
    grep -q '"refills":[1-9]' "$work/$name.json" || die "$name: no cache of the library's was refilled"
    echo "pass aarch64/$name"
}

seq 1 60000 | shuf --random-source=<(yes) >"$work/numbers"
PYTHONHOME=$root/usr PYTHONMALLOC=malloc same python usr/bin/python3.11 -c '
import json, threading
def work(n):
    return sum(len(str(i) * (i % 50)) for i in range(n))
results = []
threads = [threading.Thread(target=lambda n=n: results.append(work(n))) for n in range(2000, 8000, 1000)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(results), len(json.dumps([{str(i): [i] * 5} for i in range(3000)])))
'
# Pages as large as some kernels have them. A kernel with such pages fills the last one of a file's
# mapping with zeros. The emulator leaves out what is beyond this machine's last page of the file,
# and part of the library's .bss may lie there. So the file is lengthened to whole pages.
cp "$library" "$work/libneap.so"
truncate -s %65536 "$work/libneap.so"
for bytes in 16384 65536; do
    library=$work/libneap.so emulator=$older/usr/bin/qemu-aarch64-static QEMU_PAGESIZE=$bytes same sqlite-pages-$bytes usr/bin/sqlite3 :memory: 'with recursive n(i) as
        (select 1 union all select i + 1 from n where i < 9000) select count(*), sum(length(hex(i * i))) from n'
done
same perl usr/bin/perl -e 'my %h; $h{$_ % 997} .= $_ for 1 .. 60000; print join(",", map { length $h{$_} } sort keys %h), "\n"'
same sqlite usr/bin/sqlite3 :memory: 'with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
    select count(*), sum(length(t)) from (select i, group_concat(i) over (rows 5 preceding) as t from n)'
same lua usr/bin/lua5.4 -e 't = {} for i = 1, 60000 do t[i % 5000] = {i, tostring(i)} end print(#t, t[77][2])'
same gawk usr/bin/gawk '{ a[$1 % 500] = a[$1 % 500] $1 } END { for (i = 0; i < 500; i++) print a[i] }' "$work/numbers"
same xz usr/bin/xz -T2 --block-size=100KiB -c "$work/numbers"
same jq usr/bin/jq -n '[range(5000) | {a: ., b: tostring}] | group_by(.a % 10) | map(length)'
# With memory tags. Where glibc's usual memset zeroes a cache line by a pointer with a tag, qemu
# ends the program.
tagged() {
    NEAP_HARDEN=1 GLIBC_TUNABLES=glibc.cpu.name=kunpeng920 same "$@"
}
tagged tagged-perl usr/bin/perl -e 'my %h; $h{$_ % 997} .= $_ for 1 .. 20000; print join(",", sort values %h), "\n"'
tagged tagged-sqlite usr/bin/sqlite3 :memory: 'with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
    select count(*), sum(length(t)) from (select i, group_concat(i) over (rows 5 preceding) as t from n)'
PYTHONHOME=$root/usr PYTHONMALLOC=malloc tagged tagged-python usr/bin/python3.11 -c '
import json, threading
def work(n):
    json.loads(json.dumps([{str(i): [i] * 5} for i in range(n)]))
threads = [threading.Thread(target=work, args=(n,)) for n in (100, 200, 300)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(threads))
'

[ "$extent" = full ] || exit 0

# ---- the packages

# The namespace has the libraries in their places.
env -u QEMU_LD_PREFIX MACHINE=aarch64 PYTHON="$root/usr/bin/python3.11" timeout -k 10 1800 \
    ci/aarch64/emulated.sh "$emulators/usr/bin/qemu-aarch64" "$root" ci/packages.sh
echo "pass aarch64/packages"

# ---- the tests

# left_out SUITE: arguments that leave out a suite's tests of ci/aarch64/left-out.txt.
left_out() {
    sed -n "s/^$1 \([^ ]*\) .*/--skip \1/p" ci/aarch64/left-out.txt
}

# tests SUITE LEAST COMMAND...: runs a suite without what is left out. Fails if fewer tests ran than
# LEAST, or if one skipped a part by itself.
tests() {
    local suite=$1 least=$2 passed
    shift 2
    timeout 2400 "$@" $(left_out "$suite") >"$work/tests" 2>&1 || { cat "$work/tests"; die "tests failed: $suite"; }
    passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$work/tests" | awk '{ sum += $1 } END { print sum + 0 }')
    ! grep SKIPPED "$work/tests" || die "$suite: a test skipped a part: put the test on the list, with the reason"
    [ "$passed" -ge "$least" ] || die "$suite: $passed tests ran, $least are expected"
    echo "pass aarch64/$suite: $passed tests"
}

tests heap 205 cargo test -q --target $triple -p neap-heap --lib --
tests heap-tests 20 cargo test -q --target $triple -p neap-heap --test '*' --
export MACHINE_UNDER_TEST=aarch64 LIBRARY_UNDER_TEST=$library
tests preload 124 cargo test -q -p neap-c --test preload --
# With limited addresses, qemu refuses some advice with an error, and accepts the rest as before.
QEMU_RESERVED_VA=256G tests preload 2 cargo test -q -p neap-c --test preload -- \
    torture::nobody_is_asked torture::nothing_in_the_way

# The same library under musl. Its compiler is Debian's script with other folders.
mkdir -p "$work/bin"
specs=$root/usr/lib/aarch64-linux-musl
sed -e "s#/usr/include/aarch64-linux-musl#$root&#g" -e "s#/usr/lib/aarch64-linux-musl#$root&#g" \
    -e "s#^-L#-L$root/lib/aarch64-linux-musl -L#" "$specs/musl-gcc.specs" >"$work/bin/specs"
printf '#!/bin/sh\nexec aarch64-linux-gnu-gcc "$@" -specs "%s/bin/specs"\n' "$work" >"$work/bin/aarch64-musl-gcc"
chmod +x "$work/bin/aarch64-musl-gcc"
PATH=$work/bin:$PATH C_LIBRARY_UNDER_TEST=musl SYSROOT_UNDER_TEST=$root \
    tests musl 40 cargo test -q -p neap-c --test preload -- semantics:: misuse::
