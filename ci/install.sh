#!/usr/bin/env bash
# Installs what the checks need beyond cargo and a C compiler, from Debian's archive and the Go
# module proxy. Run it as root. It leaves existing installations alone, whatever their source.
set -euo pipefail
cd "$(dirname "$0")/.."

# command or file that proves the installation : package that contains it
wanted=(
    gcc:gcc g++:g++ clang++:clang make:make git:git
    setpriv:util-linux unshare:util-linux mkswap:util-linux swapon:mount
    # The torture test's userfaultfd, seccomp and page map.
    /usr/include/linux/userfaultfd.h:linux-libc-dev
    valgrind:valgrind strace:strace
    /usr/bin/python3:python3 /usr/lib/python3*/test/test_json/__init__.py:libpython3-testsuite
    /usr/lib/python3*/ensurepip/__init__.py:python3-venv
    perl:perl /usr/bin/ruby:ruby sqlite3:sqlite3 node:nodejs java:default-jre-headless go:golang-go
    redis-server:redis-server redis-benchmark:redis-tools nginx:nginx-light wrk:wrk
    memcached:memcached /usr/lib/postgresql/*/bin/postgres:postgresql
    /usr/bin/php:php-cli /usr/lib/php/*/mbstring.so:php-mbstring /usr/lib/php/*/dom.so:php-xml
    # The other C library.
    musl-gcc:musl-tools
    # Projects that link the library.
    cmake:cmake pkg-config:pkg-config
    # Opens the reports, metrics and profiles; pprof itself is below.
    chromium:chromium prometheus:prometheus promtool:prometheus
    # Coroutines in C++.
    /usr/include/boost/context/fiber.hpp:libboost-context-dev
    # Needed by ci/suites.sh and to unpack its sources.
    stress-ng:stress-ng xz:xz-utils
    # Checks the packages for Debian.
    lintian:lintian
    # A guest under an emulator, and older kernels.
    qemu-x86_64:qemu-user qemu-system-x86_64:qemu-system-x86 qemu-system-aarch64:qemu-system-arm
    busybox:busybox-static cpio:cpio
    # Programs for AArch64, which the same emulators run. The Rust target comes from rustup (below).
    aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-g++:g++-aarch64-linux-gnu
    /usr/aarch64-linux-gnu/include/stdio.h:libc6-dev-arm64-cross
    # Allocators to compare with.
    /usr/lib/*/libjemalloc.so.2:libjemalloc2
    /usr/lib/*/libmimalloc.so.2.0:libmimalloc2.0
    /usr/lib/*/libtcmalloc_minimal.so.4:libtcmalloc-minimal4
)

export PATH="$PATH:/usr/sbin:/sbin:$HOME/go/bin"

is_there() {
    case $1 in
        /*) compgen -G "$1" >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

missing=()
for entry in "${wanted[@]}"; do
    is_there "${entry%:*}" || missing+=("${entry##*:}")
done

# Packages of servers would start them; this file tells Debian's scripts not to.
policy=/usr/sbin/policy-rc.d

# patiently COMMAND...: an apt-get that waits up to ten minutes for another one to end. apt-get's
# own option for that covers only dpkg's lock; on the lock of the lists or of the archives it fails
# at once.
patiently() {
    local deadline=$((SECONDS + 600)) said
    said=$(mktemp)
    until "$@" -o DPkg::Lock::Timeout=600 2>"$said"; do
        if ! grep -q 'Could not get lock\|Unable to lock' "$said" || [ $SECONDS -ge $deadline ]; then
            cat "$said" >&2
            rm "$said"
            return 1
        fi
        echo "waiting for another apt-get"
        sleep 5
    done
    rm "$said"
}

install_missing() {
    local python
    if [ ! -e $policy ]; then
        trap 'rm -f $policy' EXIT
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
    fi
    export DEBIAN_FRONTEND=noninteractive
    patiently apt-get update -qq
    # The test suite's package is named after the version of the distribution's Python.
    python=$(apt-cache depends python3 | sed -n 's/^ *Depends: \(python3\.[0-9]*\)$/\1/p')
    missing=("${missing[@]/#libpython3-testsuite/lib$python-testsuite}")
    echo "installing: ${missing[*]}"
    patiently apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
    for entry in "${wanted[@]}"; do
        is_there "${entry%:*}" || { echo "still missing: $entry" >&2; exit 1; }
    done
}

if [ ${#missing[@]} -eq 0 ]; then
    echo "Debian's packages: all there"
else
    install_missing
fi
# From the Go module proxy: the newest version that builds with Debian's Go.
command -v pprof >/dev/null || go install github.com/google/pprof@v0.0.0-20230602150820-91b7bce49751
# From rustup's server, if it can be reached: the standard library of two more targets. Without one,
# ci/musl-service.sh, ci/linked.sh and ci/aarch64.sh say what they skip.
targets=(x86_64-unknown-linux-musl aarch64-unknown-linux-gnu)
! command -v rustup >/dev/null || timeout 180 rustup target add "${targets[@]}" ||
    echo "rustup cannot add ${targets[*]}" >&2
# For ThreadSanitizer in ci/sanitizers.sh, which says what it skips without: the standard library's
# source.
! command -v rustup >/dev/null || timeout 180 rustup component add rust-src ||
    echo "rustup cannot add rust-src" >&2
