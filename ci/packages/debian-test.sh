#!/usr/bin/env bash
# Installs the packages for Debian into a throwaway root, uses them, removes them, and looks for
# what is left: ci/packages/debian-test.sh DIRECTORY-OF-DEBS. Run it as root.
#
# The root is this machine's own under an overlay, so that nothing is changed. Where the kernel
# allows no overlay, and for another machine (MACHINE, PYTHON as for ci/packages.sh), dpkg unpacks
# the packages into an empty directory.
set -euo pipefail
cd "$(dirname "$0")/../.."
debs=$(realpath "$1")
identity=$(realpath ci/packages/identity.py)

die() {
    echo "debian-test.sh: $*" >&2
    exit 1
}

in_an_overlay() {
    local room=$1 left
    mount -t tmpfs tmpfs "$room"
    mkdir "$room"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=/,upperdir=$room/upper,workdir=$room/work" "$room/root"
    mount --rbind /proc "$room/root/proc"
    mount --rbind /dev "$room/root/dev"
    mkdir "$room/root/given"
    cp "$debs"/*.deb "$identity" "$room/root/given/"
    chroot "$room/root" /bin/bash -euo pipefail -c '
        export PATH=/usr/sbin:/usr/bin:/sbin:/bin
        cd /given
        dpkg -i ./*.deb
        dpkg --audit
        library=$(dpkg -L libneap | grep "/libneap\.so\$")
        neap run -- /usr/bin/python3 identity.py "$library"
        # Found by name alone, because installation ran ldconfig.
        LD_PRELOAD=libneap.so /usr/bin/python3 identity.py "$library"
        [ "$(neap env)" = "ENV LD_PRELOAD=$library" ]
        neap doctor -- /usr/bin/python3 | grep -x "This program can run under Neap."
        printf "#include <neap.h>\nint main(void) { return neap_version()[0] == 0; }\n" >linked.c
        gcc -o linked linked.c -lneap
        ./linked
        if [ -e "${library%/*}/pkgconfig/neap.pc" ] && command -v pkg-config; then
            gcc -o linked linked.c $(pkg-config --cflags --libs neap)
            ./linked
        fi
        # As upgrades and reinstallation do it.
        dpkg -i ./*.deb
        dpkg -P neap libneap-dev libneap
        # As docs/install.md has it.
        apt-get install -qy ./libneap_*.deb ./neap_*.deb
        apt-get purge -qy libneap
        rm -r /given
    '
    # What apt, dpkg, ldconfig and man-db write about their own work.
    left=$(cd "$room/upper" && find . ! -type d |
        grep -Ev '^\./(var/(lib/(apt|dpkg)|log|cache/(apt|debconf|ldconfig|man))/|etc/ld\.so\.cache$)') || true
    [ -z "$left" ] || die "left after removal: $left"
    left=$(find "$room/upper" -name '*neap*' ! -path '*/dpkg/*')
    [ -z "$left" ] || die "left after removal: $left"
    ! compgen -G "$room/upper/var/lib/dpkg/info/*neap*" || die "dpkg still knows the packages"
}

in_an_empty_directory() {
    local root=$1 library left
    mkdir -p "$root/var/lib/dpkg/"{updates,info,triggers}
    touch "$root/var/lib/dpkg/"{status,available}
    dpkg --root="$root" --force-depends --force-architecture -i "$debs"/*.deb
    library=$(echo "$root"/usr/lib/*/libneap.so)
    "$root/usr/bin/neap" run -- "${PYTHON:-/usr/bin/python3}" "$identity" "$library"
    dpkg --root="$root" -P neap libneap-dev libneap
    left=$(find "$root" -path "$root/var" -prune -o ! -type d -print)
    [ -z "$left" ] || die "left after removal: $left"
}

if [ "${2:-}" = inside ]; then
    in_an_overlay "$3"
    exit
fi
[ "$(id -u)" = 0 ] || { echo "SKIPPED: packages for Debian: run this as root"; exit 0; }
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
if [ -z "${MACHINE:-}" ] && unshare --mount bash -c 'mount -t tmpfs tmpfs "$0" && mkdir "$0"/{up,work,root} &&
    mount -t overlay overlay -o "lowerdir=/,upperdir=$0/up,workdir=$0/work" "$0/root"' \
    "$room" 2>/dev/null; then
    unshare --mount "$(realpath "$0")" "$debs" inside "$room"
else
    echo "no overlay: the packages are unpacked into an empty directory"
    in_an_empty_directory "$room"
fi
