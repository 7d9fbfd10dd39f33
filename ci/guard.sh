#!/usr/bin/env bash
# ci/guard.sh [OPTIONS OF neap-lab guard]: errors planted in real programs, which guarded samples of
# the shipped files must find. Obtains what the programs need first.
set -euo pipefail
cd "$(dirname "$0")/.."

lab=${CARGO_TARGET_DIR:-$PWD/target}/dist/neap-lab
"$lab" guard --install
"$lab" guard "$@"
