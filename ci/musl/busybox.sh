#!/usr/bin/env bash
# Compiles busybox for musl, and puts its own tests beside it: ci/musl/busybox.sh SOURCES OUTPUT
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r "$1/." "$work"
headers="-idirafter /usr/include -idirafter /usr/include/$(gcc -print-multiarch)"
compile() {
    make -s -j2 -C "$work" CC="musl-gcc -w -O1 $headers" HOSTCC="gcc -w" SKIP_STRIP=y "$@" </dev/null
}
compile defconfig >"$work/log"
compile busybox >>"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
mkdir -p "$2"
install "$work/busybox" "$2"
cp -r "$work/"{testsuite,shell,.config} "$2"
