#!/usr/bin/env bash
# sanitizers.sh [quick|full] [TOOL...]: the unit tests of the heap, the instruments and what they
# share, under AddressSanitizer (address), ThreadSanitizer (thread) and valgrind's memcheck
# (memcheck). docs/sanitizers.md says what each tool sees in an allocator.
#
# ci/sanitizers/left-out.txt lists the tests that a tool cannot run. The script fails if another
# test fails, if a listed test no longer exists, or if a tool reports other errors than those that
# ci/sanitizers/planted.txt expects of it. `full` tries as many random cases as `cargo test`, and
# under memcheck a sixteenth of them. `quick` tries fewer.
set -euo pipefail
cd "$(dirname "$0")/.."
extent=${1:-quick}
tools=("${@:2}")
[ ${#tools[@]} -gt 0 ] || tools=(address thread memcheck)

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
triple=x86_64-unknown-linux-gnu
packages=(-p neap-heap -p neap-shared -p neap-instruments)
# All but a few of the packages' unit tests.
declare -A least=([address]=290 [thread]=290 [memcheck]=280)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
    echo "ci/sanitizers.sh: $*" >&2
    exit 1
}

case $extent in
    quick) cases=16 cases_of_memcheck=4 ;;
    full) cases=256 cases_of_memcheck=16 ;;
    *) die "usage: ci/sanitizers.sh [quick|full] [address|thread|memcheck]..." ;;
esac

# ---- what it needs

# has TOOL: whether it is there; says what to install if not. What rustup installs comes from a
# server that some machines cannot reach.
has() {
    local libraries
    if [ "$1" = memcheck ]; then
        command -v valgrind >/dev/null && return
        [ -z "${REQUIRE_ALL:-}" ] || die "$1: install valgrind"
        echo "SKIPPED: $1: install valgrind"
        return 1
    fi
    libraries=$(rustc --print target-libdir --target $triple)
    if ! compgen -G "$libraries/librustc*_rt.${1:0:1}san.a" >/dev/null; then
        echo "SKIPPED: $1: this Rust has no runtime of the sanitizer; install Rust by rustup"
        return 1
    fi
    # Without its source the standard library is not instrumented, and its locks look like races.
    if [ "$1" = thread ] && [ ! -e "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
        echo "SKIPPED: $1: rustup component add rust-src"
        return 1
    fi
}

# ---- one tool

# under TOOL ARGUMENT...: `cargo test` of the packages under a tool.
under() {
    local tool=$1
    shift
    case $tool in
        # Tests leave their heaps behind, so leaks say nothing.
        address)
            RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$target/address ASAN_OPTIONS=detect_leaks=0 \
                RUSTFLAGS='-Zsanitizer=address --cfg sanitized --cfg sanitized="address"' \
                timeout 3000 cargo test -q --target $triple "${packages[@]}" --lib "$@"
            ;;
        # The workspace's profile would build the standard library without optimization.
        thread)
            RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$target/thread RUSTFLAGS='-Zsanitizer=thread --cfg sanitized' \
                timeout 3000 cargo --config 'profile.dev.package."*".opt-level=1' \
                test -q --target $triple -Zbuild-std "${packages[@]}" --lib "$@"
            ;;
        # Plain tests, with the fast path in assembly, which valgrind understands.
        memcheck)
            CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind -q --leak-check=no --fair-sched=yes
                --child-silent-after-fork=yes --error-exitcode=99" \
                timeout 3000 cargo test -q "${packages[@]}" --lib "$@"
            ;;
    esac
}

# The words by which each tool reports an error of a program.
declare -A words=(
    [address]='ERROR: AddressSanitizer: use-after-poison'
    [thread]='WARNING: ThreadSanitizer: data race'
    [memcheck]='Invalid read of size\|depends on uninitialised value'
)

# planted TOOL TEST TOOLS: runs a test with an error on purpose, which TOOLS report, and no other.
planted() {
    local tool=$1 test=testing::planted::$2 expected=passes seen=passes
    [[ ,$3, != *,$tool,* ]] || expected=reported
    under "$tool" -- --ignored --exact "$test" >"$work/planted" 2>&1 || seen=fails
    ! grep -q "${words[$tool]}" "$work/planted" || seen=reported
    grep -q '^running 1 test' "$work/planted" || die "ci/sanitizers/planted.txt names $2, which does not exist"
    [ $seen = $expected ] || { cat "$work/planted"; die "$tool: $test: $seen, not $expected"; }
}

# tests TOOL: the packages' tests without what is left out, then the planted errors.
tests() {
    local tool=$1 name seers passed out=() started=$SECONDS random=$cases
    [ "$tool" != memcheck ] || random=$cases_of_memcheck
    under "$tool" -- --list >"$work/list" 2>"$work/said" || { cat "$work/said"; die "$tool: the tests do not build"; }
    while read -r name; do
        grep -q "^$name: test\$" "$work/list" || die "ci/sanitizers/left-out.txt names $name, which does not exist"
        out+=(--skip "$name")
    done < <(awk -v tool="$tool" '$1 == tool { print $2 }' ci/sanitizers/left-out.txt)
    PROPTEST_CASES=$random under "$tool" -- "${out[@]}" >"$work/tests" 2>&1 || { cat "$work/tests"; die "$tool: tests failed"; }
    passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$work/tests" | awk '{ sum += $1 } END { print sum + 0 }')
    ! grep SKIPPED "$work/tests" || die "$tool: a test skipped a part: put the test on the list, with the reason"
    [ "$passed" -ge "${least[$tool]}" ] || die "$tool: $passed tests ran, ${least[$tool]} are expected"
    while read -r name seers; do
        planted "$tool" "$name" "$seers"
    done < <(grep -v '^#' ci/sanitizers/planted.txt)
    echo "pass sanitizers/$tool: $passed tests, $((${#out[@]} / 2)) left out, $((SECONDS - started)) s"
}

for tool in "${tools[@]}"; do
    [ -n "${words[$tool]:-}" ] || die "no such tool: $tool"
    ! has "$tool" || tests "$tool"
done
