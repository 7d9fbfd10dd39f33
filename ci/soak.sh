#!/usr/bin/env bash
# ci/soak.sh [OPTIONS OF neap-lab soak]: mixed load on the shipped files. Obtains what the members
# need first.
set -euo pipefail
cd "$(dirname "$0")/.."

lab=${CARGO_TARGET_DIR:-$PWD/target}/dist/neap-lab
"$lab" soak --install
"$lab" soak "$@"
