# shellcheck shell=bash
# rpmalloc's tests; shim/rpmalloc/rpmalloc.h maps its names to the standard functions.

sources=$cache/sources/rpmalloc-sys/rpmalloc/test

obtain() { crates rpmalloc-sys=0.2.3; }

build() {
    local options=(-O1 -D_GNU_SOURCE -I"$shim" -I"$sources" -pthread)
    compile thread.o "${CC:-cc}" "${options[@]}" -c "$sources/thread.c"
    wait
    # Its first test expects rpmalloc's exact size classes.
    sed 's/if (test_alloc())/if (0)/' "$sources/main.c" >"$programs/main.c"
    compile main "${CC:-cc}" -std=gnu17 "${options[@]}" "$programs/main.c" "$programs/thread.o" -lm
    compile main-override "${CXX:-c++}" "${options[@]}" "$sources/main-override.cc" "$programs/thread.o"
}

tests() {
    check main main
    check main-override main-override
}
