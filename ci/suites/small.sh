# shellcheck shell=bash
# Tests of small C libraries, from Debian's source packages: klibc's and dietlibc's.

obtain() {
    debian klibc 'usr/klibc/tests/*'
    debian dietlibc 'test/*'
}

build() {
    local name
    for name in malloctest malloctest2 malloctest3; do
        compile "klibc-$name" "${CC:-cc}" -O1 "$cache/sources/klibc/usr/klibc/tests/$name.c"
    done
    for name in stdlib/tst-calloc stdlib/tst-malloc calloc; do
        compile "dietlibc-${name#*/}" "${CC:-cc}" -O1 "$cache/sources/dietlibc/test/$name.c"
    done
}

tests() {
    local name
    for name in klibc-malloctest{,2,3} dietlibc-{tst-calloc,tst-malloc,calloc}; do
        check "$name" "$name"
    done
}
