# shellcheck shell=bash
# oneTBB's tests of its allocator's C interface, from Debian's source package; shim/onetbb/ maps
# oneTBB's names to the standard functions.

sources=$cache/sources/onetbb
programs_of_onetbb=(compliance init_shutdown new_handler pure_c regression)

obtain() { debian onetbb 'test/*' 'include/*' 'src/tbbmalloc/*' 'src/tbbmalloc_proxy/*' 'src/tbb/*'; }

build() {
    local name options=(-O1 -I"$shim" -I"$sources" -I"$sources/include" -I"$sources/src" -I"$sources/test"
        -pthread)
    for name in "${programs_of_onetbb[@]}"; do
        set -- "${CXX:-c++}" -std=c++17 "$sources/test/tbbmalloc/test_malloc_$name.cpp"
        [ "$name" != pure_c ] || set -- "${CC:-cc}" "$sources/test/tbbmalloc/test_malloc_pure_c.c"
        compile "$name" "$@" "${options[@]}" -ldl
    done
}

tests() {
    local name
    for name in "${programs_of_onetbb[@]}"; do
        check "$name" "$name"
    done
}
