#!/usr/bin/env bash
# ci/musl-versions.sh [quick|full] [LIBRARY]
#
# Runs the tests of capi/ with other versions of musl than this machine's: 1.2.2 from Debian 11, and
# 1.2.5 from Debian 13. With the second, the C++ programs run as well. This machine's g++ compiles
# them, and the C++ runtime is Alpine's. The quick set is what every C library must serve, on 1.2.2.
#
# Nothing is installed: a mount of its own puts the version in place of the machine's musl.
set -euo pipefail
cd "$(dirname "$0")/.."

tier=${1:-quick}
target=$(realpath "${CARGO_TARGET_DIR:-target}")
library=$(realpath "${2:-$target/dist/libneap.so}")
case $tier in
    quick)
        tests=(entry_points:: semantics:: cxx:: process:: symbols:: fork::fork_while_a_thread_flushes
            limits::over_the_hard misuse::delete stacks::fibers)
        releases=(bullseye)
        ;;
    full) tests=() releases=(bullseye trixie) ;;
    *) echo "usage: $0 [quick|full] [LIBRARY]" >&2; exit 2 ;;
esac
if ! command -v musl-gcc >/dev/null; then
    [ -z "${REQUIRE_ALL:-}" ] || { echo "ci/musl-versions.sh: install musl-tools" >&2; exit 1; }
    echo "SKIPPED: other versions of musl: install musl-tools"
    exit 0
fi
cache=$target/suites
mkdir -p "$cache/musl"
. ci/suites/tools.sh
. ci/musl/tools.sh
if ! has_mounts; then
    echo "SKIPPED: other versions of musl: they need mounts of their own (unshare --mount), as root"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The compiler for C++, in $work. Its C++ headers are glibc's but for those in ci/musl/include/.
# What it makes needs no directory of its own at run time.
make_cxx() {
    local version machine runtime=$work/runtime
    version=$(g++ -dumpversion)
    machine=$(g++ -print-multiarch)
    alpine cmake
    mkdir "$runtime"
    ln -s "$alpine"/cmake.libs/* "$runtime"
    ln -s "$runtime"/libstdc++-*.so.6* "$runtime/libstdc++.so"
    ln -s "$runtime"/libgcc_s-*.so.1 "$runtime/libgcc_s.so"
    ln -s "$musl" "$runtime/libc.musl-${machine%%-*}.so.1"
    ln -s "/usr/lib/$machine/libboost_context.a" "$runtime"
    # Debian's libgcc_eh.a needs glibc 2.35. Alpine's libgcc_s takes its place.
    sed "s/libgcc\\.a%s.*/libgcc.a%s/" /usr/lib/*-linux-musl/musl-gcc.specs >"$work/specs"
    cat >"$work/musl-g++" <<END
#!/bin/sh
exec g++ -specs $work/specs -nostdinc++ -isystem $PWD/ci/musl/include -isystem /usr/include/c++/$version \\
    -isystem /usr/include/$machine/c++/$version "\$@" -L$runtime -Wl,--eh-frame-hdr -Wl,-rpath,$runtime \\
    -Wl,-rpath-link,$runtime -lgcc_s
END
    chmod +x "$work/musl-g++"
    export PATH="$work:$PATH"
}

# The names that the library takes from every C library are in this version.
has_names() {
    local lacks
    lacks=$(comm -13 <(nm --dynamic --defined-only "$musl" | awk '{ print $3 }' | sort) \
        <(awk '$1 == "U" { print $2 }' capi/tests/imports.golden | sort))
    [ -z "$lacks" ] || die "musl of $1 lacks: $lacks"
}

export C_LIBRARY_UNDER_TEST=musl LIBRARY_UNDER_TEST=$library
cargo test -q -p neap-c --test preload --no-run
for release in "${releases[@]}"; do
    musl_of $release
    has_names $release
    # The C++ runtime needs relative relocations, which musl has since 1.2.4.
    [ $release = bullseye ] || make_cxx
    echo "musl of Debian $release: $("$musl" 2>&1 | sed -n 's/^Version //p')"
    with_musl "$musl" cargo test -q -p neap-c --test preload -- "${tests[@]}"
done
