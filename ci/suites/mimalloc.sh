# shellcheck shell=bash
# mimalloc's tests, from Debian's source package (its crate has none); shim/mimalloc/ maps
# mimalloc's names to the standard functions.

sources=$cache/sources/mimalloc/test

obtain() { debian mimalloc 'test/*'; }

build() {
    local options=(-O1 -I"$shim" -I"$sources" -pthread)
    compile test-stress "${CC:-cc}" "${options[@]}" -DUSE_STD_MALLOC "$sources/test-stress.c"
    compile test-api "${CC:-cc}" "${options[@]}" "$sources/test-api.c"
    compile test-api-fill "${CC:-cc}" "${options[@]}" "$sources/test-api-fill.c"
}

tests() {
    check test-api test-api
    check test-api-fill test-api-fill
    # Threads, scale in percent, iterations.
    check test-stress test-stress 8 10 20
    check test-stress@crowd test-stress 32 10 20
    check test-stress@alone test-stress 1 50 20
}
