#!/usr/bin/env bash
# archive.sh STATICLIB FILE: makes libneap.a of the static library that rustc built (capi, with the
# feature `archive`). It has one member, whose global names are the library's public ones. All other
# names, among them those of Rust's own libraries, become local, so that they cannot clash with
# those of a program, in Rust or in another language.
set -euo pipefail
cd "$(dirname "$0")/.."
input=$1
output=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Names of libneap.so that the archive leaves to others:
# - those that wrap functions of the C library by the loader's help. A static program has no loader,
#   and these have no replacement in a system call (sigaction and signal need the C library's code
#   that returns from a handler). glibc's archive has its own __register_atfork.
# - the operators that the C++ library defines by others of them. Its forms call Neap's, or those
#   that the program replaces.
left_out='^(__register_atfork|fork|forkpty|_Fork|clone|dlopen|sigaction|signal)$|^_Z(dl|da)Pvm(St11align_val_t)?$|^_Z.*RKSt9nothrow_t$'
grep -vE "$left_out" capi/tests/symbols.golden | LC_ALL=C sort >"$work/public"
# A program may define these itself: operators by the standard, system calls because it always
# could. What it defines instead of malloc is an error, which the linker reports.
grep -E '^(_Z|_exit$|_Exit$|capset$|ioctl$|madvise$|mlockall$|munlockall$|mmap|munmap$|mremap$|prctl$|setns$|shmat$|syscall$|unshare$)' \
    "$work/public" >"$work/weak"

# One section with the library's own code, whose ends the linker names, tells its calls from the
# program's (instruments/src/unwind/mod.rs).
cat >"$work/sections" <<'END'
SECTIONS { neap_text : { *(.text .text.* neap_text) } }
END
"${LD:-ld}" -r -u malloc -T "$work/sections" -o "$work/whole.o" "$input"
# The words that a fork writes stand on one page: see ci/dist.sh.
bytes=$("${READELF:-readelf}" --sections --wide "$work/whole.o" |
    sed -n 's/^.* neap_fork *PROGBITS *[0-9a-f]* [0-9a-f]* \([0-9a-f]*\) .*/\1/p')
alignment=64
while [ $alignment -lt $((0x$bytes)) ]; do alignment=$((alignment * 2)); done
"${OBJCOPY:-objcopy}" --strip-debug --strip-unneeded \
    --remove-section=.llvmbc --remove-section=.llvmcmd --remove-section=.comment \
    --keep-global-symbols="$work/public" --weaken-symbols="$work/weak" \
    --set-section-alignment neap_fork=$alignment "$work/whole.o" "$work/neap.o"
diff "$work/public" <(nm --extern-only --defined-only "$work/neap.o" | awk '{ print $3 }' | LC_ALL=C sort) || {
    echo "ci/archive.sh: the archive's names (>) are not those that it should have (<)" >&2
    exit 1
}
mkdir -p "$(dirname "$output")"
rm -f "$output"
"${AR:-ar}" rcsD "$output" "$work/neap.o"
