package descriptors

import (
	"strings"
	"testing"
)

// TestReach checks that Reach returns exactly the rules that a descriptor of a form can match.
// Package envoyconfig tests its reasons.
func TestReach(t *testing.T) {
	s := load(t, Options{}, `domain: shop
descriptors:
  - { key: user, value: vip, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: user, value: a*, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: user, value: staff }
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: u*, value: x, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - key: path
    rate_limit: { unit: hour, requests_per_unit: 1 }
    descriptors:
      - { key: method, value: GET, rate_limit: { unit: hour, requests_per_unit: 1 } }
`)
	anyOf := func(key string) Form { return Form{Key: key, AnyValue: true} }
	const allUsers = "user=vip user=a* user u*=x"
	for _, tt := range []struct {
		forms  []Form
		rules  string
		passes bool
	}{
		{[]Form{anyOf("user")}, allUsers, true},
		{[]Form{{Key: "user", Value: "vip"}}, "user=vip", false},
		{[]Form{{Key: "user", Value: "al"}}, "user=a*", false},
		{[]Form{{Key: "user", Value: "bo"}}, "user", false},
		{[]Form{{Key: "user", Value: "staff"}}, "", true},
		{[]Form{{Key: "under", Value: "x"}}, "u*=x", false},
		{[]Form{{Key: "under", Value: "y"}}, "", false},
		{[]Form{anyOf("path")}, "path", false},
		{[]Form{anyOf("path"), anyOf("method")}, "path > method=GET", false},
		{[]Form{anyOf("path"), {Key: "method", Value: "PUT"}}, "", false},
		{[]Form{anyOf("path"), {Key: "method", AnyValue: true, Optional: true}}, "path > method=GET path", false},
		{[]Form{anyOf("method")}, "", false},
		{[]Form{{AnyKey: true, AnyValue: true}}, allUsers + " path", true},
		{nil, "", false},
	} {
		r := s.Reach("shop", tt.forms)
		var got []string
		for _, rule := range r.Rules {
			got = append(got, rule.Path())
		}
		if text := strings.Join(got, " "); text != tt.rules || r.Passes != tt.passes {
			t.Errorf("Reach(%+v) = %q, passes %v, want %q, %v", tt.forms, text, r.Passes, tt.rules, tt.passes)
		}
		if nothing := tt.rules == "" && !tt.passes; (r.Reason != "") != nothing {
			t.Errorf("Reach(%+v) gives the reason %q", tt.forms, r.Reason)
		}
	}
	if r := s.Reach("nosuch", nil); r.Reason == "" {
		t.Error("Reach of an unknown domain gives no reason")
	}
}
