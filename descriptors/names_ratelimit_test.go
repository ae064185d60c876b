package descriptors

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
)

// ratelimitRules are rules that envoyproxy/ratelimit supports, and some that it does not.
const ratelimitRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: month, requests_per_unit: 10}
  - key: user
    value: vip
    rate_limit: {unit: second, requests_per_unit: 100}
    shadow_mode: true
  - key: generic_key
    value: slow_path
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: path
    value: /img/*
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: file
    value: "a_*"
    share_threshold: true
    descriptors:
      - key: user
        detailed_metric: true
        rate_limit: {unit: week, requests_per_unit: 10}
  - key: each
    value: "a_*"
    rate_limit: {unit: week, requests_per_unit: 10}
  - key: h*
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: ten
    rate_limit: {unit: minute, unit_multiplier: 10, requests_per_unit: 10}
  - key: bucket
    rate_limit: {unit: minute, requests_per_unit: 10, algorithm: token_bucket}
  - key: list
    rate_limits:
      - {unit: minute, requests_per_unit: 10}
      - {unit: hour, requests_per_unit: 10}
  - key: watched
    rate_limits:
      - {unit: minute, requests_per_unit: 10}
      - {unit: minute, requests_per_unit: 5, shadow: true}
  - key: free
    rate_limit: {unlimited: true}
  - key: x_y
    rate_limit: {unit: minute, requests_per_unit: 10}
    descriptors:
      - key: z
        rate_limit: {unit: minute, requests_per_unit: 10}
  - key: x
    value: y
    descriptors:
      - key: z_z
        rate_limit: {unit: minute, requests_per_unit: 10}
---
domain: shop_x
descriptors:
  - key: "y"
    rate_limit: {unit: minute, requests_per_unit: 10}
---
domain: s1{x
descriptors:
  - key: k
    rate_limit: {unit: minute, requests_per_unit: 10}
`

// namesOf returns the names and IDs of the charges of a descriptor, which is written as k=v,k=v.
func namesOf(s *Set, n *Namer, domain, descriptor string, o *Override) (names []string, ids []identity.ID) {
	d := Descriptor{HasOverride: o != nil}
	if o != nil {
		d.Override = *o
	}
	for entry := range strings.SplitSeq(descriptor, ",") {
		key, value, _ := strings.Cut(entry, "=")
		d.Entries = append(d.Entries, Entry{[]byte(key), []byte(value)})
	}
	p, req := &Plan{}, &Request{Domain: []byte(domain), Descriptors: []Descriptor{d}}
	s.Plan(p, req, Global{})
	n.Name(p, req)
	for i := range p.Names {
		names, ids = append(names, string(p.Names[i])), append(ids, p.Batch.Charges[i].ID)
	}
	return names, ids
}

// TestRatelimitNames checks which counters have the names of envoyproxy/ratelimit. The expected names
// have the format of its src/limiter/cache_key.go.
func TestRatelimitNames(t *testing.T) {
	s := load(t, Options{RatelimitNames: true}, ratelimitRules)
	n := NewRatelimitNamer("pre:", nil)
	month, day := &Override{RequestsPerUnit: 5, Unit: 5}, &Override{RequestsPerUnit: 5, Unit: 4}
	week := &Override{RequestsPerUnit: 5, Unit: 4, UnitMultiplier: 7} // envoyproxy/ratelimit has no window of a week
	for _, tt := range []struct {
		domain, descriptor string
		override           *Override
		want               string // empty if it is exact
	}{
		{"shop", "user=alice", nil, "pre:shop_user_alice_"},
		{"shop", "user=", nil, "pre:shop_user__"},
		{"shop", "user=vip", nil, "pre:shop_user_vip_"},
		{"shop", "user=a_b", nil, ""},
		{"shop", "user=alice", month, "pre:shop_user_alice_"},
		{"shop", "user=alice", day, ""},
		{"shop", "generic_key=slow_path", nil, "pre:shop_generic_key_slow_path_"},
		{"shop", "path=/img/x", nil, "pre:shop_path_/img/x_"},
		{"shop", "path=/img/_x", nil, ""},
		{"shop", "file=a_1,user=alice", nil, "pre:shop_file_a_*_user_alice_"},
		{"shop", "file=a_2,user=alice", nil, "pre:shop_file_a_*_user_alice_"},
		{"shop", "file=a_1,user=alice", week, ""},
		{"shop", "file=a_*,user=alice", week, "pre:shop_file_a_*_user_alice_"},
		{"shop", "each=a_1", nil, ""},
		{"shop", "host=x", nil, ""},
		{"shop", "ten=x", nil, ""},
		{"shop", "bucket=x", nil, ""},
		{"shop", "list=x", nil, ""},
		{"shop", "none=x", day, ""},
		{"shop", "watched=x", nil, "pre:shop_watched_x_"}, // the name of its candidate is exact
		{"shop", "x_y=v", nil, ""},                        // ambiguous: domain shop_x and key y
		{"shop_x", "y=v", nil, ""},                        // see above
		{"shop", "x=y,z_z=v", nil, ""},                    // ambiguous: x_y=z, z=v
		{"shop", "x_y=z,z=v", nil, ""},                    // see above
		{"s1{x", "k=v", nil, ""},                          // begins like exact names
		{"unknown", "user=alice", day, ""},                // no charge
	} {
		names, _ := namesOf(s, n, tt.domain, tt.descriptor, tt.override)
		for _, name := range names {
			if exact := exactName.MatchString(name); exact != (tt.want == "") && !strings.Contains(name, "}sf") || !exact && name != tt.want {
				t.Errorf("%s > %s (override %v) has the name %q, want %q", tt.domain, tt.descriptor, tt.override, name, tt.want)
			}
		}
		if len(names) == 0 && tt.domain != "unknown" {
			t.Errorf("%s > %s has no name", tt.domain, tt.descriptor)
		}
	}
	if names, _ := namesOf(s, NewNamer("pre:", nil), "shop", "user=alice", nil); !exactName.MatchString(names[0]) {
		t.Errorf("a namer that uses only exact names returns %q", names)
	}
}

// TestStoreName checks the description of each limit in `sluice check`.
func TestStoreName(t *testing.T) {
	s := load(t, Options{RatelimitNames: true}, ratelimitRules)
	var got []string
	for _, l := range s.Limits {
		n := s.StoreName(l)
		got = append(got, fmt.Sprintf("%s: %v %s; %s", l.Rule.Path(), n.Ratelimit, n.Text, n.Why))
	}
	want := []string{
		`k: false s1{...}f60_<start>; its domain begins with s1{, like exact names`,
		`user: true shop_user_<user>_<start>; counters of values with "_" have exact names`,
		`user=vip: true shop_user_vip_<start>; `,
		`generic_key=slow_path: true shop_generic_key_slow_path_<start>; `,
		`path=/img/*: true shop_path_<path>_<start>; counters of values with "_" have exact names`,
		`file=a_* > user: true shop_file_a_*_user_<user>_<start>; counters of values with "_" have exact names`,
		`each=a_*: false s1{...}f604800_<start>; each value that matches each=a_* has a "_"`,
		`h*: false s1{...}f60_<start>; a key has a "*"`,
		`ten: false s1{...}f600_<start>; envoyproxy/ratelimit has no unit_multiplier`,
		`bucket: false s1{...}t60; envoyproxy/ratelimit has no token_bucket`,
		`list: false s1{...}f60_<start>; envoyproxy/ratelimit has no rate_limits lists`,
		`list: false s1{...}f3600_<start>; envoyproxy/ratelimit has no rate_limits lists`,
		`watched: true shop_watched_<watched>_<start>; counters of values with "_" have exact names`,
		`watched: false s1{...}sf60_<start>; envoyproxy/ratelimit has no shadow: true`,
		`free: false ; an unlimited rule has no counters`,
		`x_y: false s1{...}f60_<start>; shop_x > y at a.yaml:56:5 could have the same name`,
		`x_y > z: false s1{...}f60_<start>; shop > x=y > z_z at a.yaml:51:9 could have the same name`,
		`x=y > z_z: false s1{...}f60_<start>; shop > x_y > z at a.yaml:46:9 could have the same name`,
		`y: false s1{...}f60_<start>; shop > x_y at a.yaml:43:5 could have the same name`,
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("limit %d:\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestRatelimitNamesAreUnambiguous generates rules with words that are ambiguous in
// envoyproxy/ratelimit's names, and random requests. Two charges must have the same name if and
// only if they have the same identity in memory.
func TestRatelimitNamesAreUnambiguous(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	plain, exact := 0, 0
	var writeLevel func(b *strings.Builder, indent string, depth int)
	writeLevel = func(b *strings.Builder, indent string, depth int) {
		used := map[string]bool{}
		for range 1 + r.IntN(4) {
			key, value := pick("a", "b", "a_b", "b_a", "a_", "_", "a*"), pick("", "", "a", "b", "a_b", "_", "*", "a*", "*_b")
			if used[key+"="+value] {
				continue
			}
			used[key+"="+value] = true
			fmt.Fprintf(b, "%s- key: %q\n%s  value: %q\n", indent, key, indent, value)
			// The key must have no wildcard: with `a*: "*"`, the shared counter would have the same
			// identity as the counter of a literal `*` for `a: "*"`, but another name.
			if strings.Contains(value, "*") && !strings.Contains(key, "*") && r.IntN(2) == 0 {
				fmt.Fprintf(b, "%s  share_threshold: true\n", indent)
			}
			if r.IntN(3) > 0 {
				fmt.Fprintf(b, "%s  rate_limit: {unit: %s, requests_per_unit: 10}\n", indent, pick("minute", "hour"))
			}
			if depth > 0 && r.IntN(2) == 0 {
				fmt.Fprintf(b, "%s  descriptors:\n", indent)
				writeLevel(b, indent+"    ", depth-1)
			}
		}
	}
	namer := NewRatelimitNamer("", nil)
	for range 300 {
		domains := []string{"d", "d_a", "d_a_b"}
		var b strings.Builder
		for _, d := range domains {
			fmt.Fprintf(&b, "---\ndomain: %s\ndescriptors:\n", d)
			writeLevel(&b, "  ", 2)
		}
		s := load(t, Options{RatelimitNames: true}, strings.TrimPrefix(b.String(), "---\n"))
		idOf, nameOf := map[string]identity.ID{}, map[identity.ID]string{}
		for range 300 {
			var entries []string
			for range 1 + r.IntN(3) {
				entries = append(entries, pick("a", "b", "a_b", "b_a", "a_", "_", "ab")+"="+pick("", "a", "b", "a_b", "_", "ab", "a*", "*", "*_b", "b_b"))
			}
			var o *Override
			if r.IntN(3) == 0 {
				o = &Override{RequestsPerUnit: 5, Unit: int32(2 + r.IntN(2))}
			}
			domain, descriptor := domains[r.IntN(3)], strings.Join(entries, ",")
			names, ids := namesOf(s, namer, domain, descriptor, o)
			for i, name := range names {
				if strings.HasPrefix(name, exactMark) {
					exact++
				} else {
					plain++
				}
				if other, ok := idOf[name]; ok && other != ids[i] {
					t.Fatalf("seed %d: %s > %s: another counter also has the name %q, with the rules\n%s", seed, domain, descriptor, name, &b)
				}
				if other, ok := nameOf[ids[i]]; ok && other != name {
					t.Fatalf("seed %d: %s > %s: has the name %q, but before its counter had the name %q, with the rules\n%s", seed, domain, descriptor, name, other, &b)
				}
				idOf[name], nameOf[ids[i]] = ids[i], name
			}
		}
	}
	t.Logf("%d names of envoyproxy/ratelimit, %d exact ones", plain, exact)
	if plain < 1000 || exact < 1000 {
		t.Error("too few names of one kind")
	}
}

func TestRatelimitNamingDoesNotAllocate(t *testing.T) {
	s := load(t, Options{RatelimitNames: true}, ratelimitRules)
	p, req := &Plan{}, &Request{Domain: []byte("shop")}
	for _, user := range []string{"alice", "a_b", "vip"} {
		d := Descriptor{Entries: []Entry{{[]byte("user"), []byte(user)}}}
		req.Descriptors = append(req.Descriptors, d)
		d.HasOverride, d.Override = true, Override{RequestsPerUnit: 5, Unit: 5}
		req.Descriptors = append(req.Descriptors, d)
	}
	namer := NewRatelimitNamer("pre:", nil)
	run := func() {
		s.Plan(p, req, Global{})
		namer.Name(p, req)
	}
	run()
	if n := must.AllocsPerRun(10, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
