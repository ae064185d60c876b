package envoyconfig

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
)

// dumpText returns a /config_dump with one listener whose routes have about the given number of bytes.
func dumpText(size int) []byte {
	var b strings.Builder
	b.WriteString(`{
 "configs": [
  {
   "@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump",
   "dynamic_listeners": [{"name": "ingress", "active_state": {"listener": {"name": "ingress", "filter_chains": [{"filters": [{"name": "m", "typed_config": {
    "@type": "type.googleapis.com/` + api.ConnectionManager + `",
    "http_filters": [
     {"name": "limit", "typed_config": {"@type": "type.googleapis.com/` + api.RateLimit + `", "domain": "shop", "timeout": "1s"}},
     {"name": "router", "typed_config": {"@type": "type.googleapis.com/` + api.Router + `"}}
    ],
    "rds": {"route_config_name": "main"}}}]}]}}}]
  },
  {
   "@type": "type.googleapis.com/envoy.admin.v3.RoutesConfigDump",
   "dynamic_route_configs": [{"route_config": {"name": "main", "virtual_hosts": [`)
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `
    {
     "name": "host-%[1]d",
     "domains": [
      "host-%[1]d.example",
      "host-%[1]d.example:*"
     ],
     "routes": [
      {
       "match": {
        "prefix": "/a/%[1]d",
        "case_sensitive": true
       },
       "route": {
        "cluster": "outbound|8080||service-%[1]d.namespace.svc.cluster.local",
        "timeout": "0s",
        "rate_limits": [
         {
          "actions": [
           {
            "request_headers": {
             "header_name": "x-user",
             "descriptor_key": "user"
            }
           }
          ]
         }
        ]
       }
      }
     ]
    }`, i)
	}
	b.WriteString("]}}]\n}]}\n")
	return []byte(b.String())
}

// TestLargeDump reads a dump of 20 MB and computes the calls for one host. SLUICE_MEASURE logs the time and memory
// used.
func TestLargeDump(t *testing.T) {
	text := dumpText(20_000_000)
	begin := time.Now()
	c, err := Read([]File{{"dump.json", text}})
	if err != nil {
		t.Fatal(err)
	}
	read := time.Since(begin)
	found := c.Check(ruleSet(t, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]\n"))
	checked := time.Since(begin)
	if len(found) != 0 {
		t.Errorf("found %v, want nothing", found[0])
	}
	if got := callsText(t, c, "http://host-7.example/a/7", "x-user: al"); got != "shop: (user, al)" {
		t.Errorf("calls are %s, want shop: (user, al)", got)
	}
	if os.Getenv("SLUICE_MEASURE") != "" {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		t.Logf("%d MB: read in %v, checked after %v; %d MiB from the system", len(text)/1_000_000, read, checked, m.Sys>>20)
	}
	runtime.KeepAlive(c)
}

// TestDumpOfOlderEnvoy covers a filter without typed_config, which Envoy 1.19 identified by its name.
func TestDumpOfOlderEnvoy(t *testing.T) {
	text := strings.Replace(string(dumpText(1000)), `"http_filters": [`, `"http_filters": [{"name": "envoy.filters.http.rbac"},`, 1)
	c, err := Read([]File{{"dump.json", []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := callsText(t, c, "http://host-0.example/a/0", "x-user: al"); got != "shop: (user, al)" {
		t.Errorf("calls are %s, want shop: (user, al)", got)
	}
}
