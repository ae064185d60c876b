package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Where Go, and most else, looks for certificate authorities.
const authoritiesPath = "etc/ssl/certs/ca-certificates.crt"

// The names of the program: under the second one it stands in for
// envoyproxy/ratelimit. They are one file.
const (
	programPath   = "bin/sluice"
	ratelimitPath = "bin/ratelimit"
)

// users are names for some IDs. The image may be run as any other too.
const users = `root:x:0:0:root:/:/sbin/nologin
nobody:x:65534:65534:nobody:/:/sbin/nologin
nonroot:x:65532:65532:nonroot:/:/sbin/nologin
`

const groups = `root:x:0:
nogroup:x:65534:
nonroot:x:65532:
`

// contents returns the files of p's image, layer by layer: first what is the same in
// every build, so that registries and nodes keep it once. Source is the root of the
// module that p was built from.
func contents(r release, p *program, source string) ([]tree, error) {
	authorities, err := authorities()
	if err != nil {
		return nil, err
	}
	all, err := components(p.info, source)
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	bill, err := sbom(r, p, all, true)
	if err != nil {
		return nil, fmt.Errorf("write the bill of materials: %w", err)
	}
	base := tree{
		"etc/passwd":    {content: []byte(users)},
		"etc/group":     {content: []byte(groups)},
		authoritiesPath: {content: authorities},
	}
	own := tree{
		ratelimitPath: {content: p.content, executable: true},
		programPath:   {linkTo: ratelimitPath, executable: true},
		sbomPath:      {content: bill},
	}
	maps.Copy(own, licenceTexts(license, all))
	return []tree{base, own}, nil
}

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
