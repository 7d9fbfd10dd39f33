#!/usr/bin/env bash
# emulated.sh QEMU ROOT COMMAND...: runs COMMAND in namespaces of its own. There the kernel starts
# AArch64's programs by QEMU, and ROOT's libraries stand beside this machine's. QEMU must be a
# static program, because it inherits LD_PRELOAD.
set -euo pipefail
if [ "$1" != inside ]; then
    exec unshare --user --map-root-user --mount "$0" inside "$@"
fi
qemu=$(realpath "$2")
root=$(realpath "$3")
shift 3
mount -t overlay overlay -o "lowerdir=$root/lib:$root/usr/lib:/usr/lib" /usr/lib
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
# The header of an ELF file: 64 bits, little-endian, a program, machine 183. P: it keeps argument 0.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
echo ":aarch64:M::$magic:$mask:$qemu:P" >/proc/sys/fs/binfmt_misc/register
exec "$@"
