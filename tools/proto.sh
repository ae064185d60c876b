#!/bin/sh
# Generates the Go code of the .proto files, with the protoc of the PyPI package grpcio-tools and
# the protoc-gen-go pinned in tools/go.mod.
#
#     tools/proto.sh .build
set -eu

protoc_version=1.85.1
build=$1
venv=$build/protoc-$protoc_version

if ! [ -e "$venv/ready" ]; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
		"grpcio-tools==$protoc_version"
	touch "$venv/ready"
fi
(cd tools && go build -buildvcs=false -o "$build/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go)

generate() {
	"$venv/bin/python" -m grpc_tools.protoc --plugin="$build/protoc-gen-go" "$@"
}

generate --proto_path=. --go_out=. --go_opt=paths=source_relative xds/ratelimitv3/rls_conf.proto

# The messages of connectrpc/conformance, in the version that conformance/go.mod pins. Its own
# generated code is internal.
suite=$(cd conformance && go mod download connectrpc.com/conformance && go list -m -f '{{.Dir}}' connectrpc.com/conformance)
module=github.com/sluice-ratelimit/sluice/conformance
package=$module/conformance/conformancev1
set --
for name in config server_compat service; do
	set -- "$@" "--go_opt=Mconnectrpc/conformance/v1/$name.proto=$package"
done
generate "--proto_path=$suite/proto" --go_out=conformance "--go_opt=module=$module" "$@" \
	connectrpc/conformance/v1/config.proto connectrpc/conformance/v1/server_compat.proto connectrpc/conformance/v1/service.proto
