#!/usr/bin/env bash
# Lays the shipped files (target/dist) out as they are installed below a prefix: bin, lib, include,
# share. All packages are made from this tree: ci/packages/stage.sh EMPTY-DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/packages/common.sh

prefix=$1
mkdir -p "$prefix"
[ -z "$(ls -A "$prefix")" ] || fail "$prefix is not empty"

install -D -m 755 "$dist/neap" "$prefix/bin/neap"
# cargo does not strip a program whose package has an optimization level of its own.
"${STRIP:-${MACHINE:+$MACHINE-linux-gnu-}strip}" --strip-all "$prefix/bin/neap"
ci/install-prefix.sh "$prefix"

share=$prefix/share
mkdir -p "$share/man/man1"
neap=("$dist/neap")
[ -z "${MACHINE:-}" ] || neap=("qemu-$MACHINE" -L "/usr/$MACHINE-linux-gnu" "$dist/neap")
"${neap[@]}" help --man "$share/man/man1" >/dev/null
completion() { # completion SHELL FILE
    mkdir -p "$(dirname "$share/$2")"
    "${neap[@]}" completions "$1" >"$share/$2"
}
completion bash bash-completion/completions/neap
completion zsh zsh/site-functions/_neap
completion fish fish/vendor_completions.d/neap.fish

install -D -m 644 -t "$share/doc/neap" README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE
ci/packages/crates.py "$prefix/lib/libneap.so" "$share/doc/neap/neap.cdx.json" \
    "$share/doc/neap/third-party-crates.txt"
find "$prefix" -type d -exec chmod 755 {} + -o -type f -perm /100 -exec chmod 755 {} + \
    -o -type f -exec chmod 644 {} +
date_all "$prefix"
