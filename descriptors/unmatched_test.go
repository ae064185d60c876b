package descriptors

import "testing"

func TestUnmatched(t *testing.T) {
	s := load(t, Options{}, "domain: other", `domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 5}
  - key: route
    value: search
    descriptors:
      - {key: method, value: POST, rate_limit: {unit: hour, requests_per_unit: 5}}
  - key: white
`)
	for _, tt := range []struct {
		domain  int
		entries string
		key     string
		entry   int
		why     string
		meant   string
	}{
		{1, "usr=al", "usr", 1, `nothing matches entry 1, usr: the rules begin with user (b.yaml:3:5), route=search (b.yaml:5:5), white (b.yaml:9:5); did you mean "user"?`, "user"},
		{1, "route=find", "route", 1, "nothing matches entry 1, route: the rules begin with user (b.yaml:3:5), route=search (b.yaml:5:5), white (b.yaml:9:5)", ""},
		{1, "route=search method=GET", "method", 2, "nothing matches entry 2, method: below route=search at b.yaml:5:5 the rules have method=POST (b.yaml:8:9)", ""},
		{1, "route=search", "", 0, "route=search at b.yaml:5:5 has no limit; deeper ones require method=POST (b.yaml:8:9)", ""},
		{1, "user=al path=/", "path", 2, "the rules end with user at b.yaml:3:5, so longer descriptors match nothing", ""},
		{1, "", "", 0, "the descriptor is empty", ""},
		{0, "user=al", "user", 1, "the domain has no descriptors", ""},
	} {
		u, key := s.Unmatched(tt.domain, parseEntries(tt.entries))
		if u == (Unmatched{}) {
			t.Errorf("%q is not unmatched", tt.entries)
			continue
		}
		why, meant := u.Explain(string(key))
		if string(key) != tt.key || u.Entry() != tt.entry || why != tt.why || meant != tt.meant {
			t.Errorf("%q: key %q, entry %d, %q, meant %q", tt.entries, key, u.Entry(), why, meant)
		}
	}
	for _, matched := range []string{"user=al", "white=x"} {
		if u, _ := s.Unmatched(1, parseEntries(matched)); u != (Unmatched{}) {
			t.Errorf("%q is unmatched: %+v", matched, u)
		}
	}
}
