#!/usr/bin/env bash
# The long runs, on the shipped files: real programs at full size and their ledgers, all of the Python modules,
# other projects' test suites, the torture test's 10^6 rounds, every experiment of the lab (those on zeroing
# briefly), the example beside redis-server. Within 90 minutes on two cores with nothing else to do: what only
# measures has its bound in the row, and what has not started after 80 minutes fails.
set -euo pipefail
cd "$(dirname "$0")/.."
export REQUIRE_ALL=1 CARGO_TERM_COLOR=never
latest_start=4800
. ci/tiers.sh
# Where `go install` puts programs.
export PATH="$PATH:$HOME/go/bin"

target=${CARGO_TARGET_DIR:-$PWD/target}

required install ci/install.sh
required dist ci/dist.sh
tier programs env TEST_TIER=full LIBRARY_UNDER_TEST="$target/dist/libneap.so" ci/ledger.sh "$target/ledger.csv"
tier python ci/python-suite.sh full
# Every test of other projects' suites, glibc's in all of its variants.
tier suites ci/suites.sh full
# Every way of charging commits, if this machine lets us choose; put back whatever happens.
tier overcommit ci/overcommit.sh "$target/dist/libneap.so"
tier torture ci/torture.sh "$target/dist/libneap.so"
tier forks env FORK_ROUNDS=10000 LIBRARY_UNDER_TEST="$target/dist/libneap.so" cargo test -p neap-c --test preload fork::
tier peers "$target/dist/neap-lab" peers
# The fewest rounds that can prove anything. The project's own records are not replaced.
tier bench "$target/dist/neap-lab" bench --rounds 6 --seconds 1200 --records "$target/records"
tier calloc "$target/dist/neap-lab" calloc --quick
tier memory "$target/dist/neap-lab" memory --mib 256
tier retention "$target/dist/neap-lab" retention
tier fragmentation "$target/dist/neap-lab" fragmentation
tier mesh "$target/dist/neap-lab" mesh
tier classes "$target/dist/neap-lab" classes
# Prices have a bar, which only a quiet machine tells about.
tier profile "$target/dist/neap-lab" profile --only truth
tier tide "$target/dist/neap-lab" tide --seconds 300
# Needs about 6 GB; where there is less it says so, and fails.
tier million "$target/dist/neap-lab" tide --peers neap --only waited --no-prices --coroutines 1000000 --stack-kib 16
tier download "$target/dist/neap-lab" download --offline --rounds 1 --mb 16 --chunks 1,10,100
tier kv ci/kv.sh
summary
