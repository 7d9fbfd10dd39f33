#!/usr/bin/env bash
# ci/ledger.sh FILE: runs every real program (TEST_TIER as usual) under LIBRARY_UNDER_TEST, and
# writes to FILE how the ledgers of their processes compare with the kernel's counts (see
# programs/src/ledger).
set -euo pipefail
cd "$(dirname "$0")/.."

file=${1:?"the record's file"}
library=${LIBRARY_UNDER_TEST:?"the library (ci/dist.sh builds it)"}
output=$(mktemp)
trap 'rm -f "$output"' EXIT
cargo test -q -p neap-programs --test programs | tee "$output"
{
    echo "# date: $(date +%F)"
    echo "# revision: $(git rev-parse --short=12 HEAD)"
    echo "# processor: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    echo "# cores: $(nproc)"
    echo "# memory: $(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
    echo "# kernel: $(uname -r)"
    echo "# thp: $(cat /sys/kernel/mm/transparent_hugepage/enabled)"
    echo "# glibc: $(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)"
    echo "# version of neap: library of $(stat -c %s "$library") bytes, sha256 $(sha256sum "$library" | cut -c -16)"
    sed -n 's/^ledger: //p' "$output"
} >"$file"
