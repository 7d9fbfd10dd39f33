#!/usr/bin/env bash
# ci/python-tests.sh DIRECTORY MODULE...
#
# Makes DIRECTORY/test: CPython's test package as Debian ships it, plus the MODULEs that Debian
# leaves out (3.11: test_sqlite3), from the same version's source, which apt downloads.
# DIRECTORY/left-out lists those.
set -euo pipefail

directory=$(realpath "$1")
shift
version=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
cp -rs "/usr/lib/python$version/test" "$directory/test"

left_out=()
: >"$directory/left-out"
for module in "$@"; do
    [ -e "$directory/test/$module" ] || [ -e "$directory/test/$module.py" ] || left_out+=("$module")
done
[ ${#left_out[@]} -gt 0 ] || exit 0
printf '%s\n' "${left_out[@]}" >"$directory/left-out"
echo "from the source of Python $version: ${left_out[*]}"

# Use the machine's own Debian repositories for sources, without changing its lists.
mkdir -p "$directory/source/lists/partial"
cd "$directory/source"
apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' 'Origin: Debian' | sort -u >sources.list
options=(-qq -o "Dir::Etc::sourcelist=$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$PWD/lists" -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
apt-get "${options[@]}" source --tar-only "python$version"
for module in "${left_out[@]}"; do
    tar -xf python*.orig.tar.* -C "$directory" --strip-components=2 --no-same-owner \
        --wildcards "*/Lib/test/$module*"
done
