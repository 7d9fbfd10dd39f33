#!/usr/bin/env bash
# The case book on the shipped files: ci/cases.sh [quick | full]. `quick` runs two cases that need a
# C compiler only. `full` obtains what all cases need and runs them under Neap and the C library.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
lab=$target/dist/neap-lab

case ${1:-quick} in
    quick) which=(--only large-buffers,leaking-threads) run=(--quick) ;;
    full) which=() run=(--peers neap,glibc --seconds 1500 --records "$target/records") ;;
    *)
        echo "usage: ci/cases.sh [quick | full]" >&2
        exit 2
        ;;
esac
"$lab" cases --install "${which[@]}"
"$lab" cases "${which[@]}" "${run[@]}"
