#!/usr/bin/env bash
# Builds libneap, libneap-dev and neap for Debian from a tree of ci/packages/stage.sh:
# ci/packages/deb.sh TREE DIRECTORY
#
# The library stands in the multiarch directory. The command looks for it beside itself, so both
# have their names in /usr/libexec/neap, and /usr/bin/neap is a link.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/packages/common.sh

tree=$(realpath "$1")
out=$(realpath "$2")
revision=$version-1
maintainer=${DEB_MAINTAINER:-"The Neap authors <neap@packages.invalid>"}
case $(machine_of "$tree/lib/libneap.so") in
    x86_64) architecture=amd64 triplet=x86_64-linux-gnu ;;
    aarch64) architecture=arm64 triplet=aarch64-linux-gnu ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The files that each package in Debian has beside its own.
papers() { # papers PACKAGE
    local doc=$work/$1/usr/share/doc/$1
    mkdir -p "$doc"
    sed "s/@YEAR@/$(date --date="@$SOURCE_DATE_EPOCH" +%Y)/" ci/packages/debian/copyright \
        >"$doc/copyright"
    gzip --no-name --best <CHANGELOG.md >"$doc/changelog.gz"
    gzip --no-name --best >"$doc/changelog.Debian.gz" <<END
neap ($revision) unstable; urgency=medium

  * Packaged from the files of ci/dist.sh.

 -- $maintainer  $(date --date="@$SOURCE_DATE_EPOCH" -R)
END
}

# finish PACKAGE: reads the fields of its control file beyond the common ones, and packs it.
finish() {
    local root=$work/$1 overrides=ci/packages/debian/$1.lintian-overrides
    papers "$1"
    if [ -e "$overrides" ]; then
        install -D -m 644 "$overrides" "$root/usr/share/lintian/overrides/$1"
    fi
    mkdir -p "$root/DEBIAN"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    {
        printf 'Package: %s\nSource: neap\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' \
            "$1" "$revision" "$architecture" "$maintainer"
        printf 'Installed-Size: %s\nPriority: optional\n' \
            "$(du --summarize --apparent-size --block-size=1024 "$root/usr" | cut -f1)"
        cat
    } >"$root/DEBIAN/control"
    chmod -R u=rwX,go=rX "$root"
    date_all "$root"
    dpkg-deb --root-owner-group -Zxz --build "$root" \
        "$out/${1}_${revision}_$architecture.deb" >/dev/null
}

library=$work/libneap
mkdir -p "$library/usr/lib/$triplet" "$library/DEBIAN"
cp "$tree/lib/libneap.so" "$library/usr/lib/$triplet/"
chmod 644 "$library/usr/lib/$triplet/libneap.so"
# Both other packages depend on this one.
mkdir -p "$library/usr/share/doc/libneap"
gzip --no-name --best <"$tree/share/doc/neap/third-party-crates.txt" \
    >"$library/usr/share/doc/libneap/third-party-crates.txt.gz"
echo "activate-noawait ldconfig" >"$library/DEBIAN/triggers"
finish libneap <<END
Section: libs
Multi-Arch: same
Description: memory allocator that gives free memory back to the system
 Neap replaces malloc in programs that are started with LD_PRELOAD, or linked
 to the library. It returns freed memory to the kernel after a second without
 use, and accounts for every resident byte.
 .
 The library needs no C library of a certain version. The package neap has the
 command that runs programs under it.
END

headers=$work/libneap-dev
mkdir -p "$headers/usr"
ci/install-prefix.sh "$headers/usr" "lib/$triplet"
rm "$headers/usr/lib/$triplet/libneap.so"
finish libneap-dev <<END
Section: libdevel
Multi-Arch: same
Depends: libneap (= $revision)
Description: memory allocator that gives free memory back (development)
 Neap replaces malloc in programs that are started with LD_PRELOAD, or linked
 to the library. It returns freed memory to the kernel after a second without
 use, and accounts for every resident byte.
 .
 This package has what programs are linked with, and the headers for coroutine
 stacks and for the functions of C23 that older C libraries do not declare.
END

command=$work/neap
mkdir -p "$command/usr/bin" "$command/usr/libexec/neap" "$command/usr/share"
cp "$tree/bin/neap" "$command/usr/libexec/neap/"
ln -s ../libexec/neap/neap "$command/usr/bin/neap"
ln -s "../../lib/$triplet/libneap.so" "$command/usr/libexec/neap/libneap.so"
cp -R "$tree/share/man" "$tree/share/bash-completion" "$tree/share/fish" "$command/usr/share/"
find "$command/usr/share/man" -type f -exec gzip --no-name --best {} +
install -D -m 644 -t "$command/usr/share/zsh/vendor-completions" \
    "$tree/share/zsh/site-functions/_neap"
install -D -m 644 -t "$command/usr/share/doc/neap" "$tree/share/doc/neap/"{README.md,neap.cdx.json}
finish neap <<END
Section: devel
Depends: libneap (= $revision), libc6 (>= $(glibc_of "$tree/bin/neap")), libgcc-s1
Description: runs programs under Neap and shows where their memory is
 Neap is a memory allocator that returns freed memory to the kernel after a
 second without use. The command neap runs a program under it, divides the
 resident memory of a running process among the lines of a ledger, profiles
 which calls allocate the memory, and serves metrics to Prometheus.
END
