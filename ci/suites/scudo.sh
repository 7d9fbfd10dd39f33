# shellcheck shell=bash
# Scudo's tests of its replacements of malloc and operator new, which Android's C library also runs,
# with shim/scudo/ in place of its headers and GoogleTest.

sources=$cache/sources/scudo-sys/scudo-standalone/tests

obtain() { crates scudo-sys=0.2.2; }

build() {
    local name
    for name in wrappers_c wrappers_cpp; do
        compile "$name" "${CXX:-c++}" -std=c++17 -O1 -fno-builtin -I"$shim" -pthread \
            "$sources/${name}_test.cpp"
    done
}

tests() {
    # malloc_iterate, the values of mallopt and mallinfo, and the document of malloc_info are
    # Scudo's own. AlignedAlloc expects EINVAL for a size that is no multiple of the alignment, as
    # in C11; C17 and glibc allocate the block.
    check wrappers_c wrappers_c MallocIterateBoundary MallocInfo MallOpt AlignedAlloc MallInfo
    check wrappers_cpp wrappers_cpp
}
