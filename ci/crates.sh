#!/usr/bin/env bash
# The published crates, tested as their users get them: ci/crates.sh [full].
#
# It packs the four crates as `cargo publish` does and unpacks them in an empty directory. A new
# project there, and a copy of examples/axum, use nothing else of Neap's. The project runs under
# Neap alone, and with libneap.so preloaded if ci/dist.sh has built it. `full` also tests the copy
# in the profile dev, and lets the oldest compiler that the crates promise build and test them.
set -euo pipefail
cd "$(dirname "$0")/.."
ours=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
crates=(neap-shared neap-heap neap-instruments neap)
packages=(-p neap-shared -p neap-heap -p neap-instruments -p neap)
fails=0

die() {
    echo "ci/crates.sh: $*" >&2
    exit 1
}

# judged NAME COMMAND...: says whether it succeeds; shows its output if not.
judged() {
    local name=$1
    shift
    if "$@" >"$work/said" 2>&1; then
        echo "pass crates/$name"
    else
        echo "FAIL crates/$name: $*"
        sed 's/^/    /' "$work/said"
        fails=$((fails + 1))
    fi
}

# As `cargo publish --dry-run`: packs all, and compiles each package from what it contains. Nothing
# else in the workspace is published.
publish() {
    # Cargo unpacks and compiles each version of a package once: away with what an earlier run left.
    rm -rf "$target/crates" \
        "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/neap-{shared,heap,instruments}-[0-9]*
    CARGO_TARGET_DIR=$target/crates cargo publish --workspace --dry-run --allow-dirty
}
judged publish publish
[ $fails -eq 0 ] || exit 1
CARGO_TARGET_DIR=$target/crates cargo package "${packages[@]}" --no-verify --allow-dirty 2>"$work/said" ||
    { cat "$work/said" && exit 1; }
grep -q '^warning: manifest has no' "$work/said" && die "a manifest lacks what crates.io shows"

# unpacked CRATE: unpacks it, and looks at what it contains.
unpacked() {
    local name=$1 file
    file=$(echo "$target/crates/package/$name"-[0-9]*.crate)
    tar -xzf "$file" -C "$work"
    mv "$work/$name"-[0-9]* "$work/$name"
    for needed in README.md LICENSE-MIT LICENSE-APACHE Cargo.toml src/lib.rs; do
        [ -f "$work/$name/$needed" ] || { echo "$name lacks $needed" && return 1; }
    done
    for needless in tests examples benches src/testing/mod.rs proptest-regressions; do
        [ ! -e "$work/$name/$needless" ] || { echo "$name contains $needless" && return 1; }
    done
    ! grep -n '^path = "\.\.' "$work/$name/Cargo.toml"
}
for name in "${crates[@]}"; do
    judged "package/$name" unpacked "$name"
done
[ $fails -eq 0 ] || exit 1

# With the packages in place of crates.io's, which has none of these names yet.
patch=()
for name in "${crates[@]}"; do
    patch+=(--config "patch.crates-io.$name.path='$work/$name'")
done
export CARGO_TARGET_DIR=$target/crates/built
cp -r ci/crates "$work/project"
cp -r examples/axum "$work/axum"
# Its patches name the sources.
sed -i '/^\[patch/,/^$/d' "$work/axum/Cargo.toml"
cp examples/axum/Cargo.lock "$work/axum/"
cd "$work"
# No LD_PRELOAD of the caller's.
unset LD_PRELOAD

built() { # built [+TOOLCHAIN]: the project
    # It compiles without a warning.
    RUSTFLAGS="-D warnings" cargo "$@" build "${patch[@]}" --manifest-path project/Cargo.toml ||
        return
    cargo "$@" metadata "${patch[@]}" --manifest-path project/Cargo.toml --format-version 1 >metadata ||
        return
    ! grep -o "\"manifest_path\":\"$ours[^\"]*" metadata
}
# refused COMMAND...: it ends by abort() after Neap's line.
refused() {
    local status=0
    timeout 60 "$@" || status=$?
    [ $status -eq 134 ] && grep -q '^neap: .*free of' "$work/said"
}
judged project/build built
project=$CARGO_TARGET_DIR/debug/user-of-neap
judged project "$project"
if [ -e "$target/dist/libneap.so" ]; then
    judged project/preloaded env LD_PRELOAD="$target/dist/libneap.so" "$project" preloaded
    for mixed in rusts-to-c cs-to-rust; do
        judged project/preloaded/$mixed refused env LD_PRELOAD="$target/dist/libneap.so" "$project" $mixed
    done
else
    echo "SKIPPED: the project with libneap.so preloaded: run ci/dist.sh"
fi

# Two versions of the heap in one program.
cp -r "$ours/ci/crates/two" .
cp -r neap-heap next
# The package's, which is the file's first.
sed -i '0,/^version = / s/^version = ".*"/version = "9.9.9"/' next/Cargo.toml
judged two-versions cargo run "${patch[@]}" --manifest-path two/Cargo.toml

# With debug information whole and, in the release profile, of lines only.
command=()
[ ! -e "$target/dist/neap" ] || command=(NEAP="$(realpath "$target/dist/neap")")
profiles=(release)
[ "${1:-}" != full ] || profiles+=(dev)
for profile in "${profiles[@]}"; do
    judged axum/$profile env "${command[@]}" \
        cargo test "${patch[@]}" --manifest-path axum/Cargo.toml --profile $profile
done

# The pages that docs.rs builds, for both machines, without a warning.
cd "$ours"
documented() {
    RUSTDOCFLAGS="-D warnings $links" CARGO_TARGET_DIR=$target/crates cargo doc --no-deps "$@"
}
for machine in x86_64 aarch64; do
    if [ -d "$(rustc --print target-libdir --target $machine-unknown-linux-gnu)" ]; then
        links='' judged docs/$machine documented -p neap --all-features --target $machine-unknown-linux-gnu
        # The internal crates' pages are for their maintainers.
        links='-A rustdoc::private_intra_doc_links' judged docs/$machine/internal documented \
            -p neap-heap -p neap-instruments -p neap-shared --document-private-items \
            --target $machine-unknown-linux-gnu
    else
        echo "SKIPPED: documentation for $machine: rustup target add $machine-unknown-linux-gnu"
    fi
done

# The oldest compiler. rustup has it, or can get it. Everywhere else clippy refuses functions of the
# standard library that are younger (`incompatible_msrv`).
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' neap/Cargo.toml).0
for name in heap shared instruments; do
    grep -q "^rust-version = \"${oldest%.0}\"" $name/Cargo.toml || die "$name has another rust-version"
done
if [ "${1:-}" != full ]; then
    echo "left to \`full\`: Rust $oldest"
elif command -v rustup >/dev/null && { rustup run "$oldest" rustc --version ||
    timeout 300 rustup toolchain install "$oldest" --profile minimal; } >/dev/null 2>&1; then
    export CARGO_TARGET_DIR=$target/crates/oldest
    cd "$work"
    judged "$oldest/build" built "+$oldest"
    judged "$oldest" "$CARGO_TARGET_DIR/debug/user-of-neap"
    cd "$ours"
    judged "$oldest/tests" cargo "+$oldest" test --ignore-rust-version "${packages[@]}" \
        --features neap/corosensei
else
    echo "SKIPPED: Rust $oldest: install rustup, then: rustup toolchain install $oldest"
fi

[ $fails -eq 0 ] || die "$fails failed"
