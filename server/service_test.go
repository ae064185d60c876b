package server

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

func allowList(t *testing.T, texts ...string) *access.AllowList {
	t.Helper()
	a, err := access.ParseAllowList(texts)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// certificate returns a certificate with the given DNS names and URIs.
func certificate(t *testing.T, names ...string) *x509.Certificate {
	t.Helper()
	c := new(x509.Certificate)
	for _, name := range names {
		if !strings.Contains(name, ":") {
			c.DNSNames = append(c.DNSNames, name)
			continue
		}
		u, err := url.Parse(name) // as crypto/x509 does
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

const noon = servertest.Noon

const shaping = "{domain: d, descriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 100, algorithm: leaky_bucket, slack: 0, max_wait: 1s, max_waiting: 49}}]}"

var (
	compile       = servertest.Compile
	newMetrics    = servertest.Metrics
	newTable      = servertest.Table
	service       = servertest.Service
	serviceOn     = servertest.ServiceOn
	entry         = servertest.Entry
	marshal       = servertest.Marshal
	gathered      = servertest.MetricByLabel
	endedBy       = servertest.EndedConnections
	await         = servertest.WaitFor
	fillLimits    = servertest.Limits
	simpleRequest = servertest.SimpleRequest
	checkOK       = servertest.CheckOK
)
