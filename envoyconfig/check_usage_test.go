package envoyconfig

import (
	"strings"
	"testing"
)

// TestCheckUsage covers routes to /usage whose headers clients can choose.
func TestCheckUsage(t *testing.T) {
	const (
		add       = "request_headers_to_add: [{ header: { key: x-sluice-domain, value: shop } }, { header: { key: X-Sluice-Descriptor, value: 'user=a' } }]"
		remove    = "request_headers_to_remove: [X-Sluice-Domain, x-sluice-descriptor]"
		overwrite = "request_headers_to_add: [{ header: { key: x-sluice-domain, value: shop }, append_action: OVERWRITE_IF_EXISTS_OR_ADD }, " +
			"{ header: { key: x-sluice-descriptor, value: 'org=a' }, append_action: OVERWRITE_IF_EXISTS_OR_ADD }, { header: { key: x-sluice-descriptor, value: 'user=a' } }]"
		others = "clients can read the usage of others, since the header "
		serves = "the cluster of this route serves /usage, and clients can choose the header "
	)
	manager := func(text string) [2]string { return [2]string{"http_filters:\n", text + "\n          http_filters:\n"} }
	filter := [2]string{"http_filters:\n", "http_filters:\n            - { name: f, typed_config: { '@type': type.googleapis.com/" + headerMutation +
		", mutations: { request_mutations: [{ remove: x-sluice-domain }, { remove: x-sluice-descriptor }] } } }\n"}
	for name, tt := range map[string]struct {
		fields, other string // of the route to /usage, and of another route to the same cluster
		host          string
		change        [2]string
		want          []string
	}{
		"removed first":             {fields: add + ", " + remove},
		"overwritten":               {fields: overwrite},
		"kept":                      {fields: add, want: []string{others + "x-sluice-descriptor"}},
		"the domain is kept":        {fields: add + ", request_headers_to_remove: [x-sluice-descriptor]", want: []string{others + "x-sluice-domain"}},
		"removed by the host":       {fields: add, host: remove},
		"added by the host":         {fields: "name: a", host: add, want: []string{others + "x-sluice-descriptor"}},
		"one is missing":            {fields: strings.Replace(overwrite, "x-sluice-descriptor", "x-other", 2), want: []string{others + "x-sluice-descriptor"}},
		"removed early":             {fields: add, change: manager("early_header_mutation_extensions: [{ name: e, typed_config: { '@type': type.googleapis.com/" + earlyHeaderMutation + ", mutations: [{ remove: x-sluice-domain }, { remove: x-sluice-descriptor }] } }]")},
		"removed by a filter":       {fields: add, change: filter},
		"another route":             {fields: overwrite, other: "sluice", want: []string{serves + "x-sluice-descriptor"}},
		"a route elsewhere":         {fields: overwrite, other: "backend"},
		"acknowledged":              {fields: add + " # sluice:allow usage\n                  "},
		"routes without the header": {fields: "request_headers_to_add: [{ header: { key: x-other, value: shop } }]", other: "sluice"},
	} {
		t.Run(name, func(t *testing.T) {
			routes := "routes:\n                - { match: { path: /usage }, route: { cluster: sluice }, " + tt.fields + " }\n"
			if tt.other != "" {
				routes += "                - { match: { prefix: /other }, route: { cluster: " + tt.other + " } }\n"
			}
			text := strings.Replace(completeListener, "routes: [{ match: { prefix: / }, route: { cluster_header: x-backend } }]", routes, 1)
			if tt.host != "" {
				text = strings.Replace(text, "                routes:", "                "+tt.host+"\n                routes:", 1)
			}
			text = strings.Replace(text, tt.change[0], tt.change[1], 1)
			c, err := Read([]File{{"envoy.yaml", []byte(text)}})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			var found []string
			for _, f := range c.Check(ruleSet(t, "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]")) {
				if f.Code == Usage {
					found = append(found, f.Message)
				}
			}
			matches := len(found) == len(tt.want)
			for i := range found {
				matches = matches && strings.HasPrefix(found[i], tt.want[i])
			}
			if !matches {
				t.Errorf("found %q, want %q in\n%s", found, tt.want, text)
			}
		})
	}
}
