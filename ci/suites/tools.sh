# shellcheck shell=bash
# Sourced by ci/suites.sh: obtain, compile, run and judge other projects' tests.
#
# A test is named SUITE/NAME, a variant of it SUITE/NAME@VARIANT. ci/suites.sh sets cache, work,
# library, tier, pattern, expected and parallel.

die() {
    echo "$0: $*" >&2
    exit 1
}

# ---- obtain: into $cache/sources, once

# debian PACKAGE MEMBER...: extracts these members (patterns below the archive's root) of
# the upstream source of a Debian package into $cache/sources/PACKAGE.
debian() {
    local package=$1 target=$cache/sources/$1 archive
    shift
    origins+=("$target/.origin")
    [ ! -e "$target/.origin" ] || return 0
    debian_lists
    mkdir -p "$cache/download/$package" "$target.part"
    (cd "$cache/download/$package" &&
        apt-get "${debian_options[@]}" source --tar-only --only-source "$package") >&2 ||
        die "apt-get source $package failed: no source, no suite"
    archive=$(ls "$cache/download/$package/"*.orig.tar.*[!c])
    tar -xf "$archive" -C "$target.part" --strip-components=1 --no-same-owner \
        --wildcards "${@/#/*/}" || die "$archive does not contain $*"
    basename "$archive" >"$target.part/.origin"
    rm -rf "$target"
    mv "$target.part" "$target"
    echo "obtained $(basename "$archive")"
}

# Uses the machine's own Debian repositories for sources, with separate package lists.
debian_lists() {
    local apt=$cache/apt
    debian_options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root
        -o Acquire::Retries=3)
    [ -z "${debian_lists_read:-}" ] || return 0
    mkdir -p "$apt/lists/partial" "$apt/cache"
    sources_of_debian >"$apt/sources.list"
    if [ ! -s "$apt/sources.list" ]; then
        # The machine has no package lists, like a container's image.
        apt-get -qq "${debian_options[@]:5}" update >&2 || die "apt-get update failed"
        sources_of_debian "${debian_options[@]:5}" >"$apt/sources.list"
    fi
    [ -s "$apt/sources.list" ] || die "apt is configured without Debian's archive"
    apt-get "${debian_options[@]}" update >&2 || die "apt-get update failed for deb-src"
    debian_lists_read=yes
}

sources_of_debian() {
    apt-get "$@" indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' | sort -u
}

# crates NAME=VERSION...: puts the sources of these crates into $cache/sources/NAME.
crates() {
    local project=$cache/download/crates crate missing=()
    for crate in "$@"; do
        origins+=("$cache/sources/${crate%%=*}/.origin")
        [ -e "$cache/sources/${crate%%=*}/.origin" ] || missing+=("$crate")
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
        echo "$crate" >"$project/vendor/${crate%%=*}/.origin"
        rm -rf "$cache/sources/${crate%%=*}"
        mv "$project/vendor/${crate%%=*}" "$cache/sources/"
        echo "obtained the crate $crate"
    done
}

# ---- compile: into $programs, again when the recipe changes

# suite NAME: begins a suite whose sources were obtained. Its programs depend on the recipe (the
# script, the shims, the compiler) and on the sources.
suite() {
    local recipe
    suite=$1
    shim=$PWD/ci/suites/shim/$suite
    recipe=$({
        "${CC:-cc}" --version
        # Not every suite has a shim or a source.
        find "ci/suites/$suite.sh" "$shim" "${origins[@]}" -type f -exec cat {} + 2>/dev/null || true
    } | sha256sum | cut -c 1-12)
    programs=$cache/programs/$suite/$recipe
    mkdir -p "$programs"
    find "$cache/programs/$suite" -mindepth 1 -maxdepth 1 ! -name "$recipe" -exec rm -r {} +
}

# slot: waits until another job may run.
slot() {
    while [ "$(jobs -rp | wc -l)" -ge "$parallel" ]; do
        wait -n || true
    done
}

# compile OUTPUT COMMAND...: builds $programs/OUTPUT in the background with COMMAND -o OUTPUT, if a
# selected test has that name or it is an object file.
compile() {
    local output=$programs/$1
    [[ $1 == *.o ]] || { selected "$suite/$1" && ! listed skip "$suite/$1"; } || return 0
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

# selected NAME: whether this run includes a test.
selected() {
    # shellcheck disable=SC2053
    [[ $1 == $pattern ]] || return 1
    case $tier in
        quick) ! listed skip "$1" && ! listed long "$1" && [[ $1 != *@* ]] ;;
    esac
}

# check NAME COMMAND...: runs the test SUITE/NAME in the background. COMMAND begins with a program
# of $programs, or a path; variable assignments may precede it.
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

# proven FILE: at least one process left a testimony, and in each of them the library is loaded and
# serves `malloc` (except programs named in OWN_MALLOC, which define it themselves).
proven() {
    local answers=${own_malloc:+.*}
    [ -s "$1" ] && ! grep -qvx "loaded ${answers:-$library}" "$1"
}

# blame NAME HOME STATUS COMMAND...: reports a failure, and whether the test also fails under the
# system's malloc.
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

# sweep DIRECTORY: kills the remaining processes of tests that ran there, found by their
# environment: a hanging test leaves children in process groups of their own.
sweep() {
    local place
    for _ in 1 2 3; do
        for place in $(grep -lsaF "SUITES_WITNESS=$1/" /proc/[0-9]*/environ); do
            place=${place%/environ}
            kill -KILL "${place#/proc/}" 2>/dev/null || true
        done
    done
}

# run HOME PRELOAD COMMAND...: in HOME, with a time limit; the output is HOME/log.
run() {
    local home=$1 preload=$2 status=0 variables=()
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
    # Otherwise the shell would report a signal on standard error.
    {
        ulimit -c 0
        timeout -k 5 "$limit" env -C "$home" "${variables[@]}" SUITES_WITNESS="$home/witness" \
            ${preload:+LD_PRELOAD="$preload"} "$program" "$@" >"$home/log" 2>&1 </dev/null || status=$?
    } 2>/dev/null
    sweep "$home"
    return $status
}
