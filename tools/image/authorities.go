package main

import (
	"bytes"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Where Go, and most else, looks for certificate authorities.
const authoritiesPath = "etc/ssl/certs/ca-certificates.crt"

// authoritiesModule is where the certificate authorities come from.
const authoritiesModule = "golang.org/x/crypto/x509roots/fallback"

// authorities returns, as PEM, the roots that Mozilla trusts to vouch for servers. They
// come from a Go module of the Go project, so go.sum pins them. The bundle of a machine
// would differ from the next.
func authorities() ([]byte, error) {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		// PEM cannot state the conditions under which these are trusted. Without them
		// some servers are rejected; with them too many would be trusted.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	if b.Len() == 0 {
		return nil, errors.New(authoritiesModule + " has no certificate authorities")
	}
	return b.Bytes(), nil
}
