package descriptors

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// namedRules have every algorithm, lists, wildcards, shared thresholds, and keys and values with
// ambiguous concatenations.
const namedRules = identityRules + `
  - key: list
    rate_limits:
      - {unit: minute, requests_per_unit: 10}
      - {unit: minute, unit_multiplier: 2, requests_per_unit: 10}
      - {unit: minute, requests_per_unit: 10, algorithm: sliding_window}
      - {unit: minute, requests_per_unit: 10, algorithm: sliding_window, sub_windows: 20}
      - {unit: minute, requests_per_unit: 10, algorithm: sliding_log}
      - {unit: minute, requests_per_unit: 10, algorithm: token_bucket}
      - {unit: minute, requests_per_unit: 10, algorithm: leaky_bucket}
      - {unit: minute, requests_per_unit: 5, shadow: true}
      - {unit: minute, requests_per_unit: 5, algorithm: sliding_window, shadow: true}
  - key: any
    value: "*"
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: ab
    rate_limit: {unit: hour, requests_per_unit: 10}
`

// requestsOf returns similar descriptors that namedRules limit.
func requestsOf() []Descriptor {
	var all []Descriptor
	for _, e := range []string{
		"a=x", "a=y", "a=", "a=bc", "ab=c", "abc=", "a_b=x", "a=b_x", "day=x", "day=", "h=x", "hh=x", "h*=x", "h*=*", "h=*", "list=x", "any=x", "any=*", "any=",
		"a=x,b=y", "a=x,b=", "a=,b=x", "a_b=x,c=y", "a=b,b=x", "p=path/1,f=file/1", "p=path/2,f=file/1", "p=path/1,f=file/2", "p=path/*,f=file/1",
	} {
		var d Descriptor
		for entry := range strings.SplitSeq(e, ",") {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, Entry{[]byte(key), []byte(value)})
		}
		all = append(all, d)
		for _, o := range []Override{{RequestsPerUnit: 5, Unit: 2}, {RequestsPerUnit: 5, Unit: 3}, {RequestsPerUnit: 6, Unit: 3}, {RequestsPerUnit: 5, Unit: 2, UnitMultiplier: 60}} {
			d.HasOverride, d.Override = true, o
			all = append(all, d)
		}
	}
	return all
}

var exactName = regexp.MustCompile(`^pre:s1\{[A-Za-z0-9_-]{22}\}s?(f\d+_|r\d+\.\d+|[ltk]\d+)$`)

// TestNamesMatchIdentities checks that two charges have the same name if and only if they have the
// same identity in memory.
func TestNamesMatchIdentities(t *testing.T) {
	type counter struct {
		id identity.ID
		a  limiter.Algorithm
	}
	namer := NewNamer("pre:", []byte("secret"))
	named, of := map[string]counter{}, map[counter]string{}
	for _, domain := range []string{"d", "e"} {
		s := load(t, Options{}, strings.Replace(namedRules, "domain: d", "domain: "+domain, 1))
		for _, d := range requestsOf() {
			p, req := &Plan{}, &Request{Domain: []byte(domain), Descriptors: []Descriptor{d, d}}
			s.Plan(p, req, Global{})
			namer.Name(p, req)
			if len(p.Names) != len(p.Batch.Charges) {
				t.Fatalf("%d names of %d charges", len(p.Names), len(p.Batch.Charges))
			}
			for i, c := range p.Batch.Charges {
				name, counter := string(p.Names[i]), counter{c.ID, c.Policy.Algorithm}
				if !exactName.MatchString(name) {
					t.Errorf("%s: name %q", d.Entries, name)
				}
				if other, ok := named[name]; ok && other != counter {
					t.Errorf("%s: another counter has the name %q", d.Entries, name)
				}
				if other, ok := of[counter]; ok && other != name {
					t.Errorf("%s: named %q, but its counter is %q", d.Entries, name, other)
				}
				named[name], of[counter] = counter, name
			}
		}
	}
	t.Logf("%d counters", len(of))
	if len(of) < 100 {
		t.Errorf("%d counters, want more", len(of))
	}
}

// TestNamesAreStable checks one name of each kind. Names must be the same in every process and
// version, otherwise a rollout would lose counters.
func TestNamesAreStable(t *testing.T) {
	s := load(t, Options{}, namedRules)
	got := map[string]string{}
	for secret, descriptor := range map[string]string{"": "list", "secret": "day"} {
		p, req := &Plan{}, &Request{Domain: []byte("d"), Descriptors: []Descriptor{{Entries: []Entry{{[]byte(descriptor), []byte("x")}}}}}
		s.Plan(p, req, Global{})
		NewNamer("", []byte(secret)).Name(p, req)
		for i, name := range p.Names {
			got[fmt.Sprint(descriptor, i)] = string(name)
		}
	}
	for which, want := range map[string]string{
		"day0":  "s1{IXMbpD3iBQNQTrnFFWa6Xg}f86400_",
		"list0": "s1{KvY7BUwC8IIbEg4lu7ekBg}f60_",
		"list1": "s1{KvY7BUwC8IIbEg4lu7ekBg}f120_",
		"list2": "s1{KvY7BUwC8IIbEg4lu7ekBg}r60.10",
		"list3": "s1{KvY7BUwC8IIbEg4lu7ekBg}r60.20",
		"list4": "s1{KvY7BUwC8IIbEg4lu7ekBg}l60",
		"list5": "s1{KvY7BUwC8IIbEg4lu7ekBg}t60",
		"list6": "s1{KvY7BUwC8IIbEg4lu7ekBg}k60",
		"list7": "s1{KvY7BUwC8IIbEg4lu7ekBg}sf60_",
		"list8": "s1{KvY7BUwC8IIbEg4lu7ekBg}sr60.10",
	} {
		if got[which] != want {
			t.Errorf("%s has the name %q, want %q", which, got[which], want)
		}
	}
}

func TestNamingDoesNotAllocate(t *testing.T) {
	s := load(t, Options{}, namedRules)
	p, req := &Plan{}, &Request{Domain: []byte("d"), Descriptors: requestsOf()}
	s.Plan(p, req, Global{})
	namer := NewNamer("pre:", nil)
	namer.Name(p, req)
	if n := must.AllocsPerRun(10, func() { namer.Name(p, req) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
