#!/bin/sh
# Writes the Go code of the .proto files, with the protoc of the PyPI package
# grpcio-tools and the protoc-gen-go that tools/go.mod pins.
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
"$venv/bin/python" -m grpc_tools.protoc --plugin="$build/protoc-gen-go" \
	--proto_path=. --go_out=. --go_opt=paths=source_relative xds/ratelimitv3/rls_conf.proto
