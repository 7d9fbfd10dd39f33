#!/usr/bin/env bash
# Installs the wheels by pip into a new virtual environment, uses them, uninstalls them, and looks
# for what is left: ci/packages/wheel-test.sh DIRECTORY-OF-WHEELS [quick | full]. `full` adds a
# notebook's kernel, whose packages are large. MACHINE and PYTHON are as for ci/packages.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
wheels=$(realpath "$1")
tests=$(realpath python/tests)
python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# None of the caller's settings: what counts is what a new user has.
unset PYTHONPATH PYTHONMALLOC LD_PRELOAD
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore

"$python" -m venv "$work/venv"
bin=$work/venv/bin
packages=(gunicorn)
[ "${2:-quick}" != full ] || packages+=(ipykernel jupyter-client)
if ! "$bin/pip" install --quiet "${packages[@]}"; then
    [ -z "${REQUIRE_ALL:-}" ] || exit 1
    echo "SKIPPED: gunicorn: Python's package index cannot be reached" >&2
fi
# The compiled files of pip itself, and whatever else comes with the first use of it.
"$bin/pip" uninstall --quiet --yes neap-malloc 2>/dev/null || true
listing() { (cd "$work/venv" && find . | sort); }
listing >"$work/before"

# use KIND PIP-ARGUMENT...: installs a wheel, runs the tests, uninstalls it.
use() {
    local kind=$1
    shift
    "$bin/pip" install --quiet --no-index "$@"
    (cd "$work" && WHEEL_UNDER_TEST=$kind "$bin/python" -B -m unittest discover -s "$tests")
    "$bin/pip" uninstall --quiet --yes neap-malloc
    if ! listing | diff "$work/before" -; then
        echo "wheel-test.sh: left after pip uninstall (>)" >&2
        exit 1
    fi
    echo "pass wheel/$kind"
}

# pip itself chooses the wheel with the command here.
use command --find-links "$wheels" neap-malloc
use library "$wheels"/neap_malloc-*musllinux*.whl
# On Alpine and on an old glibc it chooses the other.
machine=${MACHINE:-$(uname -m)}
for platform in "musllinux_1_2_$machine" "manylinux2014_$machine"; do
    rm -rf "$work/chosen"
    "$bin/pip" download --quiet --no-index --find-links "$wheels" --no-deps --only-binary=:all: \
        --platform "$platform" --dest "$work/chosen" neap-malloc
    ls "$work/chosen"/*musllinux* >/dev/null
done
echo "pass wheel/tags"
