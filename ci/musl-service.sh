#!/usr/bin/env bash
# An asynchronous Rust service as a static musl program, with each of four allocators:
# ci/musl-service.sh [quick | full]. `quick` runs it under Neap and musl's own allocator with fewer
# requests; `full` adds mimalloc and jemalloc, and runs each three times in turn.
#
# Each program proves that its allocator is in use. All must serve the same bytes. Neap must give
# back most of what the service took at its peak.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -d "$(rustc --print target-libdir --target x86_64-unknown-linux-musl)" ]; then
    echo "SKIPPED: a Rust service with musl: rustup target add x86_64-unknown-linux-musl"
    exit 0
fi
case ${1:-quick} in
    quick) allocators=(musl neap) rounds=1 requests=100 ;;
    full) allocators=(musl mimalloc jemalloc neap) rounds=3 requests=1000 ;;
    *) echo "usage: ci/musl-service.sh [quick | full]" >&2 && exit 2 ;;
esac
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/musl-service
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for allocator in "${allocators[@]}"; do
    case $allocator in
        musl) features=() ;;
        *) features=(--features "$allocator") ;;
    esac
    # mimalloc and jemalloc are C.
    CC_x86_64_unknown_linux_musl=musl-gcc cargo build -q --locked --release --manifest-path lab/musl/Cargo.toml \
        --target x86_64-unknown-linux-musl --target-dir "$target" "${features[@]}"
    cp "$target/x86_64-unknown-linux-musl/release/musl-service" "$work/$allocator"
    # Not grep -q: it ends at the first hit, then SIGPIPE ends readelf, and the pipe fails.
    if readelf -d "$work/$allocator" | grep NEEDED >/dev/null; then
        echo "ci/musl-service.sh: $allocator's program is not static" >&2
        exit 1
    fi
    if [ $allocator = neap ] && ! readelf --sections "$work/neap" | grep neap_fork >/dev/null; then
        echo "ci/musl-service.sh: neap doctor would not find Neap in the program" >&2
        exit 1
    fi
done

for _ in $(seq $rounds); do
    for allocator in "${allocators[@]}"; do
        "$work/$allocator" $requests | tee -a "$work/said"
    done
done

# value ALLOCATOR NAME: the last one that it said.
value() {
    sed -n "s/^$1 .*\b$2 \([0-9]*\).*/\1/p" "$work/said" | tail -1
}
[ "$(cut -d ' ' -f 2-5 "$work/said" | sort -u | wc -l)" = 1 ] ||
    { echo "ci/musl-service.sh: the programs served different bytes" >&2 && exit 1; }
[ $(($(value neap after_10_s_kib) * 2)) -lt "$(value neap peak_kib)" ] ||
    { echo "ci/musl-service.sh: Neap kept more than half of the peak" >&2 && exit 1; }
echo "pass musl-service"
