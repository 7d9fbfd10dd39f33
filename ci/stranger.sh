#!/usr/bin/env bash
# Runs the tests as a stranger would. Run it as root: ci/stranger.sh [FORM…]
#
#   worst   a plain user's clone with a space in its name, in a folder of mode 700; then, as root,
#           the tests that this user's run left to root (the default)
#   root    root's clone in a folder of mode 700
#   tmp     root's clone below /tmp, on a terminal
#   mount   a plain user's clone on another file system, a tmpfs of 8 GiB, on a terminal
#
# The plain user may lock 8 MiB and have 1,024 open files. The script creates this user, and a copy
# of the Rust toolchain if the user cannot read root's. It removes both, and the clones, at its end.
# For each form it prints how many tests passed, failed and were skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
user=neap-stranger
failures=0
export REQUIRE_ALL=1 CARGO_TERM_COLOR=never
unset CARGO_TARGET_DIR XDG_RUNTIME_DIR TMPDIR

[ "$(id -u)" = 0 ] || { sed -n 2,3p "$0" >&2; exit 2; }
# Below /var: /tmp is one of the forms.
work=$(mktemp -d /var/tmp/neap-stranger.XXXXXX)
tmp=
home=

# What the plain user's programs leave in folders that all users share. A link's folder that another
# user made, in a user namespace as root's, would be in the next run's way.
sweep_shared() {
    ! id "$user" >/dev/null 2>&1 ||
        find /dev/shm /tmp /var/tmp -maxdepth 1 -user "$user" ! -path "$work" -exec rm -rf {} +
}

clean_up() {
    ! mountpoint -q "$work/mount" || umount -l "$work/mount"
    rm -rf "$work" ${tmp:+"$tmp"} ${home:+"$home"}
    sweep_shared
    # -f: a process of a test may not have ended yet.
    ! id "$user" >/dev/null 2>&1 || userdel -f "$user" 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# as_user COMMAND…: as the plain user, with this user's limits and a PATH of what the user can reach
as_user() (
    ulimit -l 8192
    ulimit -n 1024
    exec setpriv --reuid="$user" --regid="$user" --clear-groups env HOME="$work/home" \
        USER="$user" LOGNAME="$user" PATH="$user_path" CARGO_HOME="$work/cargo" "$@"
)

reaches() { # reaches FILE: whether the plain user can execute it
    setpriv --reuid="$user" --regid="$user" --clear-groups test -x "$1"
}

# Puts what root has in its own folders where the plain user can use it.
equip_user() {
    local sysroot cargo=${CARGO_HOME:-$HOME/.cargo} folder program
    useradd --system --no-create-home --home-dir "$work/home" --shell /bin/sh "$user" 2>/dev/null ||
        id "$user" >/dev/null
    chmod 755 "$work"
    mkdir -p "$work/home" "$work/bin" "$work/cargo"
    sysroot=$(rustc --print sysroot)
    if ! reaches "$sysroot/bin/cargo"; then
        # Links to the same files, where the file system allows them.
        mkdir "$work/toolchain"
        cp -al "$sysroot"/{bin,lib,libexec} "$work/toolchain" 2>/dev/null ||
            cp -a "$sysroot"/{bin,lib,libexec} "$work/toolchain"
        sysroot=$work/toolchain
    fi
    cargo fetch -q --locked
    for folder in registry config config.toml; do
        [ ! -e "$cargo/$folder" ] || cp -a "$cargo/$folder" "$work/cargo"
    done
    # ci/install.sh puts it into root's own folder.
    program=$(command -v pprof) && { reaches "$program" || install -m 755 "$program" "$work/bin"; }
    user_path=$sysroot/bin:$work/bin
    while read -r -d : folder; do
        ! reaches "$folder" || user_path+=:$folder
    done <<<"$PATH:"
    chown -R "$user:" "$work/home" "$work/cargo"
}

# clone_to FOLDER: copies this clone with its uncommitted changes, without build products
clone_to() {
    git clone -q "$source" "$1"
    git ls-files -z --cached --others --exclude-standard --deduplicate |
        tar -c --null --files-from=- --ignore-failed-read 2>/dev/null | tar -x -C "$1"
}

# counts NAME LOG: passed, failed and skipped tests of a run
counts() {
    tr -d '\r' <"$2" | awk -v name="$1" '
        match($0, /[0-9]+ passed; [0-9]+ failed; [0-9]+ ignored/) {
            split(substr($0, RSTART, RLENGTH), part, /[^0-9]+/)
            passed += part[1]; failed += part[2]; skipped += part[3]
        }
        /^SKIPPED \(/ { lines++ }
        END {
            printf "%s: %d passed, %d failed, %d ignored, %d lines SKIPPED\n",
                name, passed, failed, skipped, lines
            exit passed == 0
        }'
}

verdict() { # verdict NAME LOG STATUS
    counts "$1" "$2" && [ "$3" -eq 0 ] && return
    echo "FAILED: $1 ($3)" >&2
    failures=$((failures + 1))
}

# form NAME FOLDER RUNNER TERMINAL: clones into FOLDER/neap clone, and runs all tests there. RUNNER
# is as_user or env. TERMINAL is `script` or empty.
form() {
    local name=$1 clone="$2/neap clone" runner=$3 log=$work/$1.log status=0
    local command=(cargo test --no-fail-fast)
    chmod 700 "$2"
    clone_to "$clone"
    [ "$runner" = env ] || chown -R "$user:" "$2"
    # The tests of the case `download` need packages from Python's index.
    (cd "$clone" && "$runner" cargo run -q -p neap-lab --bin neap-lab -- \
        cases --install --only download) ||
        echo "$name: no Python packages" >&2
    [ "$4" != script ] || command=(script -qec "${command[*]}" /dev/null)
    (cd "$clone" && LEFT_TO_ROOT="$work/home/left" "$runner" "${command[@]}" </dev/null 2>&1) |
        tee "$log" || status=$?
    verdict "$name" "$log" "$status"
}

# Runs the tests that the plain user left to root. Each must pass.
left_to_root() {
    local list=$work/home/left folder program log=$work/left.log names status
    [ -s "$list" ] || { echo "FAILED: no test was left to root" >&2; failures=$((failures + 1)); return; }
    sort -u "$list" | cut -f 1,2 | uniq >"$work/programs"
    while IFS=$'\t' read -r folder program; do
        mapfile -t names < <(sort -u "$list" | awk -F '\t' -v program="$program" '$2 == program { print $3 }')
        status=0
        (cd "$folder" && "$program" --exact "${names[@]}" </dev/null 2>&1) | tee "$log" || status=$?
        grep -q "^test result: ok\. ${#names[@]} passed; 0 failed; 0 ignored" "$log" || status=1
        verdict "left to root, ${program##*/}" "$log" "$status"
    done <"$work/programs"
}

equip_user
[ $# -gt 0 ] || set -- worst
for name in "$@"; do
    case $name in
        worst)
            mkdir "$work/room"
            form worst "$work/room" as_user ""
            left_to_root
            rm -rf "$work/room"
            ;;
        root)
            home=$(mktemp -d "$HOME/neap-stranger.XXXXXX")
            form root "$home" env ""
            rm -rf "$home"
            ;;
        tmp)
            tmp=$(mktemp -d /tmp/neap-stranger.XXXXXX)
            form tmp "$tmp" env script
            rm -rf "$tmp"
            ;;
        mount)
            mkdir "$work/mount"
            mount -t tmpfs -o size=8g,mode=755 none "$work/mount"
            mkdir "$work/mount/room"
            form mount "$work/mount/room" as_user script
            umount -l "$work/mount"
            ;;
        *)
            echo "no such form: $name" >&2
            exit 2
            ;;
    esac
done
for log in "$work"/*.log; do
    [ "$log" = "$work/left.log" ] || counts "$(basename "$log" .log)" "$log" || true
done
exit $((failures > 0))
