# shellcheck shell=bash
# Sourced by scripts that need programs of another Debian release or of another machine. Nothing is
# installed. The caller has `die`.

# unpack_debian RELEASE MACHINE ROOT PACKAGE...: unpacks the packages into ROOT. They come from the
# archive that this machine uses for its own release, with package lists of their own. With
# NEEDED=yes, all packages that these need come too.
unpack_debian() {
    local release=$1 machine=$2 root=$3 keys=/usr/share/keyrings/debian-archive-keyring.gpg apt archive package link
    shift 3
    apt=$root.apt
    rm -rf "$apt" "$root.part"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/packages" "$root.part"
    touch "$apt/status"
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
        grep '/debian/*$' | head -n 1) || true
    [ -n "$archive" ] || die "apt knows no archive of Debian's: run apt-get update, or name one in /etc/apt"
    echo "deb [arch=$machine signed-by=$keys] $archive $release main" >"$apt/sources.list"
    local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
        -o "APT::Architecture=$machine" -o "APT::Architectures=$machine"
        -o APT::Sandbox::User=root -o Acquire::Retries=3)
    apt-get "${options[@]}" update >&2 || die "apt-get update failed: does $archive have $release for $machine?"
    # The release's kernel is what this package depends on.
    [[ "$*" != linux-image-a*64* ]] || set -- "$(apt-cache "${options[@]:1}" depends "$1" |
        sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)"
    if [ -n "${NEEDED:-}" ]; then
        apt-get "${options[@]}" -y --no-install-recommends --download-only install "$@" >&2 &&
            mv "$apt/cache/archives/"*.deb "$apt/packages/"
    else
        (cd "$apt/packages" && apt-get "${options[@]}" download "$@") >&2
    fi || die "apt-get download failed: $*"
    for package in "$apt/packages/"*.deb; do
        dpkg-deb -x "$package" "$root.part"
    done
    # Links to absolute paths mean this root, not the machine's.
    find "$root.part" -type l -lname '/*' | while read -r link; do
        ln -sfr "$root.part$(readlink "$link")" "$link"
    done
    rm -rf "$root" "$apt"
    mv "$root.part" "$root"
    echo "obtained packages of Debian's $release for $machine: $*"
}
