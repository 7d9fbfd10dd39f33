#!/usr/bin/env bash
# install-prefix.sh PREFIX [LIBDIR]: installs what programs are linked with, from the files that
# ci/dist.sh built (with MACHINE=aarch64, from those of `ci/dist.sh aarch64`):
#   LIBDIR/libneap.so  LIBDIR/libneap.a  include/neap.h  include/neap/
#   LIBDIR/pkgconfig/neap.pc  LIBDIR/cmake/Neap/
# LIBDIR is relative to the prefix: lib, unless it is given, as in lib/x86_64-linux-gnu. The prefix
# may be moved afterwards. A packager gives the package's directory as part of the prefix.
set -euo pipefail
prefix=${1:?a prefix, such as /usr/local}
libdir=${2:-lib}
case $libdir in /* | *..*) echo "ci/install-prefix.sh: $libdir is not relative to the prefix" >&2 && exit 1 ;; esac
prefix=$(realpath -m "$prefix")
cd "$(dirname "$0")/.."
dist=${CARGO_TARGET_DIR:-target}/dist${MACHINE:+-$MACHINE}
if [ ! -e "$dist/libneap.so" ] || [ ! -e "$dist/lib/libneap.a" ]; then
    echo "ci/install-prefix.sh: $dist lacks libneap.so or lib/libneap.a: run ci/dist.sh" >&2
    exit 1
fi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)

install -D -m 755 "$dist/libneap.so" "$prefix/$libdir/libneap.so"
install -D -m 644 "$dist/lib/libneap.a" "$prefix/$libdir/libneap.a"
install -D -m 644 "$dist/include/neap.h" "$prefix/include/neap.h"
for header in "$dist"/include/neap/*; do
    install -D -m 644 "$header" "$prefix/include/neap/${header##*/}"
done

# filled DEPTH TEMPLATE FILE: the template with the version, and with the way from the file's
# directory, DEPTH below LIBDIR, up to the prefix.
filled() {
    local way
    way=$(realpath -ms --relative-to="/$libdir/$1" /)
    mkdir -p "$(dirname "$prefix/$libdir/$3")"
    sed "s|@VERSION@|$version|; s|@UP@|$way|" "capi/package/$2" >"$prefix/$libdir/$3"
    chmod 644 "$prefix/$libdir/$3"
}
filled pkgconfig neap.pc.in pkgconfig/neap.pc
filled cmake/Neap NeapConfig.cmake.in cmake/Neap/NeapConfig.cmake
filled cmake/Neap NeapConfigVersion.cmake.in cmake/Neap/NeapConfigVersion.cmake
