#!/usr/bin/env bash
# Runs real programs of musl's under the shipped library (target/dist/libneap.so): Lua, SQLite and
# zstd, compiled here by musl-gcc. The sources come from Debian's archive and crates.io, as those of
# ci/suites.sh, and are kept beside them. Each program must print the same as without the library.
# `neap run` checks that the library serves it.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v musl-gcc >/dev/null; then
    [ -z "${REQUIRE_ALL:-}" ] || { echo "ci/musl.sh: install musl-tools" >&2; exit 1; }
    echo "SKIPPED: programs of musl's: install musl-tools"
    exit 0
fi
target=$(realpath "${CARGO_TARGET_DIR:-target}")
cache=$target/suites
origins=()
mkdir -p "$cache/download" "$cache/sources"
. ci/suites/tools.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

debian lua5.4 'src/*'
debian libzstd 'lib/*' 'programs/*'
crates libsqlite3-sys=0.35.0

# Compiled again when the recipe or a source changes.
recipe=$(cat ci/musl.sh ci/musl/sqlite.c "${origins[@]}" | sha256sum | cut -c 1-12)
programs=$cache/programs/musl/$recipe
mkdir -p "$programs"

# build PROGRAM FLAG...: compiles it, unless it is there.
build() {
    local program=$programs/$1
    shift
    [ ! -e "$program" ] || return 0
    musl-gcc -O1 -w -pthread -o "$program.part" "$@"
    mv "$program.part" "$program"
}

sources=$cache/sources
build lua -DLUA_USE_POSIX $(ls "$sources/lua5.4/src/"*.c | grep -v /luac.c) -lm &
compilers=($!)
build sqlite -I"$sources/libsqlite3-sys/sqlite3" ci/musl/sqlite.c "$sources/libsqlite3-sys/sqlite3/sqlite3.c" -lm &
compilers+=($!)
build zstd -DZSTD_MULTITHREAD -DZSTD_DISABLE_ASM -DZSTD_LEGACY_SUPPORT=0 -DXXH_NAMESPACE=ZSTD_ -DBACKTRACE_ENABLE=0 \
    -I"$sources/libzstd/"{lib,lib/common,lib/dictBuilder,programs} "$sources/libzstd/programs/"*.c \
    "$sources/libzstd/lib/"{common,compress,decompress,dictBuilder}/*.c &
compilers+=($!)
for compiler in "${compilers[@]}"; do
    wait "$compiler"
done

# same NAME COMMAND...: the command, whose first word is a program, prints the same under the library.
same() {
    local name=$1 program=$programs/$2
    shift 2
    "$program" "$@" >"$work/plain"
    timeout 300 "$target/dist/neap" run --stats="$work/$name.json" --format json -- "$program" "$@" >"$work/neap"
    cmp "$work/plain" "$work/neap"
    grep -q '"refills":[1-9]' "$work/$name.json" || die "$name has no statistics of the library's heap"
    "$target/dist/neap" doctor -- "$program" >"$work/doctor" </dev/null || die "neap doctor refuses $name"
    echo "pass musl/$name"
}

seq 1 3000000 >"$work/numbers"
same lua lua ci/musl/heap.lua
same sqlite sqlite
same zstd zstd -q -c -T3 -7 "$work/numbers"
cp "$work/neap" "$work/numbers.zst"
same unzstd zstd -q -c -d "$work/numbers.zst"
cmp "$work/neap" "$work/numbers"
