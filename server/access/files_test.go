package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestEarliestExpiryOfChains checks that the condition starts for the first certificate that needs
// it, which may expire after others.
func TestEarliestExpiryOfChains(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	now := time.Unix(1_800_000_000, 0).UTC()
	certificate := func(validity, left time.Duration) []byte {
		t.Helper()
		c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(left - validity), NotAfter: now.Add(left)}
		der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
		must.OK(t, err)
		return der
	}
	const day = 24 * time.Hour
	leaf, intermediate, root := certificate(10*time.Hour, 8*time.Hour), certificate(365*day, 25*time.Hour), certificate(3650*day, 3000*day)
	for _, tt := range []struct {
		name              string
		chain             [][]byte
		expires, warnFrom time.Duration
	}{
		{"a leaf", [][]byte{leaf}, 8 * time.Hour, 7 * time.Hour},
		{"an intermediate that expires after the leaf", [][]byte{leaf, intermediate, root}, 8 * time.Hour, 25*time.Hour - 7*day},
		{"the same in another order", [][]byte{root, intermediate, leaf}, 8 * time.Hour, 25*time.Hour - 7*day},
		{"an intermediate that is valid for long", [][]byte{leaf, root}, 8 * time.Hour, 7 * time.Hour},
	} {
		expires, warnFrom, err := earliestExpiry(tt.chain)
		if err != nil || !expires.Equal(now.Add(tt.expires)) || !warnFrom.Equal(now.Add(tt.warnFrom)) {
			t.Errorf("%s: expires in %v, warns in %v, %v; want %v, %v", tt.name, expires.Sub(now), warnFrom.Sub(now), err, tt.expires, tt.warnFrom)
		}
	}
}
