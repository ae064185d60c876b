package envoyconfig

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// FuzzRead reads any text as configuration. It must not panic, each finding must have a code and a message, and a
// descriptor must not be both unknown and not sent.
func FuzzRead(f *testing.F) {
	f.Add([]byte(listenerText))
	f.Add([]byte(`{"@type": "x/envoy.config.bootstrap.v3.Bootstrap"}`))
	for _, part := range []string{routesText, hostText, filterText, localText, envoyFilters, patchPolicyText, retiredText} {
		f.Add([]byte(part))
	}
	f.Add([]byte("kind: ConfigMap\ndata:\n  envoy.yaml: |\n    " + indent(routesText, "    ")))
	paths, err := filepath.Glob("../examples/*/envoy.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	set := ruleSet(f, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]\n")
	request := Request{
		Method: "POST", Scheme: "https", Authority: "shop.example", Path: "/a?q=1&b=%20", Remote: netip.MustParseAddr("192.0.2.1"),
		Headers: []Header{{"x-user", "al"}, {"x-forwarded-for", "192.0.2.7, 192.0.2.8"}},
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Read([]File{{"f", text}})
		if (c == nil) == (err == nil) {
			t.Fatalf("Read = %v, %v, want either", c, err)
		}
		if err != nil {
			return
		}
		for _, found := range c.Check(set) {
			if found.Message == "" || found.Code == "" {
				t.Errorf("finding %+v has no code or no message", found)
			}
		}
		for _, m := range c.managers {
			request.Listener = m.listener
			a, err := c.Calls(request)
			if err != nil {
				continue
			}
			for _, call := range a.ByFilter {
				for i := range call.Descriptors {
					if d := &call.Descriptors[i]; d.Unknown != "" && d.NotSent != "" {
						t.Errorf("descriptor %v is both unknown and not sent", d)
					}
				}
			}
		}
	})
}
