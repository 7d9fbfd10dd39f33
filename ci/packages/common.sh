# shellcheck shell=bash
# Sourced by ci/release.sh, ci/packages/*.sh and ci/packages.sh, in the project's root.

# MACHINE=aarch64 packs the files of `ci/dist.sh aarch64`, on a machine of another kind.

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
dist=$target/dist${MACHINE:+-$MACHINE}
version=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
# The date of everything in a package, so that two builds of one commit have the same bytes.
last_change() { git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md; }
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(last_change)}
export LC_ALL=C.UTF-8 TZ=UTC
umask 022

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

[ -x "$dist/neap" ] && [ -e "$dist/libneap.so" ] || fail "$dist lacks neap or libneap.so: run ci/dist.sh${MACHINE:+ $MACHINE}"

# The newest version of glibc that a file needs, such as 2.34; nothing if it names none.
glibc_of() { # glibc_of FILE
    readelf --version-info --wide "$1" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' |
        sort --version-sort | tail -n 1
}

# The processor's name in Rust and in the names of tarballs and wheels: x86_64 or aarch64.
machine_of() { # machine_of FILE
    case $(readelf --file-header "$1" | sed -n 's/^ *Machine: *//p') in
        *X86-64*) echo x86_64 ;;
        *AArch64*) echo aarch64 ;;
        *) fail "$1 is for a machine that has no packages" ;;
    esac
}

# Gives every file and directory the one date.
date_all() { # date_all DIRECTORY
    find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}
