#!/usr/bin/env bash
# Runs `neap serve` with real Pyroscope and Parca servers. Both are compiled from published Go
# modules, in releases that build with the installed Go. The first run compiles them, which takes 5
# minutes of processor time each and 7 GB of disk until it ends. Later runs find the programs, which
# take 240 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
programs=$target/fleet
work=

# source_of MODULE VERSION: a copy of a module's files in $work/src, to be changed.
source_of() {
    local place
    place=$(go mod download -json "$1@$2" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    cp -r "$place" "$work/src"
    chmod -R u+w "$work/src"
    cd "$work/src"
}

# compile PACKAGE PROGRAM: these releases name functions of Go's runtime, which Go 1.23 and later
# forbid unless told otherwise.
compile() {
    go build -mod=mod -ldflags=-checklinkname=0 -o "$programs/$2" "$1"
}

parca() (
    source_of github.com/parca-dev/parca v0.20.0
    # The pages for browsers, which the module does not contain.
    mkdir -p ui/packages/app/web/build
    echo '<html></html>' >ui/packages/app/web/build/index.html
    compile ./cmd/parca parca
)

# handler PACKAGE TYPE: the interface in the module of Pyroscope's API has one function more than
# this release of the server.
handler() {
    cat >"$1/commits.go" <<END
package $(basename "$1")

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	v1 "github.com/grafana/pyroscope/api/gen/proto/go/vcs/v1"
)

func (*$2) GetCommits(context.Context, *connect.Request[v1.GetCommitsRequest]) (*connect.Response[v1.GetCommitsResponse], error) {
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("not in this release"))
}
END
}

pyroscope() (
    source_of github.com/grafana/pyroscope v1.7.1
    # Its API is a module of its own. The one of this release is not published.
    go mod edit -dropreplace=github.com/grafana/pyroscope/api \
        -require=github.com/grafana/pyroscope/api@v1.1.0
    handler pkg/querier/vcs Service
    handler pkg/frontend Frontend
    compile ./cmd/pyroscope pyroscope
)

mkdir -p "$programs"
if [ ! -x "$programs/parca" ] || [ ! -x "$programs/pyroscope" ]; then
    case $(go env GOVERSION) in
        go1.[0-9] | go1.[0-9].* | go1.1* | go1.2[0-2] | go1.2[0-2].*)
            echo "SKIPPED: Parca and Pyroscope need Go 1.23 or newer"
            [ "${REQUIRE_ALL:-}" != 1 ]
            exit
            ;;
    esac
fi
for name in parca pyroscope; do
    [ ! -x "$programs/$name" ] || continue
    [ -n "$work" ] || work=$(mktemp -d "$programs/build.XXXXXX")
    trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
    export GOMODCACHE=$work/modules GOCACHE=$work/cache GOWORK=off GOFLAGS=-modcacherw
    rm -rf "$work/src"
    echo "compiling $name"
    $name
done
FLEET=1 PATH="$programs:$PATH" cargo test -q -p neap-cli --test cli fleet::
