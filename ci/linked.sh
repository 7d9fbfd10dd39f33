#!/usr/bin/env bash
# Links programs with the shipped library, as its users do: with CMake and with pkg-config, with the
# shared library and with the archive, dynamic and fully static, with glibc and with musl. It starts
# from an empty directory with what ci/install-prefix.sh installs from target/dist/.
#
# Each program must use Neap's malloc: it names Neap's version, its statistics at the end count its
# calls, and its misuse ends with Neap's line.
set -euo pipefail
cd "$(dirname "$0")/.."
install=$PWD/ci/install-prefix.sh
dist=$(realpath "${CARGO_TARGET_DIR:-target}")/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fails=0

# Moved after its installation, because a package's files are.
"$install" "$work/installed"
mv "$work/installed" "$work/prefix"
cp -r ci/linked "$work/project"
mkdir "$work/boost"
cp capi/tests/programs/boost_context.cc "$work/boost/"
# The file in the project, not that of the sources.
sed -i 's|"../../include/neap/|"neap/|' "$work/boost/boost_context.cc"
cd "$work"
unset LD_PRELOAD LD_LIBRARY_PATH
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig

has() { # has COMMAND PACKAGE WHAT
    command -v "$1" >/dev/null || { echo "SKIPPED: $3: install $2" && return 1; }
}

# judged NAME COMMAND...: says whether it succeeds; shows its output if not.
judged() {
    local name=$1
    shift
    if "$@" >"$work/said" 2>&1; then
        echo "pass linked/$name"
    else
        echo "FAIL linked/$name: $*"
        sed 's/^/    /' "$work/said"
        fails=$((fails + 1))
    fi
}

# counted PROGRAM [WORD]...: it succeeds, and its statistics at the end are those of a heap in use.
counted() {
    rm -f statistics
    NEAP_STATS=json NEAP_STATS_FILE=$work/statistics timeout 300 "$@" || return
    grep -q '"refills":[1-9]' statistics || { echo "no statistics of Neap's" && return 1; }
}

# named PROGRAM: as `counted`, and it says Neap's version.
named() {
    counted "$@" | grep -x 'Neap [0-9.]*'
}

# examined PROGRAM: a static one; the doctor finds Neap in it, even without symbols.
examined() {
    strip -o "$work/stripped" "$1"
    "$dist/neap" doctor -- "$work/stripped" >"$work/doctor"
    grep '^This program uses Neap[.]' "$work/doctor" && ! grep 'tables for unwinding' "$work/doctor"
}

# refused LINE PROGRAM WORD...: it ends by abort() after a line of Neap's.
refused() {
    local line=$1 status=0
    shift
    timeout 60 "$@" || status=$?
    [ $status -eq 134 ] && grep -q "^neap: .*$line" "$work/said"
}

# traced PROGRAM: the three stack traces of a guarded sample's report begin in the program, not in
# Neap. Those of the allocation and of the free go on; with musl, that of the access may end there.
traced() {
    local status=0
    rm -f reported
    NEAP_GUARD=all NEAP_GUARD_FILE=$work/reported timeout 60 "$1" freed || status=$?
    [ $status -eq 139 ] || return
    "$dist/neap" report reported --output report.html >traces || return
    cat traces
    [ "$(grep -cE '#0 (main|misuse) ' traces)" -eq 3 ] && [ "$(grep -c '#1 ' traces)" -ge 2 ]
}

# With NEAP_PURGE_THREAD=always, every program has the thread from its start.
purged() {
    NEAP_PURGE_THREAD=always "$1" idle
}

# With NEAP_PURGE_THREAD=never, no call starts it.
forbidden() {
    ! NEAP_PURGE_THREAD=never "$1" started && grep -q 'not so: the thread starts' "$work/said"
}

# c_program NAME PROGRAM, cxx_program NAME PROGRAM: all checks of one.
c_program() {
    judged "$1" named "$2"
    judged "$1/double-free" refused "double free of" "$2" double-free
    judged "$1/foreign-free" refused "free of" "$2" foreign-free
    judged "$1/wrong-size" refused "size" "$2" wrong-size
    judged "$1/traced" traced "$2"
    judged "$1/hardened" refused "past whose end" env NEAP_HARDEN=1 "$2" overflow
    judged "$1/purge-thread" purged "$2"
    judged "$1/started-thread" "$2" started
    judged "$1/forbidden-thread" forbidden "$2"
}
cxx_program() {
    judged "$1" named "$2"
    judged "$1/wrong-size" refused "size" "$2" wrong-size
}

# with_cmake NAME TARGET [OPTION]...: the project, and its programs.
with_cmake() {
    local name=cmake/$1 build=$work/build/$1
    shift
    judged "$name/build" cmake_build "$build" -DNEAP="$@"
    c_program "$name/c" "$build/surface"
    cxx_program "$name/c++" "$build/resource"
    judged "$name/indirect" counted "$build/indirect"
    judged "$name/thrown" "$build/thrown"
}
cmake_build() {
    cmake -S project -B "$1" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release "${@:2}" &&
        cmake --build "$1" -j 2
}

# Without the shipped files, the installation says what to run, and makes no directory.
unbuilt() {
    ! CARGO_TARGET_DIR=$work/no-target "$install" "$work/no-prefix" &&
        grep -q 'run ci/dist.sh' "$work/said" && [ ! -e "$work/no-prefix" ]
}
judged install/unbuilt unbuilt

if has cmake cmake "CMake projects"; then
    with_cmake shared Neap::neap
    with_cmake shared-as-needed Neap::neap -DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed
    with_cmake archive Neap::neap-static
    for other in "$work/prefix/lib/libneap.so" /usr/lib/*/libjemalloc.so.2 /usr/lib/*/libtcmalloc_minimal.so.4; do
        [ ! -e "$other" ] || judged "cmake/archive/beside-${other##*/}" \
            refused "${other##*/} has operators that take blocks of the allocator that this program contains" \
            env LD_PRELOAD="$other" "$work/build/archive/resource"
        # A program in C calls no operator.
        [ ! -e "$other" ] || judged "cmake/archive/c-beside-${other##*/}" \
            env LD_PRELOAD="$other" "$work/build/archive/surface"
    done
    with_cmake archive-gc Neap::neap-static -DCMAKE_EXE_LINKER_FLAGS=-Wl,--gc-sections
    with_cmake static Neap::neap-static -DCMAKE_EXE_LINKER_FLAGS=-static
    judged cmake/static/doctor examined "$work/build/static/surface"
    with_cmake static-pie Neap::neap-static "-DCMAKE_EXE_LINKER_FLAGS=-static-pie" -DCMAKE_POSITION_INDEPENDENT_CODE=ON
fi

# linked PROGRAM SOURCE KIND COMPILER...: compiles it with what pkg-config says.
linked() {
    local program=$1 source=$2 flags
    case $3 in
        shared) flags="$(pkg-config --cflags --libs neap) -Wl,-rpath,$work/prefix/lib" ;;
        archive) flags="$(pkg-config --cflags neap) -Wl,--undefined=malloc $work/prefix/lib/libneap.a" ;;
        static) flags="-static $(pkg-config --cflags --libs --static neap)" ;;
    esac
    # The flags are words.
    # shellcheck disable=SC2086
    "${@:4}" -O1 -Wall -Wextra -Werror -pthread "$source" -o "$program" $flags ${LAST_FLAGS-}
}

if has pkg-config pkg-config "projects with pkg-config"; then
    for kind in shared static; do
        judged pkg-config/$kind/c/build linked c-$kind project/surface.c $kind cc -Wno-use-after-free -Wno-free-nonheap-object
        c_program pkg-config/$kind/c ./c-$kind
        judged pkg-config/$kind/indirect/build linked indirect-$kind project/indirect.c $kind cc
        judged pkg-config/$kind/indirect counted ./indirect-$kind
        judged pkg-config/$kind/c++/build linked cxx-$kind project/resource.cc $kind c++ -std=c++17
        cxx_program pkg-config/$kind/c++ ./cxx-$kind
        judged pkg-config/$kind/replaced/build linked replaced-$kind project/replaced.cc $kind c++ -std=c++17 -Wno-mismatched-new-delete -Wno-sized-deallocation
        judged pkg-config/$kind/replaced counted ./replaced-$kind
        if [ -e /usr/include/boost/context/fiber.hpp ]; then
            LAST_FLAGS=-lboost_context judged pkg-config/$kind/boost/build linked boost-$kind boost/boost_context.cc $kind c++ -std=c++17
            judged pkg-config/$kind/boost counted ./boost-$kind
        else
            echo "SKIPPED: Boost.Context: install libboost-context-dev"
        fi
    done
    if has musl-gcc musl-tools "programs with musl"; then
        judged pkg-config/musl/c/build linked c-musl project/surface.c static musl-gcc -w
        c_program pkg-config/musl/c ./c-musl
        judged pkg-config/musl/doctor examined ./c-musl
        judged pkg-config/musl/indirect/build linked indirect-musl project/indirect.c static musl-gcc
        judged pkg-config/musl/indirect counted ./indirect-musl
    fi
fi

# rust PROGRAM FLAG...: compiles it with the archive.
rust() {
    rustc -O project/main.rs -o "$1" -L prefix/lib -l static=neap -C link-arg=-Wl,--undefined=malloc "${@:2}"
}
if has rustc "Rust" "programs in Rust"; then
    judged rust/build rust rust-dynamic
    judged rust named ./rust-dynamic
    judged rust/static/build rust rust-static -C target-feature=+crt-static
    judged rust/static named ./rust-static
    if [ -d "$(rustc --print target-libdir --target x86_64-unknown-linux-musl)" ]; then
        judged rust/musl/build rust rust-musl --target x86_64-unknown-linux-musl
        judged rust/musl named ./rust-musl
    else
        echo "SKIPPED: programs in Rust with musl: rustup target add x86_64-unknown-linux-musl"
    fi
fi

[ $fails -eq 0 ] || { echo "ci/linked.sh: $fails failed" >&2 && exit 1; }
