#!/usr/bin/env bash
# ci/suites.sh [quick|full] [LIBRARY] [PATTERN]
#
# Runs the tests that other projects wrote for their allocators under the library
# (target/dist/libneap.so); docs/suites.md lists them. The sources come from Debian's archive and
# crates.io. They are kept in target/suites and never committed. The recipes, and the headers that
# replace each project's own, are in ci/suites/. PATTERN selects tests, as in
# 'glibc/tst-mallocfork*'.
#
# Prints one line per test: pass, expected failure (ci/suites/expected.txt has the reason), skipped,
# or FAIL with the last lines of output. The status is 1 after a FAIL, or if a source is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

tier=${1:-quick}
target=$(realpath "${CARGO_TARGET_DIR:-target}")
library=$(realpath "${2:-$target/dist/libneap.so}")
pattern=${3:-*}
case $tier in
    quick | full) ;;
    *) echo "usage: $0 [quick|full] [LIBRARY] [PATTERN]" >&2; exit 2 ;;
esac

expected=$PWD/ci/suites/expected.txt
cache=$target/suites
parallel=$(nproc)
# Seconds that a test may take; a test that takes longer is killed and fails.
limit=60
[ "$tier" = quick ] || limit=120
. ci/suites/tools.sh
work=$(mktemp -d)
trap 'sweep "$work/runs"; rm -rf "$work"' EXIT
mkdir -p "$cache/download" "$cache/sources" "$work/verdicts" "$work/runs"

witness=$work/witness.so
"${CC:-cc}" -O1 -Wall -Wextra -Werror -shared -fPIC -o "$witness" ci/suites/witness.c

suites=(glibc jemalloc mimalloc snmalloc rpmalloc gperftools onetbb scudo small stress-ng)
for name in "${suites[@]}"; do
    # shellcheck disable=SC2053
    [[ $pattern == "*" || $pattern == "$name"/* ]] || continue
    . "ci/suites/$name.sh"
    origins=()
    obtain
    suite "$name"
    build
    wait
    tests
done
wait

count() { cat "$work/verdicts/"* 2>/dev/null | grep -cx "$1" || true; }
failed=$(count FAIL)
echo "suites ($tier): $(count pass) pass, $(count 'expected failure') expected failures," \
    "$(count 'now passes') now pass, $(count skipped) skipped, $failed FAIL in $SECONDS s"
[ "$failed" -eq 0 ]
