# shellcheck shell=bash
# gperftools' tests of the standard interface, from Debian's source package, with shim/gperftools/
# in place of its own headers.

sources=$cache/sources/google-perftools/src/tests
programs_of_gperftools=(large_heap_fragmentation memalign realloc tcmalloc_large thread_dealloc)

obtain() { debian google-perftools 'src/tests/*'; }

build() {
    local name options
    # Only the directory `tests` is gperftools' own; all its other headers are replaced.
    mkdir -p "$programs/include"
    ln -sfn "$sources" "$programs/include/tests"
    options=(-O1 -fno-builtin -I"$shim" -I"$programs/include" -pthread)
    compile testutil.o "${CXX:-c++}" "${options[@]}" -c "$sources/testutil.cc"
    wait
    for name in "${programs_of_gperftools[@]}"; do
        compile "$name" "${CXX:-c++}" "${options[@]}" "$sources/${name}_unittest.cc" "$programs/testutil.o"
    done
}

tests() {
    local name
    for name in "${programs_of_gperftools[@]}"; do
        check "$name" "$name"
    done
}
