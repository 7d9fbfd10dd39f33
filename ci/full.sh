#!/usr/bin/env bash
# The long runs, on the shipped files: real programs at full size and their ledgers, all Python
# modules, other projects' test suites, the torture test's 10^6 rounds, every experiment of the
# lab (those on zeroing briefly), the case book, and the example beside redis-server. They take
# about four hours on two otherwise idle cores (durations of two runs, and what bench may take),
# and fuzzing at the end six and a half hours more. Each measurement limits its own time; a tier
# that has not started after four and a half hours fails. With TIERS="NAME NAME…" in the
# environment, only the named and the required tiers run.
set -euo pipefail
cd "$(dirname "$0")/.."
export REQUIRE_ALL=1 CARGO_TERM_COLOR=never
latest_start=16200
. ci/tiers.sh
# `go install` puts programs there.
export PATH="$PATH:$HOME/go/bin"

target=${CARGO_TARGET_DIR:-$PWD/target}

required install ci/install.sh
required dist ci/dist.sh
tier programs env TEST_TIER=full LIBRARY_UNDER_TEST="$target/dist/libneap.so" ci/ledger.sh "$target/ledger.csv"
tier models ci/models.sh
tier python ci/python-suite.sh full
# With a notebook's kernel, from Python's package index.
tier packages ci/packages.sh full
# With the oldest compiler, all of the crates' tests.
tier crates ci/crates.sh full
# The heap's tests under AddressSanitizer, ThreadSanitizer and memcheck.
tier sanitizers ci/sanitizers.sh full
tier musl-service ci/musl-service.sh full
# Every test of other projects' suites, glibc's in all of its variants.
tier suites ci/suites.sh full
# All tests of the tier `preload` with Debian's musl, 1.2.2 and 1.2.5; a longer load on redis.
tier musl env C_LIBRARY_UNDER_TEST=musl LIBRARY_UNDER_TEST="$target/dist/libneap.so" cargo test -q -p neap-c --test preload
tier musl-versions ci/musl-versions.sh full
tier musl-programs ci/musl.sh full
# Every overcommit mode, if this machine allows the change; the old one is restored in any case.
tier overcommit ci/overcommit.sh "$target/dist/libneap.so"
tier torture ci/torture.sh "$target/dist/libneap.so"
tier aarch64 ci/aarch64.sh full
# Other kernels and pages of 16 KiB, in each setting of huge pages, by an emulator.
tier kernels ci/kernels.sh full
tier cgroups-1 env PARTS=cgroups-1 ci/kernels.sh full bullseye bookworm
# The tests of the tier `tests`, on the shipped library.
tier preload env TEST_TIER=full LIBRARY_UNDER_TEST="$target/dist/libneap.so" cargo test -q -p neap-c --test preload
# All tests in root's folder of mode 700, below /tmp, and on another file system. .ci/run covers the
# worst place.
tier strangers ci/stranger.sh root tmp mount
# Every error at every place that calls the kernel.
tier injected env INJECT=all LIBRARY_UNDER_TEST="$target/dist/libneap.so" cargo test -q -p neap-c --test preload injected
tier forks env FORK_ROUNDS=10000 LIBRARY_UNDER_TEST="$target/dist/libneap.so" cargo test -p neap-c --test preload fork::
# Pyroscope and Parca, which are compiled at first.
tier fleet ci/fleet.sh
tier peers "$target/dist/neap-lab" peers
# The fewest rounds that can reach significance. The project's own records are not replaced.
tier programs-installed "$target/dist/neap-lab" bench --install
tier bench "$target/dist/neap-lab" bench --rounds 6 --seconds 4800 --records "$target/records"
tier calloc "$target/dist/neap-lab" calloc --quick
tier hardened "$target/dist/neap-lab" peers --peers hardened,hardened-light
tier security "$target/dist/neap-lab" security --records "$target/records"
tier retention "$target/dist/neap-lab" retention
tier fragmentation "$target/dist/neap-lab" fragmentation
tier classes "$target/dist/neap-lab" classes
tier profile "$target/dist/neap-lab" profile
tier tide "$target/dist/neap-lab" tide --seconds 300
# Needs about 6 GB; with less memory it says so and fails.
tier million "$target/dist/neap-lab" tide --peers neap --only waited --coroutines 1000000 --stack-kib 16
tier cases ci/cases.sh full
tier kv ci/kv.sh
tier guard ci/guard.sh --records "$target/records"
# Half an hour of mixed load.
tier soak ci/soak.sh --minutes 30 --records "$target/records"
# An hour for each target, two at a time: six and a half hours. With FUZZ_TOTAL=900 in the
# environment, all of them take fifteen minutes.
tier fuzz ci/fuzz.sh 3600
summary
