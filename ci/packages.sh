#!/usr/bin/env bash
# Makes the release from the shipped files (target/dist), twice, and uses each package as a new user
# would, from an empty directory, root or virtual environment: ci/packages.sh [quick | full]
#
# With MACHINE=aarch64 these are the files of `ci/dist.sh aarch64`. Then PYTHON names a Python for
# that machine, and the kernel must start its programs (ci/aarch64/emulated.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/packages/common.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ci/release.sh "$work/release"
(umask 077 && ci/release.sh "$work/again" >/dev/null)
diff -r "$work/release" "$work/again" || fail "two runs give different bytes"
(cd "$work/release" && sha256sum --check --quiet SHA256SUMS)
echo "pass reproducible"

# The tarball: unpacked anywhere, with nothing else of the project.
prefix=$work/prefix
python=${PYTHON:-/usr/bin/python3}
library=$prefix/lib/libneap.so
tarball=$(echo "$work"/release/neap-*-linux.tar.gz)
mkdir "$prefix"
tar --extract --directory "$prefix" --strip-components=1 --file "$tarball"
[ "$("$prefix/bin/neap" --version)" = "neap $version" ]
"$prefix/bin/neap" run -- "$python" ci/packages/identity.py "$library"
LD_PRELOAD=$library "$python" ci/packages/identity.py "$library"
bash -n "$prefix/share/bash-completion/completions/neap"
"$prefix/bin/neap" help | sed -n '/^Commands:/,/^Options:/s/^  \([a-z][a-z]*\) .*/\1/p' |
    while read -r command; do
        [ -s "$prefix/share/man/man1/neap-$command.1" ] || fail "no manual page of neap $command"
    done
! tar --list --verbose --numeric-owner --file "$tarball" | grep -v ' 0/0 ' ||
    fail "the tarball names a user of this machine"
for crate in gimli libc rustix clap rust-std; do
    grep -q "\"name\": \"$crate\"" "$prefix/share/doc/neap/neap.cdx.json" ||
        fail "the bill of materials lacks $crate"
done
echo "pass tarball"

# A container of musl's, as Alpine's are: a root with musl, one program and the tarball.
if [ -n "${MACHINE:-}" ]; then
    echo "the library of another machine runs under its musl in ci/$MACHINE.sh"
elif command -v musl-gcc >/dev/null && [ "$(id -u)" = 0 ]; then
    root=$work/musl
    mkdir -p "$root"/{bin,lib,opt}
    cp -L /lib/ld-musl-*.so.1 "$root/lib/"
    musl-gcc -O1 -o "$root/bin/program" -x c - <<'END'
#include <stdio.h>
int main(void) { return printf("hello\n") < 0; }
END
    tar --extract --directory "$root/opt" --file "$tarball"
    preload=/opt/$(basename "$tarball" .tar.gz)/lib/libneap.so
    /usr/bin/python3 -c '
import os, sys
os.chroot(sys.argv[1])
os.chdir("/")
os.execve("/bin/program", ["program"], {"LD_PRELOAD": sys.argv[2], "NEAP_STATS": "text"})
' "$root" "$preload" >"$work/musl.out" 2>&1
    grep -x hello "$work/musl.out"
    grep '^neap: program (process' "$work/musl.out"
    echo "pass musl"
elif [ -n "${REQUIRE_ALL:-}" ]; then
    fail "install musl-tools, and run this as root"
else
    echo "SKIPPED: a root with musl only: install musl-tools, and run this as root"
fi

if command -v lintian >/dev/null; then
    # The packages are not uploaded to Debian, so they close no bug there.
    lintian --allow-root --suppress-tags initial-upload-closes-no-bugs --fail-on error,warning \
        "$work"/release/*.deb
    echo "pass lintian"
elif [ -n "${REQUIRE_ALL:-}" ]; then
    fail "install lintian"
else
    echo "SKIPPED: lintian on the packages for Debian: install lintian"
fi
ci/packages/debian-test.sh "$work/release"
echo "pass deb"
ci/packages/wheel-test.sh "$work/release" "${1:-quick}"
