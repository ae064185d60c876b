// Package conformancev1 has the messages of connectrpc/conformance's test service, of the Connect
// Authors under the Apache License 2.0. `make proto` writes it from the .proto files of the version
// that go.mod pins.
package conformancev1
