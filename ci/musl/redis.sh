#!/usr/bin/env bash
# Compiles redis-server, redis-benchmark and redis-cli for musl: ci/musl/redis.sh SOURCES OUTPUT
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r "$1/." "$work"
# commands.c is in the archive; its generator must only be there and be older.
mkdir -p "$work/utils"
touch -d @0 "$work/utils/generate-command-code.py"
compile() {
    make -s -j2 CC="musl-gcc -w" MALLOC=libc BUILD_TLS=no USE_SYSTEMD=no OPTIMIZATION=-O1 DEBUG= "$@"
}
compile -C "$work/deps" hiredis linenoise lua hdr_histogram
compile -C "$work/src" redis-server redis-benchmark redis-cli
mkdir -p "$2"
install "$work/src/"{redis-server,redis-benchmark,redis-cli} "$2"
