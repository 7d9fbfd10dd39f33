# shellcheck shell=bash
# stress-ng's stressors of malloc and of related allocations, with verification (Debian's package).

obtain() { command -v stress-ng >/dev/null || die "stress-ng is missing: run ci/install.sh"; }

build() { :; }

# stressor NAME OPTION...: for two seconds, with at most 64 MiB. A stressor killed by the time limit
# fails.
stressor() {
    local name=$1
    shift
    check "$name" "$(command -v stress-ng)" --timeout 2 --verify --no-rand-seed --oomable "$@"
}

tests() {
    stressor malloc --malloc 2 --malloc-bytes 64M
    stressor malloc-threads --malloc 2 --malloc-pthreads 4 --malloc-bytes 256M
    stressor malloc-touch --malloc 1 --malloc-bytes 64M --malloc-touch
    stressor malloc-zerofree --malloc 1 --malloc-bytes 64M --malloc-zerofree
    stressor malloc-thresh --malloc 1 --malloc-bytes 64M --malloc-thresh 4096
    stressor fork --fork 1
    stressor pthread --pthread 1 --pthread-max 64
    stressor sorts --tree 1 --qsort 1
}
