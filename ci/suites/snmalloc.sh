# shellcheck shell=bash
# snmalloc's functional tests and benchmarks that use only its test library's header, which
# shim/snmalloc/testlib.cc implements with the standard functions.

sources=$cache/sources/snmalloc-sys/upstream/src

obtain() { crates snmalloc-sys=0.7.6; }

# Leaves out programs that include snmalloc's own allocator: they would test that one.
files() {
    grep -L '<snmalloc/snmalloc.h>\|<snmalloc/backend\|<snmalloc/override/malloc.cc>' \
        "$sources"/test/func/*/*.cc "$sources"/test/perf/*/*.cc | sort
}

name_of() { # func/malloc/malloc.cc: func-malloc
    local directory=${1%/*}
    echo "$(basename "${directory%/*}")-${directory##*/}"
}

build() {
    local file options=(-std=c++20 -O1 -I"$sources" -pthread -DSNMALLOC_USE_WAIT_ON_ADDRESS=1)
    [ "$(uname -m)" != x86_64 ] || options+=(-mcx16)
    compile testlib.o "${CXX:-c++}" "${options[@]}" -c "$shim/testlib.cc"
    wait
    while read -r file; do
        set --
        [[ $file != */func/malloc/* ]] || set -- -include "$shim/unaligned.h"
        compile "$(name_of "$file")" "${CXX:-c++}" "${options[@]}" "$@" "$file" \
            "$programs/testlib.o" -latomic
    done < <(files)
}

tests() {
    local file name
    while read -r file; do
        name=$(name_of "$file")
        check "$name" "$name"
    done < <(files)
}
