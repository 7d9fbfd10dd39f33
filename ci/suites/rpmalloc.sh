# shellcheck shell=bash
# rpmalloc's tests, with its names given to the standard functions by shim/rpmalloc/rpmalloc.h.

sources=$cache/sources/rpmalloc-sys/rpmalloc/test

obtain() { crates rpmalloc-sys=0.2.3; }

build() {
    local options=(-O1 -D_GNU_SOURCE -I"$shim" -I"$sources" -pthread)
    compile thread.o "${CC:-cc}" "${options[@]}" -c "$sources/thread.c"
    wait
    # Its first test wants rpmalloc's size classes, byte by byte.
    sed 's/if (test_alloc())/if (0)/' "$sources/main.c" >"$programs/main.c"
    compile main "${CC:-cc}" -std=gnu17 "${options[@]}" "$programs/main.c" "$programs/thread.o" -lm
    compile main-override "${CXX:-c++}" "${options[@]}" "$sources/main-override.cc" "$programs/thread.o"
}

tests() {
    check main main
    check main-override main-override
}
