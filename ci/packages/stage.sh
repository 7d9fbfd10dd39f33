#!/usr/bin/env bash
# Lays the shipped files (target/dist) out as they are installed below a prefix: bin, lib, include,
# share. All packages are made from this tree: ci/packages/stage.sh EMPTY-DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/packages/common.sh

prefix=$1
mkdir -p "$prefix"
[ -z "$(ls -A "$prefix")" ] || fail "$prefix is not empty"
neap=$(shipped neap)

install -D -m 755 "$neap" "$prefix/bin/neap"
# cargo does not strip a program whose package has an optimization level of its own.
"${STRIP:-strip}" --strip-all "$prefix/bin/neap"
install -D -m 644 "$(shipped libneap.so)" "$prefix/lib/libneap.so"
# What only some builds have: a static library, and the files of pkg-config and CMake.
for file in libneap.a pkgconfig/neap.pc cmake; do
    if [ -e "$dist/lib/$file" ]; then
        mkdir -p "$prefix/lib/$(dirname "$file")"
        cp -R "$dist/lib/$file" "$prefix/lib/$file"
    fi
done
(cd "$dist/include" && find . -type f) | while read -r header; do
    install -D -m 644 "$dist/include/$header" "$prefix/include/$header"
done

share=$prefix/share
mkdir -p "$share/man/man1"
"$neap" help --man "$share/man/man1" >/dev/null
completion() { # completion SHELL FILE
    mkdir -p "$(dirname "$share/$2")"
    "$neap" completions "$1" >"$share/$2"
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
