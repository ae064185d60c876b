package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

// maxPEMBytes bounds the size of a PEM file. The bundle of a system's authorities has 250 KB.
const maxPEMBytes = 4 << 20

// files contains the unparsed contents of TLS files.
type files struct {
	cert, key, ca []byte
	err           error
	// sum is the hash of contents and errors.
	sum [sha256.Size]byte
}

// keyring contains the parsed TLS files.
type keyring struct {
	sum         [sha256.Size]byte
	cert        *tls.Certificate // nil if none is configured
	authorities *x509.CertPool   // nil if none are configured
	expires     time.Time        // earliest expiry of cert and its chain; zero without cert
	warnFrom    time.Time        // when the condition starts: the earliest of cert and its chain
	creds       credentials.TransportCredentials
	reported    telemetry.Code // condition of the expiry; used by newTLS and then only by Run
}

// maxExpiryWarning is how long before the expiry of a certificate its condition starts. It starts
// after nine tenths of the validity if that is later: certificates that are valid for a day, such
// as those of a service mesh, are replaced every day.
const maxExpiryWarning = 7 * 24 * time.Hour

// expiry returns the condition of the certificate, or an empty code.
func (k *keyring) expiry() telemetry.Code {
	now := time.Now() //nolint:forbidigo // crypto/tls reads the clock too
	switch {
	case k.expires.IsZero() || now.Before(k.warnFrom):
		return ""
	case now.Before(k.expires):
		return telemetry.CertificateExpiresSoon
	}
	return telemetry.CertificateExpired
}

func (t *TLS) read() files {
	var f files
	sum := sha256.New()
	for _, p := range []struct {
		path string
		text *[]byte
	}{{t.options.Cert, &f.cert}, {t.options.Key, &f.key}, {t.options.CA, &f.ca}} {
		if p.path == "" {
			continue
		}
		text, err := readPEM(p.path)
		if err != nil {
			f.err = errors.Join(f.err, err)
		}
		*p.text = text
		fmt.Fprintf(sum, "%d %v\n", len(text), err)
		sum.Write(text)
	}
	sum.Sum(f.sum[:0])
	return f
}

func readPEM(path string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(io.LimitReader(file, maxPEMBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxPEMBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes: not a certificate file", path, maxPEMBytes)
	}
	return text, nil
}

// load parses files. An error names the file.
func (t *TLS) load(f files) (*keyring, error) {
	if f.err != nil {
		return nil, f.err
	}
	k := &keyring{sum: f.sum}
	if t.options.Cert != "" {
		if err := checkPEM(t.options.Cert, f.cert); err != nil {
			return nil, err
		}
		cert, err := tls.X509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", t.options.Cert, t.options.Key, err)
		}
		if k.expires, k.warnFrom, err = earliestExpiry(cert.Certificate); err != nil {
			return nil, fmt.Errorf("%s: %w", t.options.Cert, err)
		}
		k.cert = &cert
	}
	if t.options.CA != "" {
		if err := checkPEM(t.options.CA, f.ca); err != nil {
			return nil, err
		}
		k.authorities = x509.NewCertPool()
		if !k.authorities.AppendCertsFromPEM(f.ca) {
			return nil, fmt.Errorf("%s contains no valid certificate", t.options.CA)
		}
	}
	k.creds = credentials.NewTLS(t.config(k, "h2"))
	return k, nil
}

// checkPEM returns an error if text contains no certificate, or a block that cannot be decoded. The
// standard library skips such blocks, so a truncated file would load with fewer authorities or an
// incomplete chain.
func checkPEM(path string, text []byte) error {
	blocks := 0
	certificates := 0
	for rest := text; ; blocks++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			certificates++
		}
	}
	if started := bytes.Count(text, []byte("-----BEGIN ")); started != blocks {
		return fmt.Errorf("%s: only %d of %d PEM blocks can be decoded: the file is damaged or truncated", path, blocks,
			started)
	}
	if certificates == 0 {
		return fmt.Errorf("%s contains no PEM certificate", path)
	}
	return nil
}

// earliestExpiry returns the earliest expiry of the certificates in a chain, and when the first
// condition of one of them starts. These may be different certificates: an intermediate that is
// valid for years has an earlier condition than a leaf that is replaced every day.
func earliestExpiry(chain [][]byte) (expires, warnFrom time.Time, err error) {
	for _, der := range chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return time.Time{}, time.Time{}, err
		}
		if expires.IsZero() || c.NotAfter.Before(expires) {
			expires = c.NotAfter
		}
		from := c.NotAfter.Add(-min(maxExpiryWarning, c.NotAfter.Sub(c.NotBefore)/10))
		if warnFrom.IsZero() || from.Before(warnFrom) {
			warnFrom = from
		}
	}
	return expires, warnFrom, nil
}
