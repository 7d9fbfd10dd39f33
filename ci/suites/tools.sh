# shellcheck shell=bash
# Sourced by ci/suites.sh: obtain, compile, run and judge other people's tests.
#
# A test is named SUITE/NAME, a variant of it SUITE/NAME@VARIANT. Set by ci/suites.sh:
# cache, work, library, tier, pattern, expected, parallel.

die() {
    echo "ci/suites.sh: $*" >&2
    exit 1
}

# ---- obtain: into $cache/sources, once

# debian PACKAGE MEMBER...: extracts these members (patterns below the archive's root) of
# the upstream source of a Debian package into $cache/sources/PACKAGE.
debian() {
    local package=$1 target=$cache/sources/$1 archive
    shift
    [ ! -e "$target" ] || return 0
    debian_lists
    mkdir -p "$cache/download/$package" "$target.part"
    (cd "$cache/download/$package" &&
        apt-get "${debian_options[@]}" source --tar-only --only-source "$package") >&2 ||
        die "apt-get source $package failed: no source, no suite"
    archive=$(ls "$cache/download/$package/"*.orig.tar.*[!c])
    tar -xf "$archive" -C "$target.part" --strip-components=1 --no-same-owner \
        --wildcards "${@/#/*/}" || die "$archive does not contain $*"
    mv "$target.part" "$target"
    echo "obtained $(basename "$archive")"
}

# The machine's own Debian repositories, asked for sources through lists of our own.
debian_lists() {
    local apt=$cache/apt
    debian_options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root
        -o Acquire::Retries=3)
    [ -z "${debian_lists_read:-}" ] || return 0
    mkdir -p "$apt/lists/partial" "$apt/cache"
    apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' | sort -u >"$apt/sources.list"
    [ -s "$apt/sources.list" ] || die "apt knows no Debian repository; run apt-get update"
    apt-get "${debian_options[@]}" update >&2 || die "apt-get update failed for deb-src"
    debian_lists_read=yes
}

# crates NAME=VERSION...: puts the sources of these crates into $cache/sources/NAME.
crates() {
    local project=$cache/download/crates crate missing=()
    for crate in "$@"; do
        [ -e "$cache/sources/${crate%%=*}" ] || missing+=("$crate")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    mkdir -p "$project/src" "$cache/sources"
    : >"$project/src/lib.rs"
    {
        printf '[package]\nname = "strangers"\nversion = "0.0.0"\nedition = "2021"\n'
        printf '[workspace]\n[dependencies]\n'
        for crate in "${missing[@]}"; do
            echo "${crate%%=*} = \"=${crate#*=}\""
        done
    } >"$project/Cargo.toml"
    rm -f "$project/Cargo.lock"
    (cd "$project" && cargo vendor -q vendor >/dev/null) || die "cargo vendor failed: ${missing[*]}"
    for crate in "${missing[@]}"; do
        mv "$project/vendor/${crate%%=*}" "$cache/sources/"
        echo "obtained the crate $crate"
    done
}

# ---- compile: into $programs, again when the recipe changes

# suite NAME: begins a suite; its recipe is ci/suites/NAME.sh and ci/suites/shim/NAME/.
suite() {
    local recipe
    suite=$1
    recipe=$({ "${CC:-cc}" --version; find "ci/suites/$suite.sh" "ci/suites/shim/$suite" -type f \
        -exec cat {} + 2>/dev/null; ls "$cache/download"/*; } | sha256sum | cut -c 1-12)
    programs=$cache/programs/$suite/$recipe
    shim=$PWD/ci/suites/shim/$suite
    mkdir -p "$programs"
}

# slot: waits until another job may run.
slot() {
    while [ "$(jobs -rp | wc -l)" -ge "$parallel" ]; do
        wait -n || true
    done
}

# compile OUTPUT COMMAND...: builds $programs/OUTPUT in the background by COMMAND -o OUTPUT, if a
# selected test has that name, or if it is an object file.
compile() {
    local output=$programs/$1
    [[ $1 == *.o ]] || selected "$suite/$1" || return 0
    shift
    [ ! -e "$output" ] || return 0
    slot
    { "$@" -w -fno-diagnostics-show-caret -o "$output.part" >"$output.log" 2>&1 && mv "$output.part" "$output"; } &
}

# ---- run and judge

# listed KIND NAME: sets `reason` if ci/suites/expected.txt has a line KIND PATTERN REASON.
listed() {
    local kind glob
    while read -r kind glob reason; do
        # shellcheck disable=SC2053
        [[ $kind == "$1" && $2 == $glob ]] && return 0
    done <"$expected"
    return 1
}

# selected NAME: whether this run is to include a test.
selected() {
    # shellcheck disable=SC2053
    [[ $1 == $pattern ]] || return 1
    case $tier in
        quick) ! listed skip "$1" && ! listed long "$1" && [[ $1 != *@* ]] ;;
    esac
}

# check NAME COMMAND...: runs the test SUITE/NAME in the background. COMMAND begins with a
# program of $programs, or a path; assignments to environment variables may stand before it.
check() {
    local name=$suite/$1
    shift
    selected "$name" || return 0
    slot
    judge "$name" "$@" &
}

verdict() { # verdict KIND NAME TEXT
    printf '%s\n' "$1" >"$work/verdicts/${2//\//.}"
    printf '%-22s %s%s\n' "$1" "$2" "${3:+: $3}"
}

judge() {
    local name=$1 status=0 reason home began=$SECONDS
    shift
    if listed skip "$name"; then
        verdict skipped "$name" "$reason"
        return
    fi
    home=$work/runs/${name//\//.}
    mkdir -p "$home"
    run "$home" "$library $witness" "$@" || status=$?
    if [ $status -eq 77 ]; then
        verdict skipped "$name" "the test says that it cannot run here"
    elif [ $status -ne 126 ] && [ $status -ne 127 ] && ! proven "$home/witness"; then
        verdict FAIL "$name" "a process did not run under the library: $(sort -u "$home/witness" | tr '\n' ' ')"
    elif listed fails "$name"; then
        if [ $status -eq 0 ]; then
            verdict 'now passes' "$name" "take it off the list"
        else
            verdict 'expected failure' "$name" "$reason"
        fi
    elif [ $status -eq 0 ]; then
        verdict pass "$name" "$([ $((SECONDS - began)) -lt 5 ] || echo "$((SECONDS - began)) s")"
    else
        blame "$name" "$home" "$status" "$@"
    fi
}

# proven FILE: at least one process testified, and in each of them the library is loaded and
# answers `malloc` (the programs named in OWN_MALLOC define it themselves).
proven() {
    local answers=${own_malloc:+.*}
    [ -s "$1" ] && ! grep -qvx "loaded ${answers:-$library}" "$1"
}

# blame NAME HOME STATUS COMMAND...: a failure, and whether the system's malloc has it as well.
blame() {
    local name=$1 home=$2 status=$3 system=0
    shift 3
    mkdir -p "$home.system"
    run "$home.system" "" "$@" || system=$?
    {
        verdict FAIL "$name" "$(meaning "$status"); under the system's malloc: $(meaning $system)"
        tail -n 10 "$home/log" | cut -c 1-200 | sed 's/^/    | /'
    } >"$home/said"
    cat "$home/said"
}

meaning() {
    case $1 in
        0) echo passes ;;
        124 | 137) echo "not done after $limit s" ;;
        127) echo "was not compiled" ;;
        *) if [ "$1" -gt 128 ]; then echo "signal $(($1 - 128))"; else echo "status $1"; fi ;;
    esac
}

# run HOME PRELOAD COMMAND...: in HOME, with a limit of time; the output is HOME/log.
run() {
    local home=$1 preload=$2 variables=()
    shift 2
    while [[ $1 == *=* ]]; do
        case $1 in
            LD_PRELOAD=*) preload+=" ${1#*=}" ;;
            *) variables+=("$1") ;;
        esac
        shift
    done
    local program=$1
    shift
    [[ $program == /* ]] || program=$programs/$program
    if [ ! -x "$program" ]; then
        grep -m 3 "error\|undefined" "$program.log" >"$home/log" 2>/dev/null || echo "$program: missing" >"$home/log"
        return 127
    fi
    # The shell itself would report a signal on standard error.
    {
        ulimit -c 0
        timeout -k 5 "$limit" env -C "$home" "${variables[@]}" SUITES_WITNESS="$home/witness" \
            ${preload:+LD_PRELOAD="$preload"} "$program" "$@" >"$home/log" 2>&1 </dev/null
    } 2>/dev/null
}
