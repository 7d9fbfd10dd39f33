#!/usr/bin/env bash
# Fuzzes the parsers of foreign data and the heap's entry points (docs/decisions/0034-fuzzing.md).
# fuzz/src/targets/mod.rs lists the targets.
#
#   ci/fuzz.sh SECONDS [TARGET...]   runs each target for so long, two at a time
#   ci/fuzz.sh replay [TARGET...]    only runs the inputs that are there
#   ci/fuzz.sh seeds                 writes the first inputs to fuzz/seeds
#   ci/fuzz.sh keep [TARGET...]      adds to fuzz/seeds what covers more, up to 8 KB a target
#   ci/fuzz.sh list                  prints the targets
#
# Fails on a panic, an abort, an input that takes over ten seconds, or one that takes more memory
# than its target may. The input is then in target/fuzz/found/TARGET-*. To run it again:
# `target/fuzz/bin/TARGET FILE`. What covers new code stays in target/fuzz/corpus/TARGET for the
# next run. With FUZZ_TOTAL=SECONDS, each target's time is shortened such that all of them together
# take about so long.
#
# It needs stable Rust and a C++ compiler, because the crate libfuzzer-sys brings libFuzzer's
# sources.
set -euo pipefail
cd "$(dirname "$0")/.."

task=${1:?seconds for each target, or replay, seeds, keep, list}
shift
work=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
# An input may take this long, in seconds. Busy machines are ten times slower than idle ones.
patience=10
# Resident memory of a target, in MiB. What one input may allocate is in fuzz/src/targets/mod.rs.
most_mib=3072

# Counters at every edge, and the operands of compares. These flags of the compiler are stable.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage+=" -Cllvm-args=-sanitizer-coverage-pc-table"
coverage+=" -Cllvm-args=-sanitizer-coverage-trace-compares"

# `--target` keeps the flags away from build scripts and macros.
(cd fuzz && RUSTFLAGS=$coverage CARGO_TARGET_DIR=$work cargo build -q --locked --release --target "$host")
program=$work/$host/release/neap-fuzz

# seeds_of TARGET: the folder of its first inputs. Two targets perform the same calls.
seeds_of() {
    case $1 in
        hardened) echo fuzz/seeds/heap ;;
        *) echo "fuzz/seeds/$1" ;;
    esac
}

# The program lists its targets if its name is none of them.
mapfile -t all < <("$program" 2>/dev/null || true)
targets=("$@")
[ $# -gt 0 ] || targets=("${all[@]}")
mkdir -p "$work/bin" "$work/found" "$work/logs"
for target in "${targets[@]}"; do
    [[ " ${all[*]} " == *" $target "* ]] || { echo "no target $target: ${all[*]}" >&2; exit 2; }
    ln -sf "$program" "$work/bin/$target"
    mkdir -p "$work/corpus/$target" "$(seeds_of "$target")"
done

# Two small programs with symbols and debug information, which are no texts for a repository.
small_programs() {
    local source=$work/small.c
    echo 'static int twice(int n) { return 2 * n; } int main(int c, char **v) { return twice(c); }' \
        >"$source"
    mkdir -p "$work/corpus/program" "$work/corpus/symbols"
    "${CC:-cc}" -O1 -s "$source" -o "$work/corpus/program/small"
    "${CC:-cc}" -O1 -g -nostdlib -static -Wl,-e,main,-z,noseparate-code "$source" -o "$work/small"
    # Before the program, offsets of two bytes at which symbols are looked up.
    { printf '\001\001\014\001\060\001\100\002'; cat "$work/small"; } >"$work/corpus/symbols/small"
}

# options TARGET: what every run has.
options() {
    echo "-timeout=$patience -rss_limit_mb=$most_mib -max_len=16384 -print_final_stats=1" \
        "-artifact_prefix=$work/found/$1-"
}

# run TARGET: one run; its output goes to a log.
run() {
    local target=$1 log=$work/logs/$1 status=0
    # The options are words.
    # shellcheck disable=SC2046
    if [ "$task" = replay ]; then
        "$work/bin/$target" $(options "$target") -runs=0 \
            "$work/corpus/$target" "$(seeds_of "$target")" >"$log" 2>&1 || status=$?
    else
        "$work/bin/$target" $(options "$target") -max_total_time="$seconds" -reduce_inputs=1 \
            "$work/corpus/$target" "$(seeds_of "$target")" >"$log" 2>&1 || status=$?
    fi
    report "$target" "$log" "$status"
    return "$status"
}

# report TARGET LOG STATUS: one line.
report() {
    local runs coverage inputs
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$2" | tail -1)
    coverage=$(grep -o 'cov: [0-9]*' "$2" | tail -1)
    inputs=$(grep -o 'corp: [0-9]*' "$2" | tail -1)
    printf '%-12s %12s runs  %-12s %-12s %s\n' \
        "$1" "${runs:-?}" "${coverage:-cov: ?}" "${inputs:-corp: ?}" \
        "$([ "$3" = 0 ] && echo ok || echo "FAILED ($3): see $2")"
    [ "$3" = 0 ] || grep -a -m3 'panicked\|ERROR\|SUMMARY' -A2 "$2" | head -12 || true
}

case $task in
    list) printf '%s\n' "${all[@]}" ;;
    seeds) WRITE_SEEDS=fuzz/seeds "$program" 2>/dev/null ;;
    keep)
        for target in "${targets[@]}"; do
            # Smallest first, so few bytes cover much.
            seeds=$(seeds_of "$target")
            "$work/bin/$target" -merge=1 -max_len=1024 "$seeds" \
                "$work/corpus/$target" >"$work/logs/$target" 2>&1
            find "$seeds" -type f -name '????????????????????????????????????????' \
                -printf '%s %p\n' | sort -n |
                awk '{ sum += $1; if (sum > 8192 || NR > 100) print $2 }' | xargs -r rm
            echo "$target: $(cat "$seeds"/* | wc -c) bytes"
        done
        ;;
    *)
        seconds=0
        if [ "$task" != replay ]; then
            seconds=$task
            # Two run at a time.
            most=$((${FUZZ_TOTAL:-0} * 2 / ${#targets[@]}))
            [ "$most" = 0 ] || [ "$seconds" -le "$most" ] || seconds=$most
        fi
        small_programs
        export -f run report options seeds_of
        export work task seconds patience most_mib
        printf '%s\n' "${targets[@]}" | xargs -P 2 -I {} bash -c 'run {}'
        ;;
esac
