package main

import (
	"bytes"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// authoritiesPath is where Go and most other programs look for certificate authorities.
const authoritiesPath = "etc/ssl/certs/ca-certificates.crt"

// authoritiesModule is the Go module that contains the certificate authorities.
const authoritiesModule = "golang.org/x/crypto/x509roots/fallback"

// authorities returns Mozilla's root certificates for servers, as PEM. They come from a module of
// the Go project, so go.sum pins them; the bundles of build machines differ.
func authorities() ([]byte, error) {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		// PEM cannot express the constraints of these roots. Without the roots some servers are
		// rejected; without the constraints too many would be trusted.
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
