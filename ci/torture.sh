#!/usr/bin/env bash
# Checks every byte of every calloc, 10^6 rounds in total: ci/torture.sh LIBRARY [ROUNDS]
#
# One row for each mode of capi/tests/programs/torture (see its usage) and each memory limit:
#   free    no limit
#   as      RLIMIT_AS of 150 MB, so that requests are refused
#   data    RLIMIT_DATA of 100 MB, the same
#   cgroup  192 MiB and no swap, beside a reader of a larger file: pages after MADV_FREE vanish
#   swap    64 MiB for blocks of 100 MB, and a swap file: pages are swapped out and back in
# As root, KSM runs as well if the machine has it. All settings are restored in any case. SEED=N
# chooses other random numbers (default: 1).
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -ge 1 ] || { sed -n '2,3p' "$0" >&2; exit 2; }
library=$(realpath "$1")
all=${2:-1000000}
work=$(mktemp -d /var/tmp/torture.XXXXXX)
group=
swap=
ksm=/sys/kernel/mm/ksm
ksm_before=
reader=
failures=0
done_in_all=0
rows=()

put_back() {
    stop_reader
    [ -z "$swap" ] || swapoff "$swap" || echo "left behind: the swap file $swap" >&2
    [ -z "$ksm_before" ] || echo "$ksm_before" > $ksm/run
    [ -z "$group" ] || rmdir "$group" || echo "left behind: the cgroup $group" >&2
    rm -rf "$work"
}
trap put_back EXIT
trap 'exit 130' INT TERM

skipped() { # skipped WHAT WHY
    echo "SKIPPED: $1: $2"
    rows+=("$(printf '%-20s %-7s %9s  %-12s' "$1" - - "skipped: $2")")
}

build() { # build NAME FLAGS…: compiles capi/tests/programs/torture/NAME.c
    local name=$1
    shift
    "${CC:-cc}" -std=gnu11 -O1 -g -pthread -fno-builtin -Wall -Wextra -Werror "$@" \
        -I capi/tests/programs -o "$work/$name" "capi/tests/programs/torture/$name.c" -ldl
}

# Makes a cgroup of either version for this process, with a memory controller; `group` stays empty
# if that fails.
make_group() {
    local root file
    for root in /sys/fs/cgroup /sys/fs/cgroup/memory; do
        [ -e "$root/cgroup.procs" ] || continue
        if [ -e "$root/cgroup.controllers" ]; then
            grep -qw memory "$root/cgroup.controllers" || continue
            { echo +memory > "$root/cgroup.subtree_control"; } 2>/dev/null || continue
        fi
        mkdir "$root/torture.$$" 2>/dev/null || continue
        for file in memory.max memory.limit_in_bytes; do
            if [ -w "$root/torture.$$/$file" ]; then
                group=$root/torture.$$
                limit_file=$group/$file
                return
            fi
        done
        rmdir "$root/torture.$$"
    done
}

make_swap() {
    command -v mkswap swapon > /dev/null || return 1
    head -c 1073741824 /dev/zero > "$work/swap" || return 1
    chmod 600 "$work/swap"
    mkswap "$work/swap" > /dev/null || return 1
    swapon "$work/swap" || return 1
    swap=$work/swap
}

# Streams a file larger than the limit through the group's page cache.
start_reader() {
    (
        echo "$BASHPID" > "$group/cgroup.procs"
        head -c 268435456 /dev/zero > "$work/file"
        while :; do
            cat "$work/file" > /dev/null
            sleep 0.2
        done
    ) &
    reader=$!
}

# How often the group reached its limit.
limit_hits() {
    if [ -e "$group/memory.events" ]; then
        awk '$1 == "max" { print $2 }' "$group/memory.events"
    else
        cat "$group/memory.failcnt"
    fi
}

stop_reader() {
    [ -n "$reader" ] || return 0
    kill "$reader" 2> /dev/null || true
    wait "$reader" 2> /dev/null || true
    reader=
    # Its child ends by itself, and is in the group until then.
    sleep 0.5
}

# Pages swapped out by the whole machine since it started.
swapped_out() {
    awk '$1 == "pswpout" { print $2 }' /proc/vmstat
}

effective() { # effective WHAT COUNT: a row under a limit that was never met has tested nothing
    echo "$1: $2"
    [ "$2" -gt 0 ] && return
    echo "FAILED: $1: none" >&2
    failures=$((failures + 1))
}

limited() { # limited MEMORY COMMAND…: replaces this shell
    local memory=$1
    shift
    case $memory in
        as) ulimit -v 150000 ;;
        data) ulimit -d 100000 ;;
        cgroup | swap) echo "$BASHPID" > "$group/cgroup.procs" ;;
    esac
    exec timeout 900 env LIBRARY_UNDER_TEST="$library" LD_PRELOAD="$library" "$@"
}

# How many processes the kernel has killed in the group for lack of memory.
killed_for_memory() {
    local file
    for file in "$group/memory.events" "$group/memory.oom_control"; do
        [ -n "$group" ] && [ -e "$file" ] || continue
        awk '$1 == "oom_kill" { print $2 }' "$file"
        return
    done
    echo 0
}

row() { # row NAME MEMORY COMMAND…: runs it, and keeps a line for the table
    local name=$1 memory=$2 start=$SECONDS status verdict rounds attempt killed
    shift 2
    # Under heavy use the kernel sometimes gives up on a group whose pages it could swap out. A
    # process killed for that proves nothing, so it is started again, at most twice.
    for attempt in 1 2 3; do
        status=0
        killed=$(killed_for_memory)
        (limited "$memory" "$@") > "$work/said" 2>&1 || status=$?
        if [ $status -ne 137 ] || [ "$(killed_for_memory)" -eq "$killed" ]; then break; fi
        echo "    $name, $memory, attempt $attempt: killed by the kernel for want of memory"
    done
    sed "s/^/    /" "$work/said"
    case $status in
        0) verdict=ok ;;
        77) verdict=skipped ;;
        *)
            verdict="FAILED ($status)"
            failures=$((failures + 1))
            ;;
    esac
    rounds=$(sed -n 's/^\([0-9]*\) rounds,.*/\1/p' "$work/said")
    done_in_all=$((done_in_all + ${rounds:-0}))
    rows+=("$(printf '%-20s %-7s %9s  %-12s %5d s' \
        "$name" "$memory" "${rounds:--}" "$verdict" $((SECONDS - start)))")
    echo "${rows[-1]}"
}

torture() { # torture PERCENT MEMORY MODE ARGS…: that percentage of all rounds
    local percent=$1 memory=$2 mode=$3 name=$3
    shift 3
    [ $# -eq 0 ] || name="$name ${*#--}"
    if [ "$mode" = remap ]; then
        mode=plain
        set -- --remap "$@"
    fi
    case $memory in
        # Each thread's child may copy all of it, and swap is off.
        cgroup) set -- --max-bytes 33554432 "$@" ;;
        # More than the limit.
        swap) set -- --max-bytes 100000000 "$@" ;;
    esac
    row "$name" "$memory" "$work/torture" --mode "$mode" --rounds $((all * percent / 100)) \
        --seed $((${#rows[@]} + ${SEED:-1})) "$@"
}

build torture
build stale_parent
build userfaultfd
make_group
if [ -w $ksm/run ]; then
    ksm_before=$(cat $ksm/run)
    echo 1 > $ksm/run
else
    skipped KSM "$ksm/run cannot be written (run as root)"
fi

for kind in fork clone planted; do row "stale $kind" free "$work/stale_parent" $kind; done
for kind in missing protected kept; do row "uffd $kind" free "$work/userfaultfd" $kind; done

torture 9 free plain
torture 7 free plain --threads 1
for mode in close closefrom replace; do torture 6 free $mode --threads 3; done
torture 3 free replace --threads 1
for mode in hidden hidden-late nofile nofile-late nondumpable nondumpable-late \
    seccomp seccomp-call seccomp-late seccomp-call-late remap; do
    torture 4 free $mode
done
torture 2 free locked
torture 2 free locked-late
torture 4 as plain
torture 4 data plain

if [ -z "$group" ]; then
    skipped "cgroup and swap" "no cgroup with a memory controller can be made here"
elif [ "$(wc -l < /proc/swaps)" -gt 1 ]; then
    skipped cgroup "the machine has swap of its own"
else
    echo 201326592 > "$limit_file"
    start_reader
    torture 6 cgroup plain
    torture 3 cgroup replace
    stop_reader
    effective "times at the cgroup's limit" "$(limit_hits)"
fi
if [ -n "$group" ]; then
    if make_swap; then
        echo 67108864 > "$limit_file"
        before=$(swapped_out)
        torture 6 swap plain
        torture 2 swap plain --threads 1
        torture 1 swap close
        torture 1 swap hidden
        effective "pages swapped out" $(($(swapped_out) - before))
    else
        skipped swap "no swap file can be used in $work"
    fi
fi

printf '\n%-20s %-7s %9s  %-12s %s\n' mode memory rounds result time
printf '%s\n' "${rows[@]}"
echo "$done_in_all rounds in all, $SECONDS s, $failures failed"
exit $((failures > 0))
