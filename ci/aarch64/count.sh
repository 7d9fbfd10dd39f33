#!/usr/bin/env bash
# count.sh LIBRARY: prints how many instructions a call of each entry point takes on AArch64, with
# the return, as `neap-lab golden` does on x86-64. qemu (8.1 or newer) executes one instruction at a
# time and logs the address of each (-one-insn-per-tb -d nochain,exec). Each entry point is called a
# hundred times, and the most frequent count is printed: calls with other counts take a slow path.
set -euo pipefail
library=$(realpath "$1")
cd "$(dirname "$0")"
work=$(mktemp -d)
reader=
trap '[ -z "$reader" ] || kill "$reader" 2>/dev/null || true; rm -rf "$work"' EXIT

aarch64-linux-gnu-gcc -O1 -fno-builtin -no-pie -o "$work/count" count.c
address() { aarch64-linux-gnu-nm "$work/count" | sed -n "s/ [Tt] $1\$//p"; }
mkfifo "$work/log"
awk -F/ -v call="$(address mark_call)" -v back="$(address mark_return)" '
    BEGIN { split("nothing malloc-64 free-64 calloc-64 realloc-64 new-64 delete-64", names, " ") }
    $2 == call { count = 0; inside = 1; next }
    $2 == back && inside {
        inside = 0
        calls += 1
        entry = int((calls + 99) / 100)
        times = ++seen[entry, count]
        if (times > most[entry]) { most[entry] = times; usual[entry] = count }
        next
    }
    inside { count++ }
    END {
        print "# by ci/aarch64/count.sh target/dist-aarch64/libneap.so"
        print "# instructions of one call, the return included"
        if (calls != 700 || usual[1] != 1) { print "counted " calls " calls, nothing takes " usual[1]; exit 1 }
        for (entry = 2; entry <= 7; entry++) printf "%-12s%8.1f\n", names[entry], usual[entry]
    }' "$work/log" >"$work/counts" &
reader=$!
timeout 120 qemu-aarch64 -one-insn-per-tb -d nochain,exec -D "$work/log" \
    -L "${SYSROOT_UNDER_TEST:-/usr/aarch64-linux-gnu}" -E "LD_PRELOAD=$library" "$work/count"
timeout 10 tail --pid="$reader" -f /dev/null || { echo "count.sh: qemu wrote no log" >&2; exit 1; }
wait "$reader" || { cat "$work/counts" >&2; exit 1; }
cat "$work/counts"
