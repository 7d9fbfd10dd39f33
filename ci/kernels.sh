#!/usr/bin/env bash
# kernels.sh [quick|full] [KERNEL...]: the shipped library and the tests on other kernels.
#
#   bullseye, bookworm, trixie   Debian's 5.10, 6.1 and 6.12 for x86-64
#   two-nodes                    Debian's 6.12 for x86-64, eight processors on two NUMA nodes
#   arm64-4k, arm64-16k          Debian's 6.12 for AArch64, with pages of 4 and 16 KiB (Debian
#                                packages none with 64 KiB)
#
# `quick` takes 5.10 with huge pages `always`, and a few tests. `full` takes each kernel, each
# setting of huge pages, and the tests of everything that depends on the kernel, control groups and
# the experiment on calloc among them. Then, with `madvise`, it takes each overcommit mode and an
# unprivileged user.
#
# qemu boots each kernel without hardware support, with a small initramfs. The guest has this
# machine's files, which it cannot change, and memory of its own below /mnt, /run and /dev/shm; on
# AArch64 it has Debian 12's programs. For each kernel and setting the script prints how many tests
# passed, failed and were skipped, and their seconds. It needs ci/dist.sh's library, on AArch64
# ci/dist.sh aarch64's.
#
# To run less, name settings of huge pages and parts in the environment:
#
#   SETTINGS="always never" PARTS="surface guards" ci/kernels.sh full trixie
#
# The parts are heap, surface, guards, calloc, model, cgroups and unprivileged; nodes on two nodes;
# and one that needs a boot of its own: cgroups-1.
set -euo pipefail
cd "$(dirname "$0")/.."
extent=${1:-quick}
[ $# -eq 0 ] || shift

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
kept=$target/kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
    echo "ci/kernels.sh: $*" >&2
    exit 1
}

case $extent in
    quick)
        kernels=(bullseye)
        settings=(always)
        heap=(os::pagemap)
        surface=(semantics::calloc_touches stacks::an_overflow_is_one_line)
        guards=(each_overflow a_child guards_come guards_are_wider)
        nodes=(process::blocks_lie)
        patience=900
        ;;
    full)
        kernels=(bullseye bookworm trixie two-nodes arm64-4k arm64-16k)
        settings=(always madvise never)
        # `os::` is in the names of pages::tests::zeros as well, which need no kernel.
        heap=(os:: pages::tests::real --skip zeros)
        surface=(semantics::calloc semantics::samples semantics::realloc stacks:: exhaustion::
            limits:: status_page::children status_page::every purge::a_sleeping purge::no_byte
            purge::what_a_program_locks purge::a_locked_page purge::children
            purge::a_process_of_split process::pages_that fork::a_child fork::a_raw_copy)
        guards=(fifty each_overflow mapped_guards guards_come a_child a_copy a_handler
            stacks_in_locked guards_are_wider)
        nodes=(process::blocks_lie)
        patience=7200
        ;;
    *) die "usage: ci/kernels.sh [quick|full] [bullseye|bookworm|trixie|two-nodes|arm64-4k|arm64-16k...]" ;;
esac
[ $# -eq 0 ] || kernels=("$@")
[ -z "${SETTINGS+set}" ] || read -ra settings <<<"$SETTINGS"

skip() {
    [ -z "${REQUIRE_ALL:-}" ] || die "$*"
    echo "SKIPPED: kernels: $*"
    exit 0
}
emulators=(qemu-system-x86_64)
[[ "${kernels[*]}" != *arm64* ]] || emulators+=(qemu-system-aarch64)
for program in "${emulators[@]}" busybox cpio xz; do
    command -v $program >/dev/null ||
        skip "install qemu-system-x86 qemu-system-arm busybox-static cpio xz-utils"
done
[ "$(uname -m)" = x86_64 ] || skip "the guest has this machine's files, so it is of x86-64 only"

. ci/debian.sh
. ci/guest.sh

# program TRIPLE PACKAGE TARGET...: the path of a test program, built if need be
program() {
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc cargo test --no-run \
        ${1:+--target "$1"} -p "${@:2}" 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p'
}

# with_programs TRIPLE LIBRARY: sets what the guest runs
with_programs() {
    library=$2 scratch=$target/${1:+$1/}tmp
    mkdir -p "$scratch"
    [ -e "$library" ] || die "no $library: run ci/dist.sh${1:+ aarch64}"
    heap_tests=$(realpath "$(program "$1" neap-heap --lib)")
    model=$(realpath "$(program "$1" neap-heap --test model)")
    surface_tests=$(realpath "$(program "$1" neap-c --test preload)")
    guard_tests=$(realpath "$(program "$1" neap --test stack_guards)")
    for built in "$heap_tests" "$model" "$surface_tests" "$guard_tests"; do
        [ -f "$built" ] && [ -x "$built" ] || die "a test program was not built: $built"
    done
}

is_wanted() { # is_wanted PART
    [[ -z ${PARTS:-} || " $PARTS " = *" $1 "* ]]
}

# The tests compile programs, which takes the emulator half a minute each. So the tests run on this
# machine first, with compilers that remember what they made. For AArch64 they only compile: their
# qemu-aarch64 does nothing.
compile_here() { # compile_here [MACHINE]: sets the folder of the compilers
    local name tests=$surface_tests
    compilers=$work/compilers-${1:-}
    [ ! -e "$compilers" ] || return 0
    mkdir "$compilers"
    for name in cc c++ ${1:+"$1-linux-gnu-gcc" "$1-linux-gnu-g++"}; do
        cat >"$compilers/$name" <<COMPILER
#!/bin/bash
made= rest=()
for word; do
    if [ "\$made" = next ]; then made=\$word; elif [ "\$word" = -o ]; then made=next; else rest+=("\$word"); fi
done
kept=$compilers/\$({ printf '%s\\0' ${name: -1} "\${rest[@]}"; cat "\${rest[@]/#-*//dev/null}" 2>/dev/null; } | sha256sum | cut -c 1-20)
[ -n "\$made" ] && [ -e "\$kept" ] && exec cp "\$kept" "\$made"
/usr/bin/$name "\$@" || exit
[ -z "\$made" ] || cp "\$made" "\$kept" 2>/dev/null || true
COMPILER
    done
    if [ $# -gt 0 ]; then
        tests=$(realpath "$(program "" neap-c --test preload)")
        echo "#!/bin/true" >"$compilers/qemu-$1"
    fi
    chmod +x "$compilers/"*
    is_wanted surface || return 0
    (cd capi && env PATH="$compilers:$PATH" LIBRARY_UNDER_TEST="$library" ${1:+MACHINE_UNDER_TEST="$1"} \
        "$tests" -q "${surface[@]}" "${nodes[@]}") >&2
}

# part NAME FOLDER COMMAND: lines of the guest's script. It says `ran` after each part, so that a
# guest that stops is noticed.
parts=0
part() {
    is_wanted "${1%%,*}" || return 0
    parts=$((parts + 1))
    printf 'echo "begin %s"\ncd %q\nbegan=$SECONDS\nif %s; then echo "ran after $((SECONDS - began)) s"; else echo "status $?"; fi\n' \
        "$1" "$PWD/$2" "$3"
}

tests() { # tests NAME SETTING: a part of tests
    local quiet=--color=never
    case $1 in
        heap) part "$1, $2" heap "$heap_tests $quiet ${heap[*]}" ;;
        nodes) part "$1, $2" capi "$surface_tests --nocapture $quiet ${nodes[*]}" ;;
        surface) part "$1, $2" capi "$surface_tests $quiet ${surface[*]}" ;;
        guards) part "$1, $2" neap "$guard_tests $quiet ${guards[*]}" ;;
        model) part "$1, $2" heap "MODEL_OPERATIONS=20000 $model $quiet" ;;
    esac
}

guest() { # guest KERNEL: what runs inside
    local setting mode
    # Without git, which would read all files to name the revision of the lab: two minutes.
    cat <<GUEST
export GIT_DIR=/nonexistent
export PATH=$compilers:\$PATH LIBRARY_UNDER_TEST='$library' CI=${CI:-} RUST_BACKTRACE=0 RUST_TEST_THREADS=2 PROPTEST_CASES=8
mount -t tmpfs none '$scratch'
ulimit -l unlimited
echo "kernel \$(uname -r)"
GUEST
    if [ "$1" = two-nodes ]; then
        echo "echo 0 >/proc/sys/kernel/numa_balancing"
        for setting in "${settings[@]}"; do
            echo "echo $setting >/sys/kernel/mm/transparent_hugepage/enabled"
            tests nodes "huge pages $setting"
        done
        return 0
    fi
    for setting in "${settings[@]}"; do
        echo "echo $setting >/sys/kernel/mm/transparent_hugepage/enabled"
        tests heap "huge pages $setting"
        tests surface "huge pages $setting"
        tests guards "huge pages $setting"
        [ "$extent" = quick ] || [[ $1 = arm* ]] || part "calloc, huge pages $setting" . \
            "$target/dist/neap-lab calloc --peers neap,glibc --only 100M,none,read --rounds 6 --records /mnt"
        [ "$extent" = quick ] || part "cgroups, version 2, huge pages $setting" capi \
            "echo +memory >/sys/fs/cgroup/cgroup.subtree_control &&
                $surface_tests --color=never cgroup:: --skip redis"
    done
    [ "$extent" = full ] || return 0
    echo "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled"
    for mode in 0 1 2; do
        echo "echo $mode >/proc/sys/vm/overcommit_memory"
        tests model "overcommit mode $mode"
    done
    echo "echo 0 >/proc/sys/vm/overcommit_memory"
    # Debian builds 6.12 without it. Where groups of version 2 were, its mount fails.
    [[ ${PARTS:-} != *cgroups-1* ]] || part cgroups-1 capi "umount /sys/fs/cgroup &&
        mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory &&
        mount -t cgroup -o memory none /sys/fs/cgroup/memory &&
        $surface_tests --color=never cgroup:: --skip redis"
    echo "echo 0 >/proc/sys/vm/unprivileged_userfaultfd; chmod 1777 /mnt '$scratch'"
    part "unprivileged, guards" neap \
        "setpriv --reuid=65534 --regid=65534 --clear-groups $guard_tests --color=never ${guards[*]}"
}

# For AArch64: Debian's programs, and the project's files in their places.
root_of_programs() {
    local folder
    echo "\$b mount -t tmpfs none /guest"
    for folder in bin etc lib sbin usr var; do
        echo "\$b mkdir /guest/$folder && \$b mount --bind /host$1/$folder /guest/$folder"
    done
    echo "\$b mkdir -p /guest/proc /guest/sys /guest/dev /guest/mnt /guest/run /guest$work"
    for folder in "$PWD" "$target" "$work"; do
        echo "\$b mkdir -p /guest'$folder' && \$b mount --bind /host'$folder' /guest'$folder'"
    done
}

# verdict KERNEL LOG: prints a guest's console in short. Fails if a test failed, or if not all parts
# ran to their end.
verdict() {
    local ran
    awk '/kernel [0-9]/ { sub(/^.*kernel/, "kernel") }
        /^begin calloc/ { whole = 1 }
        whole || /kernel [0-9]|^begin|^ran|FAILED$|^SKIPPED|^test result|are near$/
        /^ran/ { whole = 0 }' "$2"
    ! grep -q '^test result: FAILED' "$2" || die "$1: tests failed: see $2"
    ran=$(grep -c '^ran ' "$2" || true)
    [ "$ran" -eq "$parts" ] || die "$1: $ran parts of $parts ran to their end: see $2"
    ! grep 'no control group can be made here' "$2" || die "$1: control groups were not tested: see $2"
    ! grep -q '^test result: ok\. 0 passed' "$2" || die "$1: a part has no tests: see $2"
}

boot_x86_64() { # boot_x86_64 RELEASE|two-nodes
    local release=${1/two-nodes/trixie} machine=(-smp 2)
    local root=$kept/$release
    [ "$1" != two-nodes ] || machine=(-smp 8
        -object memory-backend-ram,size=4G,id=near -numa node,cpus=0-3,memdev=near
        -object memory-backend-ram,size=4G,id=far -numa node,cpus=4-7,memdev=far)
    [ -e "$root" ] || unpack_debian "$release" amd64 "$root" linux-image-amd64
    with_programs "" "$target/dist/libneap.so"
    compile_here
    # The guest's root is this machine's.
    echo "\$b mount --bind /host /guest" |
        initramfs "$root" "$(command -v busybox)" "$work/initramfs.gz"
    guest "$1" >"$work/guest"
    emulated "$patience" ttyS0 "$root" "$work/initramfs.gz" "$work/guest" \
        qemu-system-x86_64 -cpu max "${machine[@]}"
}

boot_aarch64() { # boot_aarch64 KERNEL
    local root=$kept/$1 programs=$kept/programs-arm64 package=linux-image-arm64
    [ "$1" = arm64-4k ] || package+=-${1#arm64-}
    [ -e "$root" ] || unpack_debian trixie arm64 "$root" "$package"
    if [ ! -e "$programs" ]; then
        # What the tests use, with all that these packages need.
        NEEDED=yes unpack_debian bookworm arm64 "$programs" busybox-static bash coreutils grep sed \
            util-linux mount procps gcc g++ libc6-dev python3 python3-venv sqlite3 perl
        ln -sf gcc "$programs/usr/bin/cc"
        ln -sf g++ "$programs/usr/bin/c++"
        cp /etc/passwd /etc/group "$programs/etc/"
    fi
    with_programs aarch64-unknown-linux-gnu "$target/dist-aarch64/libneap.so"
    # Tests fail whose programs did not run.
    compile_here aarch64 2>/dev/null || true
    root_of_programs "$programs" | initramfs "$root" "$programs/bin/busybox" "$work/initramfs.gz"
    guest "$1" >"$work/guest"
    emulated "$patience" ttyAMA0 "$root" "$work/initramfs.gz" "$work/guest" \
        qemu-system-aarch64 -machine virt -cpu cortex-a76 -smp 2
}

mkdir -p "$kept"
for kernel in "${kernels[@]}"; do
    log=$kept/$kernel.log parts=0
    case $kernel in
        arm64-*) boot_aarch64 "$kernel" >"$log" || true ;;
        *) boot_x86_64 "$kernel" >"$log" || true ;;
    esac
    verdict "$kernel" "$log"
    echo "pass kernels/$kernel"
done
