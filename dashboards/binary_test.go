package dashboards

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/server/testcert"
)

// root is the relative path of the repository's root.
const root = ".."

// rules have a list of limits, so that each label has a value, and a limit of each kind with
// additional metrics.
const rules = `
domain: d
descriptors:
  - key: k
    value: v
    descriptors:
      - key: l
        rate_limits:
          - { unit: minute, requests_per_unit: 10 }
          - { unit: hour, requests_per_unit: 20 }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: once, rate_limit: { unit: minute, requests_per_unit: 0, penalty: [1m, 5m] } }
  - { key: customer, rate_limit: { unit: minute, requests_per_unit: 5, table: customers } }
  - { key: divided, rate_limit: { unit: minute, requests_per_unit: 600, algorithm: token_bucket, quota: {} } }
  - { key: user, rate_limit: { name: streams, algorithm: concurrency, unit: minute, requests_per_unit: 5 } }
`

// exported returns the metrics of the binary. It runs it with several settings, since no single one
// has all metrics.
var exported = sync.OnceValues(func() (exposition, error) {
	dir, err := os.MkdirTemp("", "dashboards-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	binary, err := sluice.Build(ctx, root, dir)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(config, []byte(rules), 0o600); err != nil {
		return nil, err
	}
	customers := filepath.Join(dir, "customers.csv")
	if err := os.WriteFile(customers, []byte("customer,requests_per_unit\nacme,7\n"), 0o600); err != nil {
		return nil, err
	}
	table := "customers=" + customers
	files, err := certificate(dir)
	if err != nil {
		return nil, err
	}
	all := exposition{}
	for _, args := range [][]string{
		{"--config", config, "--table", table, "--statsd-addr", "udp://127.0.0.1:1", "--state-file", filepath.Join(dir, "state")},
		append([]string{"--xds-addr", "127.0.0.1:1", "--start-without-rules"}, files...),
		{"--config", config, "--table", table, "--store", "redis://127.0.0.1:1"},
	} {
		if err := all.add(ctx, binary, args); err != nil {
			return nil, err
		}
	}
	return all, nil
})

func binaryMetrics(t *testing.T) exposition {
	t.Helper()
	all, err := exported()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// certificate returns the flags that make the gRPC listener use TLS.
func certificate(dir string) ([]string, error) {
	a, err := testcert.New("dashboards")
	if err != nil {
		return nil, err
	}
	pair, err := a.Issue(testcert.Leaf{Names: []string{"localhost"}})
	if err != nil {
		return nil, err
	}
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := os.WriteFile(cert, pair.Cert, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(key, pair.Key, 0o600); err != nil {
		return nil, err
	}
	return []string{"--grpc-tls-cert", cert, "--grpc-tls-key", key}, nil
}

// add runs the binary, sends it a request, and adds its metrics.
func (e exposition) add(ctx context.Context, binary string, args []string) error {
	s, err := sluice.Start(ctx, sluice.Options{Binary: binary, Args: args})
	if err != nil {
		return err
	}
	defer s.Kill()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr("http")+"/json",
		strings.NewReader(`{"domain": "d", "descriptors": [{"entries": [{"key": "free"}]}, {"entries": [{"key": "k", "value": "v"}, {"key": "l"}], "hitsAddend": "0"}]}`))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	request, err = http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr("metrics")+"/metrics", http.NoBody)
	if err != nil {
		return err
	}
	response, err = http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the response of /metrics is %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return err
	}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			values := map[string]string{}
			for _, l := range m.GetLabel() {
				values[l.GetName()] = l.GetValue()
			}
			switch {
			case m.GetHistogram() != nil:
				e.record(name+"_bucket", true, values, "le")
				e.record(name+"_sum", true, values, "")
				e.record(name+"_count", true, values, "")
			case m.GetSummary() != nil:
				e.record(name+"_sum", false, values, "")
				e.record(name+"_count", false, values, "")
				for _, q := range m.GetSummary().GetQuantile() {
					values["quantile"] = fmt.Sprint(q.GetQuantile())
					e.record(name, false, values, "")
				}
			default:
				e.record(name, false, values, "")
			}
		}
	}
	return nil
}

// record adds the labels of a series. If more is not empty, it is a further label, which may have any
// value.
func (e exposition) record(name string, histogram bool, values map[string]string, more string) {
	f := e[name]
	if f == nil {
		f = &family{histogram: histogram, values: map[string][]string{}}
		e[name] = f
	}
	if more != "" {
		f.values[more] = append(f.values[more], "")
	}
	for label, value := range values {
		f.values[label] = append(f.values[label], value)
	}
}
