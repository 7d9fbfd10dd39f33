#!/usr/bin/env bash
# Runs programs under the shipped library (target/dist/libneap.so) with the C library of Debian 11,
# glibc 2.31: there threads and the loader's functions are in libraries of their own, which a
# program need not have (docs/decisions/0025-one-file-for-every-c-library.md).
#
# Debian's packages are unpacked beside the sources of ci/suites.sh; nothing is installed. Debian's
# own programs must print the same as without the library, and use the heap's caches. Programs of
# capi/tests/ are compiled here, by a compiler that links to the old library.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath "${CARGO_TARGET_DIR:-target}")
library=$(realpath "${LIBRARY_UNDER_TEST:-$target/dist/libneap.so}")
cache=$target/suites
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
    echo "ci/old-glibc.sh: $*" >&2
    exit 1
}

# ---- obtain

packages=(libc6 libc6-dev linux-libc-dev libcrypt1 libgcc-s1
    bash libtinfo6 gawk libsigsegv2 libreadline8 libmpfr6 libgmp10
    coreutils libselinux1 libpcre2-8-0 libacl1 libattr1 grep libpcre3 xz-utils liblzma5
    python3.9-minimal libpython3.9-minimal libpython3.9-stdlib libexpat1 zlib1g)
root=$cache/old-glibc/$(printf '%s\n' bullseye "${packages[@]}" | sha256sum | cut -c 1-12)

. ci/debian.sh
[ -e "$root" ] || unpack_debian bullseye amd64 "$root" "${packages[@]}"
libraries=$root/lib/x86_64-linux-gnu
loader=$libraries/ld-2.31.so

# The compiler that the tests of capi/ call.
mkdir -p "$work/bin"
cat >"$work/bin/old-glibc-cc" <<END
#!/bin/sh
exec ${CC:-cc} --sysroot=$root -B$root/usr/lib/x86_64-linux-gnu -L$root/usr/lib/x86_64-linux-gnu -L$libraries \\
    -Wl,--dynamic-linker=$loader -Wl,--disable-new-dtags -Wl,-rpath,$libraries "\$@"
END

# Runs a program of the old system; $PRELOAD, if set, names the library.
cat >"$work/bin/old" <<END
#!/bin/sh
program=$root/\$1
shift
exec "$loader" --library-path "$libraries:$root/usr/lib/x86_64-linux-gnu" \${PRELOAD:+--preload "\$PRELOAD"} "\$program" "\$@"
END
chmod +x "$work/bin/"*
export PATH="$work/bin:$PATH"

# ---- Debian's programs

# same NAME COMMAND...: the command prints the same under the library, and refills its caches.
same() {
    local name=$1
    shift
    old "$@" >"$work/plain"
    PRELOAD=$library NEAP_STATS=json NEAP_STATS_FILE=$work/$name.json timeout 300 \
        old "$@" >"$work/neap" 2>"$work/messages"
    cmp "$work/plain" "$work/neap"
    [ ! -s "$work/messages" ] || die "$name wrote on stderr: $(cat "$work/messages")"
    grep -q '"refills":[1-9]' "$work/$name.json" || die "$name: no cache of the library's was refilled"
    echo "pass old-glibc/$name"
}

seq 1 300000 | shuf --random-source=<(yes) >"$work/numbers"
# Neither libpthread nor libdl; forks.
same bash bin/bash -c 'for i in {1..30000}; do a[i]=$i; done; echo ${#a[@]}; echo $(echo forked); (exit 3); echo $?'
# libdl.
same gawk usr/bin/gawk '{ a[$1 % 5000] = a[$1 % 5000] $1 } END { for (i = 0; i < 5000; i++) print a[i] }' "$work/numbers"
# libpthread without libdl; threads.
same sort usr/bin/sort --parallel=4 -S 8M "$work/numbers"
same xz usr/bin/xz -T2 --block-size=200KiB -c "$work/numbers"
# Both.
same grep bin/grep -E '(1|2)+3(4|5)' "$work/numbers"
PYTHONHOME=$root/usr same python usr/bin/python3.9 -c '
import os, threading
def work(n):
    return sum(len(str(i) * (i % 50)) for i in range(n))
results = []
threads = [threading.Thread(target=lambda n=n: results.append(work(n))) for n in range(20000, 60000, 10000)]
[t.start() for t in threads]
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if work(1000) else 1)
    assert os.waitpid(pid, 0)[1] == 0
[t.join() for t in threads]
print(sorted(results))
'

# ---- the tests of capi/, as far as they concern what differs

export C_LIBRARY_UNDER_TEST=old-glibc LIBRARY_UNDER_TEST=$library
cargo test -q -p neap-c --test preload -- late:: semantics:: process:: faults:: misuse:: entry_points:: \
    fork::fork_while_a_thread_flushes
