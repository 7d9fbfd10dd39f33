#!/usr/bin/env bash
# Packs the shipped files (target/dist, from ci/dist.sh) for users, in target/packages/. With
# MACHINE=aarch64 it packs those of `ci/dist.sh aarch64`, in target/packages-aarch64/:
#   neap-VERSION-MACHINE-linux.tar.gz    a prefix: bin, lib, include, share
#   neap-VERSION-MACHINE-linux.cdx.json  a bill of materials (CycloneDX)
#   *.deb                                three packages for Debian: libneap, libneap-dev, neap
#   *.whl                                Python wheels of neap-malloc
#   SHA256SUMS
#
# Two runs on the same files give the same bytes. SOURCE_DATE_EPOCH sets another date than the last
# commit's, and an argument another directory.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/packages/common.sh

out=$(realpath -m "${1:-$target/packages${MACHINE:+-$MACHINE}}")
name=neap-$version-$(machine_of "$dist/libneap.so")-linux
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
rm -f "$out"/{neap*.tar.gz,neap*.cdx.json,*.deb,*.whl,SHA256SUMS}

ci/packages/stage.sh "$work/$name"
tar --create --directory "$work" --sort=name --format=ustar --numeric-owner --owner=0 --group=0 \
    --mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip --no-name --best >"$out/$name.tar.gz"
cp "$work/$name/share/doc/neap/neap.cdx.json" "$out/$name.cdx.json"
ci/packages/deb.sh "$work/$name" "$out"
python3 python/backend.py "$work/$name" "$out"

(cd "$out" && sha256sum -- *.tar.gz *.cdx.json *.deb *.whl >SHA256SUMS)
ls -l "$out"
