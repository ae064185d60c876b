// Package testcert makes certificates for tests.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors/volumetest"
)

// Authority signs certificates.
type Authority struct {
	// PEM is the authority's certificate.
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its private key in PEM.
type Pair struct{ Cert, Key []byte }

// Leaf describes a certificate. The zero value is valid for a day and has no names.
type Leaf struct {
	// Names are DNS names, IP addresses, or URIs.
	Names []string
	// Expires is the end of its validity. Zero means a day from now.
	Expires time.Time
}

// New returns an authority with the given name.
func New(name string) (*Authority, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := new(Authority)
	var err error
	if a.key, a.PEM, err = a.sign(template); err != nil {
		return nil, fmt.Errorf("make authority %s: %w", name, err)
	}
	block, _ := pem.Decode(a.PEM)
	a.cert, err = x509.ParseCertificate(block.Bytes)
	return a, err
}

// Issue returns a certificate for servers and clients.
func (a *Authority) Issue(l Leaf) (Pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "leaf"}, NotAfter: l.Expires,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if l.Expires.IsZero() {
		template.NotAfter = time.Now().AddDate(0, 0, 1)
	}
	for _, name := range l.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if u, err := url.Parse(name); err == nil && u.Scheme != "" {
			template.URIs = append(template.URIs, u)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	key, cert, err := a.sign(template)
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate for %v: %w", l.Names, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: cert, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}, nil
}

// sign generates a key and signs the template. An authority without a certificate signs itself.
func (a *Authority) sign(template *x509.Certificate) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, nil, err
	}
	template.NotBefore = time.Now().AddDate(0, 0, -2)
	parent := a.cert
	signer := a.key
	if parent == nil {
		parent = template
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// Files contains the paths of PEM files, named as in a Kubernetes Secret.
type Files struct{ Cert, Key, CA string }

// PathsIn returns the paths of the files in dir.
func PathsIn(dir string) Files {
	return Files{
		Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt"),
	}
}

// Mount writes the files to dir as Kubernetes mounts a Secret: as links through ..data, a link that
// a rename switches from the old to the new files.
func Mount(dir string, p Pair, ca []byte) (Files, error) {
	f := PathsIn(dir)
	return f, volumetest.Update(dir, map[string][]byte{
		filepath.Base(f.Cert): p.Cert, filepath.Base(f.Key): p.Key, filepath.Base(f.CA): ca,
	})
}
