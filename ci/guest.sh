# shellcheck shell=bash
# Sourced by ci/kernels.sh: boots a kernel in an emulator, with this machine's files. `work` is a
# folder of the caller's, which has `die`.

# initramfs KERNEL BUSYBOX FILE: makes FILE, which loads the kernel's modules for files of the host,
# mounts these read-only on /host, makes the guest's root /guest by the commands on standard input
# ($b is busybox there), and runs in it the script that the kernel's command line names.
initramfs() {
    local modules root=$work/initramfs module found number=10
    modules=$(compgen -G "$1/usr/lib/modules/*/kernel" || compgen -G "$1/lib/modules/*/kernel")
    rm -rf "$root"
    mkdir -p "$root"/{bin,modules,host,guest,proc,sys,dev}
    cp "$2" "$root/bin/busybox"
    # In the order in which they need each other. A kernel may lack one, or have it built in.
    for module in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci \
        netfs fscache 9pnet 9pnet_virtio 9p; do
        found=$(find "$modules" -name "$module.ko*")
        case $found in
            *.xz) xz -dc "$found" >"$root/modules/$number.ko" ;;
            *.ko) cp "$found" "$root/modules/$number.ko" ;;
        esac
        number=$((number + 1))
    done
    {
        cat <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc none /proc
$b mount -t sysfs none /sys
$b mount -t devtmpfs none /dev
for module in /modules/*; do $b insmod $module; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 root /host
INIT
        cat
        cat <<'INIT'
for folder in proc sys dev; do $b mount --bind /$folder /guest/$folder; done
$b mkdir -p /guest/dev/shm /guest/dev/pts
for folder in mnt run dev/shm; do $b mount -t tmpfs none /guest/$folder; done
$b mount -t devpts none /guest/dev/pts
$b mount -t cgroup2 none /guest/sys/fs/cgroup
$b ip link set lo up
script=$($b sed -n 's/.*script=\([^ ]*\).*/\1/p' /proc/cmdline)
HOME=/mnt TMPDIR=/mnt PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    $b chroot /guest /bin/bash $script
$b poweroff -f
INIT
    } >"$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$3"
}

# emulated SECONDS CONSOLE KERNEL INITRAMFS SCRIPT QEMU...: boots the kernel, prints its console.
# QEMU says how many processors there are.
# The kernel does not check its timer: on a machine with much to do, Linux 6.1 panicked there.
emulated() {
    timeout "$1" "${@:6}" -accel tcg,thread=multi -m 8192 -nographic -no-reboot \
        -kernel "$3"/boot/vmlinuz-* -initrd "$4" \
        -append "console=$2 quiet panic=-1 no_timer_check script=$5" \
        -fsdev local,id=r,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=r,mount_tag=root </dev/null 2>&1 | stdbuf -oL tr -d '\r'
}
