#!/usr/bin/env bash
# Lists the functions of a C library that have a frame larger than an OS page and no stack probes,
# largest frame first: ci/frames.sh [ARCHIVE]. The guard of a stack has to be larger
# (docs/stacks.md). Reads the archive (libc.a), because a stripped shared library does not name
# static functions. x86-64 only.
set -euo pipefail
objdump -d --no-show-raw-insn "${1:-$(cc -print-file-name=libc.a)}" | awk '
    function end() {
        for (i = 1; i <= count && !probes; i++) print frames[i], name
        count = probes = 0
    }
    /^[0-9a-f]+ <.*>:$/ { end(); name = substr($2, 2, length($2) - 3) }
    # A probe touches each page while the frame grows.
    /or[lq] +\$0x0,\(%rsp\)/ { probes = 1 }
    /sub +\$0x[0-9a-f]+,%rsp/ { split($NF, parts, /[$,]/); frames[++count] = parts[2] }
    END { end() }
' | while read -r frame name; do
    [ $((frame)) -le 4096 ] || echo "$((frame)) $name"
done | sort -rn | awk '!seen[$2 FS $1]++'
