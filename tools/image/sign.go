package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// keyVariable is the environment variable with the private key that signs a release.
const keyVariable = "SLUICE_RELEASE_KEY"

// signer signs with ECDSA P-256 and SHA-256, as openssl and cosign verify. Its signatures are
// deterministic (RFC 6979).
type signer struct{ key *ecdsa.PrivateKey }

// newSigner returns the signer of keyVariable, or nil if that is not set. It returns an error if
// the key is unsuitable, or if the tree at source is not that of r.
func newSigner(r release, source string) (*signer, error) {
	text := os.Getenv(keyVariable)
	if text == "" {
		return nil, nil
	}
	var key *ecdsa.PrivateKey
	if block, _ := pem.Decode([]byte(text)); block != nil {
		parsed, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
		key, _ = parsed.(*ecdsa.PrivateKey)
	}
	if key == nil || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s must contain a private key for ECDSA P-256 as PEM, not encrypted; make one with openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256", keyVariable)
	}
	if err := checkCommitted(r, source); err != nil {
		return nil, fmt.Errorf("sign %s: %w, or unset %s", r.version, err, keyVariable)
	}
	return &signer{key}, nil
}

// checkCommitted returns an error unless source is a clone at the commit of r without changes.
func checkCommitted(r release, source string) error {
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", append([]string{"--no-optional-locks", "--git-dir=" + filepath.Join(source, ".git"), "--work-tree=" + source}, args...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("find changes of the tree: git %s: %w: %s; build in a clone", args[0], err, bytes.TrimSpace(stderr.Bytes()))
		}
		return strings.TrimRight(string(out), "\n"), nil
	}
	head, err := git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	changes, err := git("status", "--porcelain", "--untracked-files=normal")
	switch {
	case err != nil:
		return err
	case changes != "":
		return fmt.Errorf("the tree has changes that are not in a commit:\n%s\ncommit them", changes)
	case strings.Contains(r.version, "-dirty"):
		return errors.New("when make started, the tree had changes that were not in a commit; start it again")
	case head != r.revision:
		return fmt.Errorf("the tree is at the commit %s, not %q; run make release without REVISION", head, r.revision)
	}
	return nil
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
