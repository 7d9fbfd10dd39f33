#!/usr/bin/env bash
# ci/kv.sh [OPTIONS OF kv-burst]: the example beside redis-server, built as the shipped files are.
set -euo pipefail
cd "$(dirname "$0")/.."

# What ci/dist.sh built for the commands serves these, too.
work=${CARGO_TARGET_DIR:-target}/dist-build/commands
cargo build --profile dist -p neap-kv --bins --target-dir "$work"
"$work/dist/kv-burst" "$@"
