#!/usr/bin/env bash
# ci/kv.sh [OPTIONS OF kv-burst]: the example beside redis-server, built like the shipped files.
set -euo pipefail
cd "$(dirname "$0")/.."

# Reuses what ci/dist.sh built for the commands.
work=${CARGO_TARGET_DIR:-target}/dist-build/commands
cargo build --profile dist -p neap-kv --bins --target-dir "$work"
"$work/dist/kv-burst" "$@"
