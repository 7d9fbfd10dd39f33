# shellcheck shell=bash
# Sourced by .ci/run and ci/full.sh: named and timed steps, with a closing summary. A failed tier
# does not stop the others. A failed `required` tier does, because the others depend on it. If
# `latest_start` is set, a tier that has not started by then, in seconds, fails.

results=()
failures=0

tier() { # tier NAME COMMAND ARGS…
    local name=$1 start=$SECONDS verdict=ok
    shift
    echo "=== $name: $*"
    if [ "$start" -gt "${latest_start:-$start}" ]; then
        verdict="FAILED (not started: $latest_start s are over)"
    else
        "$@" </dev/null || verdict="FAILED ($?)"
    fi
    [ "$verdict" = ok ] || failures=$((failures + 1))
    results+=("$(printf '%-14s %5d s  %s' "$name" $((SECONDS - start)) "$verdict")")
    echo "=== ${results[-1]}"
}

required() {
    local before=$failures
    tier "$@"
    [ "$failures" = "$before" ] || summary
}

# Prints the results and ends the script.
summary() {
    echo "=== summary, $SECONDS s in all"
    printf '%s\n' "${results[@]}"
    [ "$failures" -eq 0 ] || echo "$failures failed"
    exit $((failures > 0))
}
