package envoyconfig_test

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

// TestBucketsMatchEnvoy compares the computed bucket of a request with the one that the real Envoy
// reports.
func TestBucketsMatchEnvoy(t *testing.T) {
	suite.Envoy(t, root)
	text, err := os.ReadFile("testdata/quota/tree.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, err := envoyconfig.Read([]envoyconfig.File{{Name: "tree.yaml", Content: text}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := backend.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	r := startQuotaRecorder(t)
	e := r.startEnvoy(t, text, b.Addr)
	var all []envoyconfig.Request
	var want []string
	kinds := map[string]bool{}
	for _, host := range []string{"shop", "elsewhere"} { // no virtual host has the domain elsewhere
		for _, path := range []string{"/a", "/a/off", "/a/direct", "/nested", "/nested?q=ax", "/n", "/none/of", "/b", "/b?q=x", "/b?q=%C3%BC", "/b?q=z", "/p", "/p/long", "/p/long/er", "/only", "/exact", "/exact?q=z", "/exact?q=y"} {
			for _, users := range [][]string{nil, {"al"}, {"root"}, {""}, {"al", "bo"}} {
				request, err := envoyconfig.ParseRequest("GET http://" + host + path)
				if err != nil {
					t.Fatal(err)
				}
				name := strconv.Itoa(len(all))
				request.Listener, request.Remote = "ingress", netip.MustParseAddr("127.0.0.1")
				request.Headers = append(request.Headers, envoyconfig.Header{Name: "x-case", Value: name})
				for _, user := range users {
					request.Headers = append(request.Headers, envoyconfig.Header{Name: "x-user", Value: user})
				}
				all = append(all, request)
				calls, err := config.Calls(request)
				if err != nil || len(calls.Buckets) != 1 {
					t.Fatal(calls, err)
				}
				bucket := calls.Buckets[0]
				if strings.HasPrefix(bucket.NoBucket, envoyconfig.UnknownPrefix) {
					t.Errorf("%s: %s", requestText(request), bucket.NoBucket)
				}
				if bucket.NoBucket != "" {
					kinds[bucket.NoBucket] = true
					continue
				}
				kinds[bucket.Entries[0].Value] = bucket.Entries[0].Key == "by"
				want = append(want, reportedAs(&bucket))
			}
		}
	}
	send(t, e, all)
	slices.Sort(want)
	suite.Eventually(t, "all reports", func() bool { return strings.Count(r.reported(), "; ")+1 >= len(want) })
	got := strings.Split(r.reported(), "; ")
	for _, id := range got {
		if !slices.Contains(want, id) {
			t.Errorf("Envoy reports %s", id)
		}
	}
	for _, id := range want {
		if !slices.Contains(got, id) {
			t.Errorf("Envoy does not report %s", id)
		}
	}
	for _, kind := range []string{"and", "or", "short", "long", "short-prefix", "long-prefix", "longer-prefix", "only", "exact-z", "exact-else", "the filter is disabled here", "no matcher matches the request", "the request has no HttpRequestHeaderMatchInput x-user, which the bucket's id requires"} {
		if !kinds[kind] {
			t.Errorf("no request has the kind %q: %v", kind, kinds)
		}
	}
}

// reportedAs formats a bucket as [quotaRecorder.reported] does. Envoy omits empty entries from the
// ID.
func reportedAs(b *envoyconfig.Bucket) string {
	keys, entries := make([]string, 0, len(b.Entries)), make([]string, 0, len(b.Entries)+1)
	for _, entry := range b.Entries {
		keys = append(keys, entry.Key)
		if entry.Value != "" {
			entries = append(entries, entry.Key+"="+entry.Value)
		}
	}
	entries = append(entries, "sluice="+strings.Join(keys, ","))
	slices.Sort(entries)
	return strings.Join(entries, " ")
}
