#!/usr/bin/env bash
# kernels.sh [quick|full] [RELEASE...]: the shipped library and the tests on kernels of other Debian
# releases: bullseye's 5.10, bookworm's 6.1 and trixie's 6.12. `quick` takes bullseye's, with huge
# pages `always`, and a few tests; `full` takes each of them, each setting of huge pages, and the
# tests of everything that depends on the kernel.
#
# qemu boots each kernel without hardware support, with a small initramfs. The guest has this
# machine's files, which it cannot change, and memory of its own below /mnt, /run and /dev/shm. For
# each kernel and setting the script prints how many tests passed, failed and were skipped. It needs
# ci/dist.sh's library.
set -euo pipefail
cd "$(dirname "$0")/.."
extent=${1:-quick}
[ $# -eq 0 ] || shift
releases=("$@")

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
library=$target/dist/libneap.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
    echo "ci/kernels.sh: $*" >&2
    exit 1
}

case $extent in
    quick)
        [ ${#releases[@]} -gt 0 ] || releases=(bullseye)
        pages=(always)
        heap=(os::pagemap)
        surface=(semantics::calloc_touches stacks::an_overflow_is_one_line)
        guards=(each_overflow a_child guards_come)
        patience=900
        ;;
    full)
        [ ${#releases[@]} -gt 0 ] || releases=(bullseye bookworm trixie)
        pages=(always madvise never)
        heap=(os:: pages::tests::real pages::tests::zeros)
        surface=(semantics::calloc stacks:: purge:: fork:: exhaustion:: status_page:: guarded::)
        guards=(fifty each_overflow mapped_guards guards_come a_child a_copy a_handler
            stacks_in_locked)
        patience=14400
        ;;
    *)
        echo "usage: ci/kernels.sh [quick|full] [RELEASE...]" >&2
        exit 2
        ;;
esac

for program in qemu-system-x86_64 busybox cpio xz; do
    command -v $program >/dev/null && continue
    [ -z "${REQUIRE_ALL:-}" ] || die "install qemu-system-x86 busybox-static cpio xz-utils"
    echo "SKIPPED: kernels: install qemu-system-x86 busybox-static cpio xz-utils"
    exit 0
done
if [ "$(uname -m)" != x86_64 ]; then
    echo "SKIPPED: kernels: the guest has this machine's files, so it is of x86-64 only"
    exit 0
fi
[ -e "$library" ] || die "no $library: run ci/dist.sh"

# program PACKAGE TARGET...: the path of a test program, built if need be
program() {
    cargo test --no-run -p "$@" 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p'
}
surface_tests=$(realpath "$(program neap-c --test preload)")
heap_tests=$(realpath "$(program neap-heap --lib)")
guard_tests=$(realpath "$(program neap --test stack_guards)")

. ci/debian.sh

# initramfs KERNEL FILE: loads the modules for files of the host, then runs the script that the
# command line names, in the host's root.
initramfs() {
    local kernel=$1 file=$2 modules root=$work/initramfs module found number=10
    modules=$(echo "$kernel"/lib/modules/*/kernel)
    rm -rf "$root"
    mkdir -p "$root"/{bin,modules,root,proc,sys,dev}
    cp "$(command -v busybox)" "$root/bin/busybox"
    # In the order in which they need each other. A kernel may lack one, or have it built in.
    for module in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci \
        fscache netfs 9pnet 9pnet_virtio 9p; do
        found=$(find "$modules" -name "$module.ko*")
        case $found in
            *.xz) xz -dc "$found" >"$root/modules/$number.ko" ;;
            *.ko) cp "$found" "$root/modules/$number.ko" ;;
        esac
        number=$((number + 1))
    done
    cat >"$root/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc none /proc
$b mount -t sysfs none /sys
$b mount -t devtmpfs none /dev
for module in /modules/*; do $b insmod $module; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 root /root
$b mount -t tmpfs none /root/mnt
for folder in proc sys dev; do $b mount --bind /$folder /root/$folder; done
$b mkdir -p /root/dev/shm /root/dev/pts
$b mount -t tmpfs none /root/dev/shm
$b mount -t devpts none /root/dev/pts
$b mount -t tmpfs none /root/run
$b mount -t cgroup2 none /root/sys/fs/cgroup
$b ip link set lo up
script=$($b sed -n 's/.*script=\([^ ]*\).*/\1/p' /proc/cmdline)
HOME=/mnt TMPDIR=/mnt PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    $b chroot /root /bin/bash $script
$b poweroff -f
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$file"
}

# guest: what runs inside. It says `ran` after each part, so that a guest that stops is noticed.
guest() {
    cat <<GUEST
export LIBRARY_UNDER_TEST=$library CI=${CI:-} RUST_BACKTRACE=0 RUST_TEST_THREADS=2
mkdir -p $target/tmp 2>/dev/null
mount -t tmpfs none $target/tmp
echo "kernel \$(uname -r)"
for setting in ${pages[*]}; do
    echo \$setting >/sys/kernel/mm/transparent_hugepage/enabled
    for part in heap surface guards; do
        echo "begin \$part, huge pages \$setting"
        case \$part in
            heap) cd $PWD/heap && $heap_tests --color never ${heap[*]} ;;
            surface) cd $PWD/capi && $surface_tests --color never ${surface[*]} ;;
            guards) cd $PWD/neap && $guard_tests --color never ${guards[*]} ;;
        esac
        echo "ran \$part"
    done
done
GUEST
}

# boot RELEASE: prints what its guest does, and fails if a test did, or if not all parts ran
boot() {
    local release=$1 root=$target/kernels/$1 log=$target/kernels/$1.log ran
    mkdir -p "$target/kernels" "$target/tmp"
    [ -e "$root" ] || unpack_debian "$release" amd64 "$root" linux-image-amd64
    # Where /lib is a part of /usr, so it is in the package.
    [ -e "$root/lib" ] || ln -s usr/lib "$root/lib"
    initramfs "$root" "$work/initramfs.gz"
    guest >"$work/guest"
    timeout "$patience" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 4096 -smp 2 \
        -nographic -no-reboot -kernel "$root"/boot/vmlinuz-* \
        -initrd "$work/initramfs.gz" \
        -append "console=ttyS0 quiet panic=-1 script=$work/guest" \
        -fsdev local,id=r,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=r,mount_tag=root </dev/null 2>&1 | tr -d '\r' >"$log" || true
    sed -n 's/^.*\(kernel [0-9]\)/\1/p; /^begin\|FAILED$\|^SKIPPED\|^test result/p' "$log"
    ran=$(grep -c '^ran ' "$log" || true)
    [ "$ran" -eq $((3 * ${#pages[@]})) ] || die "$release: $ran parts ran to their end: see $log"
    ! grep -q '^test result: FAILED' "$log" || die "$release: tests failed: see $log"
    [ "$(grep -c '^test result: ok\. [1-9]' "$log")" -eq "$ran" ] ||
        die "$release: a part has no tests"
}

for release in "${releases[@]}"; do
    boot "$release"
    echo "pass kernels/$release"
done
