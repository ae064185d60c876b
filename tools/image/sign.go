package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// keyVariable is the environment variable with the private key that signs a release.
const keyVariable = "SLUICE_RELEASE_KEY"

// signer signs with ECDSA P-256 and SHA-256, as openssl and cosign verify. Its signatures are
// deterministic (RFC 6979).
type signer struct{ key *ecdsa.PrivateKey }

// newSigner returns the signer of keyVariable, or nil if that is not set.
func newSigner(r release) (*signer, error) {
	text := os.Getenv(keyVariable)
	if text == "" {
		return nil, nil
	}
	if strings.Contains(r.version, "-dirty") {
		return nil, fmt.Errorf("sign %s: the tree has changes that are not in a commit; commit them, or unset %s", r.version, keyVariable)
	}
	var key *ecdsa.PrivateKey
	if block, _ := pem.Decode([]byte(text)); block != nil {
		parsed, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
		key, _ = parsed.(*ecdsa.PrivateKey)
	}
	if key == nil || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s must contain a private key for ECDSA P-256 as PEM, not encrypted; make one with openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256", keyVariable)
	}
	return &signer{key}, nil
}

// Sign returns the signature of data in ASN.1.
func (s *signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	digest := sha256.Sum256(data)
	return s.key.Sign(nil, digest[:], crypto.SHA256)
}

// KeyID returns the fingerprint of the public key.
func (s *signer) KeyID() (string, error) { return dsse.SHA256KeyID(s.key.Public()) }

// envelope returns an in-toto statement in a signed DSSE envelope.
func (s *signer) envelope(ctx context.Context, statement []byte) ([]byte, error) {
	e, err := dsse.NewEnvelopeSigner(s)
	if err != nil {
		return nil, err
	}
	signed, err := e.SignPayload(ctx, payloadType, statement)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(signed)
	return append(text, '\n'), err
}

// publicKey returns the public key as PEM.
func (s *signer) publicKey() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(s.key.Public())
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}
