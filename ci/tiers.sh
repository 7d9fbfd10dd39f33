# shellcheck shell=bash
# Sourced by .ci/run and ci/full.sh: named and timed steps, with a closing summary. A failed tier
# does not stop the others. A failed `required` tier does, because the others depend on it. If
# `latest_start` is set, a tier that has not started by then, in seconds, fails. With TIERS="NAME
# NAME…" in the environment, only the named and the required tiers run. The summary lists the tiers
# left out, and for each that failed its failed tests and last lines. A name that no tier has is a
# failure.

results=()
failed=()
failures=0
printed=$(mktemp -d)
trap 'rm -rf "$printed"' EXIT
left_out=()
unknown=" ${TIERS:-} "

tier() { # tier NAME COMMAND ARGS…
    local name=$1 chosen=${TIERS:-$1}
    unknown=${unknown// $name / }
    case " $chosen " in
    *" $name "*) run "$@" ;;
    *) left_out+=("$name") ;;
    esac
}

run() { # run NAME COMMAND ARGS…
    local name=$1 start=$SECONDS verdict=ok
    shift
    echo "=== $name: $*"
    if [ "$start" -gt "${latest_start:-$start}" ]; then
        verdict="FAILED (not started: $latest_start s are over)"
        echo "$verdict" >"$printed/$name"
    else
        "$@" </dev/null > >(exec tee "$printed/$name") 2>&1 || verdict="FAILED ($?)"
    fi
    if [ "$verdict" != ok ]; then
        failures=$((failures + 1))
        failed+=("$name")
    fi
    results+=("$(printf '%-14s %5d s  %s' "$name" $((SECONDS - start)) "$verdict")")
    echo "=== ${results[-1]}"
}

required() {
    local before=$failures
    unknown=${unknown// $1 / }
    run "$@"
    [ "$failures" = "$before" ] || summary
}

# Prints the results and ends the script.
summary() {
    local name
    for name in "${failed[@]}"; do
        echo "=== $name, which failed: what its tests say, and its end"
        awk '/^---- .* ----/ { left = 15 } left-- > 0' "$printed/$name" | head -n 60
        tail -n 20 "$printed/$name"
    done
    echo "=== summary, $SECONDS s in all"
    printf '%s\n' "${results[@]}"
    [ "${#left_out[@]}" -eq 0 ] || echo "left out: ${left_out[*]}"
    if [ -n "${unknown// /}" ]; then
        echo "no such tier:$unknown"
        failures=$((failures + 1))
    fi
    [ "$failures" -eq 0 ] || echo "$failures failed"
    exit $((failures > 0))
}
