# shellcheck shell=bash
# glibc's tests of malloc, from Debian's source package, run as glibc's own makefile runs them:
# plain and in its variants. @malloc-check loads Neap and glibc's debugging malloc together.

sources=$cache/sources/glibc
# Only the headers that need no others; the rest of the directory must not be on the search path.
headers=(array_length.h libc-diag.h intprops.h scratch_buffer.h alloc_buffer.h)

obtain() {
    debian glibc 'malloc/*' 'support/*' test-skeleton.c \
        "${headers[@]/#/include/}" 'sysdeps/generic/malloc-size.h' \
        'sysdeps/generic/malloc-alignment.h'
}

build() {
    local file name options=(-O1 -include "$shim/shim.h" -I"$shim" -I"$programs/include"
        -I"$sources" -I"$sources/support")
    mkdir -p "$programs/include" "$programs/support"
    cp "${headers[@]/#/$sources/include/}" "$sources/sysdeps/generic/"malloc-*.h "$programs/include/"
    for file in "$sources"/support/{check,delayed_exit,ignore_stderr,oom_error,temp_file,write_message}.c \
        "$sources"/support/support_{test_main,record_failure,test_verify_impl}*.c \
        "$sources"/support/support_{capture_subprocess,process_state,subprocess,shared,test_compare,quote}*.c \
        "$sources"/support/{xpthread_,x,next_to_fault,blob_repeat,support_set_small}*.c \
        "$sources"/malloc/{alloc_buffer,scratch_buffer,dynarray}_*.c "$shim/root.c"; do
        name=$(basename "$file" .c)
        case $name in *_main | xclone) [ "$name" = support_test_main ] || continue ;; esac
        compile "support/$name.o" "${CC:-cc}" "${options[@]}" -c "$file"
    done
    wait
    [ -e "$programs/support.a" ] || ar rcs "$programs/support.a" "$programs"/support/*.o
    for file in "$sources"/malloc/{tst-*,mallocbug}.c; do
        name=$(basename "$file" .c)
        case $name in
            *-aux* | *-skeleton | *-static-*) continue ;;
            tst-interpose-*) set -- "$sources/malloc/tst-interpose-aux-${name##*-}.c" ;;
            tst-mallocstate) set -- -lc_malloc_debug ;;
            *) set -- ;;
        esac
        compile "$name" "${CC:-cc}" "${options[@]}" "$file" "$programs/support.a" -pthread "$@"
        # Linked with this library, glibc's mcheck checks every call of the program.
        compile "$name@mcheck" "${CC:-cc}" "${options[@]}" "$file" "$programs/support.a" \
            -pthread "$@" -lmcheck
    done
}

# The tests that glibc's makefile leaves out of a variant.
in_variant() { # in_variant VARIANT NAME
    case $1/$2 in
        */tst-compathooks-* | */tst-mtrace | */tst-dynarray* | */tst-scratch_buffer) false ;;
        malloc-check/tst-malloc-check | malloc-check/tst-malloc-usable) false ;;
        malloc-check/tst-mxfast | malloc-check/tst-safe-linking) false ;;
        hugetlb*/tst-interpose-* | hugetlb*/tst-malloc-usable* | hugetlb*/tst-mallocstate) false ;;
        hugetlb2/tst-free-errno) false ;;
        mcheck/tst-mallocstate | mcheck/tst-safe-linking | mcheck/tst-mxfast) false ;;
        mcheck/tst-malloc-backtrace | mcheck/tst-malloc-fork-deadlock) false ;;
        mcheck/tst-malloc-stats-cancellation | mcheck/tst-malloc-t*) false ;;
        mcheck/tst-malloc-usable-tunables | mcheck/tst-malloc_info) false ;;
        *) ;;
    esac
}

tests() {
    local file name debug=LD_PRELOAD=libc_malloc_debug.so.0 plain own_malloc
    for file in "$sources"/malloc/{tst-*,mallocbug}.c; do
        name=$(basename "$file" .c)
        plain=() own_malloc=
        case $name in
            *-aux* | *-skeleton | *-static-*) continue ;;
            tst-interpose-*) own_malloc=yes ;;
            tst-malloc-check | tst-malloc-usable) plain=(MALLOC_CHECK_=3 $debug) ;;
            tst-malloc-usable-tunables) plain=(GLIBC_TUNABLES=glibc.malloc.check=3 $debug) ;;
            tst-mxfast) plain=(GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0) ;;
            tst-compathooks-on | tst-mallocstate) plain=($debug) ;;
        esac
        check "$name" "${plain[@]}" "$name"
        [ "$tier" = full ] || continue
        check "$name@neap-check" NEAP_CHECK=1 "${plain[@]}" "$name"
        if in_variant malloc-check "$name"; then
            check "$name@malloc-check" MALLOC_CHECK_=3 $debug "$name"
        fi
        if in_variant mcheck "$name"; then
            check "$name@mcheck" $debug "$name@mcheck"
        fi
        for number in 1 2; do
            if in_variant hugetlb$number "$name"; then
                check "$name@hugetlb$number" "GLIBC_TUNABLES=glibc.malloc.hugetlb=$number" "$name"
            fi
        done
    done
}
