# shellcheck shell=bash
# jemalloc's integration tests of the standard interface and of mallocx and its relatives, with
# jemalloc's own test framework, and shim/jemalloc/ to map its names.

sources=$cache/sources/tikv-jemalloc-sys/jemalloc/test
programs_of_jemalloc=(aligned_alloc malloc mallocx overflow posix_memalign rallocx sdallocx thread_arena)

obtain() { crates tikv-jemalloc-sys=0.7.1; }

build() {
    local name options=(-O1 -I"$shim" -I"$sources/include" -D_GNU_SOURCE -pthread)
    compile test.o "${CC:-cc}" -std=gnu17 "${options[@]}" -c "$sources/src/test.c"
    compile thd.o "${CC:-cc}" -std=gnu17 "${options[@]}" -c "$sources/src/thd.c"
    wait
    set -- "$programs/test.o" "$programs/thd.o"
    for name in "${programs_of_jemalloc[@]}"; do
        compile "$name" "${CC:-cc}" -std=gnu17 "${options[@]}" "$sources/integration/$name.c" "$@"
    done
    compile basic "${CXX:-c++}" "${options[@]}" "$sources/integration/cpp/basic.cpp" "$@"
}

tests() {
    local name
    for name in "${programs_of_jemalloc[@]}" basic; do
        check "$name" "$name"
    done
}
