// Package ranges compares matching by values, ranges of addresses, wildcards and exemptions with a
// model that was written from docs/rules.md alone.
package ranges_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

var (
	ranges = []string{
		"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.128/25", "10.1.2.3", "10.1.2.4/32", "192.0.2.6/31", "224.0.0.0/3",
		"::/0", "2001:db8::/32", "2001:DB8:0:1::/64", "2001:db8::1", "2001:db8::2/128", "fe80::/10", "::1", "::/96",
	}
	// values are addresses in all forms, and texts that are not addresses.
	values = []string{
		"10.1.2.3", "10.1.2.3:80", "10.1.2.3:65535", "[10.1.2.3]:80", "::ffff:10.1.2.3", "[::ffff:10.1.2.3]:80", "::FFFF:0a01:0203", "10.1.2.3/32", "::ffff:10.1.2.3/128",
		"10.1.2.4", "10.1.2.5", "10.1.2.127", "10.1.2.128", "10.1.2.255:1", "10.1.3.0", "10.2.0.1", "11.0.0.0", "192.0.2.7", "192.0.2.5", "255.255.255.255", "0.0.0.0", "127.0.0.1",
		"10.1.2.0/24", "10.1.2.77/24", "10.1.2.0/25", "10.1.2.128/26", "10.0.0.0/7", "10.0.0.0/8", "0.0.0.0/0", "::ffff:10.1.2.0/120", "::ffff:0:0/96", "::ffff:10.0.0.0/95",
		"2001:db8::1", "[2001:db8::1]:443", "2001:0DB8:0:0::1", "2001:db8::1%eth0", "[2001:db8::1%eth0]:443", "2001:db8:0:1::5", "2001:db8:0:1:ffff::", "2001:db8:0:2::", "2001:db9::1", "fe80::1%en0", "::1", "::", "::10.1.2.3",
		"2001:db8::/48", "2001:db8:0:1::/64", "2001:db8:0:1::/63", "2001:db8::/31", "::/0", "fe80::%eth0/64",
		"", " ", "10.1.2.3, 203.0.113.9", "10.1.2.3,10.1.2.3", " 10.1.2.3", "10.1.2.3 ", "10.1.2.3\n", "010.1.2.3", "10.01.2.3", "10.1.2", "10.1.2.3.4", "10.1.2.256", "0x0a.1.2.3", "167838211",
		"10.1.2.3:", "10.1.2.3:x", "10.1.2.3:80:80", "10.1.2.3:99999", ":80", "[2001:db8::1]", "[2001:db8::1", "2001:db8::1]:80", "[2001:db8::1]80", "[]:80", "[[::1]]:80", "2001:db8::1:80", "2001:db8::g", "1:2:3:4:5:6:7:8:9", "::1::",
		"10.1.2.3/33", "10.1.2.3/", "10.1.2.3/-1", "10.1.2.3/08", "10.1.2.3/+8", "10.1.2.3/8/8", "10.1.2.0/24:80", "10.1.2.3:80/32", "2001:db8::/129", "[2001:db8::1]/64", "[2001:db8::1]:443/64", "10.1.2.3%eth0", "2001:db8::1%", "2001:db8::1%x, 203.0.113.9", "unknown", "_hidden", "localhost:80", "\x00", "１０.1.2.3",
		"free", "trial", "partner", "bot-1", "bot-22", "bot-*", "a-1",
	}
	patterns = []string{"bot-*", "*-1", "10.1*", "*", "10.*3*", "2001:*", "[*"}
)

type generator struct {
	*rand.Rand

	t     *testing.T
	dir   string
	names int
}

// pick returns up to most elements of all, which it removes.
func (g *generator) pick(all *[]string, most int) (some []string) {
	for range min(1+g.IntN(most), len(*all)) {
		i := g.IntN(len(*all))
		some = append(some, (*all)[i])
		*all = append((*all)[:i:i], (*all)[i+1:]...)
	}
	return some
}

// setRanges gives n some of the ranges, in the rules or in a file.
func (g *generator) setRanges(n *node, free *[]string) {
	n.ranges = g.pick(free, 4)
	n.CIDR = n.ranges
	if g.IntN(2) == 0 {
		g.names++
		file := fmt.Sprintf("ranges-%d.txt", g.names)
		must.OK(g.t, os.WriteFile(filepath.Join(g.dir, file), []byte("# offices\n"+strings.Join(n.ranges, " # one\n\n")+"\n"), 0o600))
		n.CIDR = map[string]string{"file": file}
	}
}

// level returns the rules of a level and those below it.
func (g *generator) level(depth int) (all []*node) {
	for _, key := range []string{"address", "plan"}[:1+g.IntN(2)] {
		freeRanges, freeValues, freePatterns, bare := append([]string(nil), ranges...), append([]string(nil), values...), append([]string(nil), patterns...), false
		freeValues = without(freeValues, "*")
		for range 2 + g.IntN(5) {
			n := &node{Key: key}
			switch kind := g.IntN(5); {
			case kind == 0:
				n.Values = g.pick(&freeValues, 5)
				n.Share = g.IntN(2) == 0
			case kind == 1 && len(freePatterns) > 0:
				n.Value = g.pick(&freePatterns, 1)[0]
				n.Share = g.IntN(2) == 0
			case kind == 2 && !bare:
				bare = true
			case kind == 3:
				n.Value = g.pick(&freeValues, 1)[0]
			default:
				g.setRanges(n, &freeRanges)
				n.Share = g.IntN(3) == 0
			}
			if (n.CIDR != nil && !n.Share || n.Value == "" && n.Values == nil && n.CIDR == nil) && g.IntN(2) == 0 {
				n.Prefix = map[string]int{}
				if g.IntN(3) > 0 {
					n.Prefix["v4"] = []int{1, 8, 23, 24, 32}[g.IntN(5)]
				}
				if g.IntN(3) > 0 || len(n.Prefix) == 0 {
					n.Prefix["v6"] = []int{1, 48, 64, 65, 128}[g.IntN(5)]
				}
			}
			g.names++
			switch g.IntN(8) {
			case 0: // without a limit
			case 1:
				n.Limit = &limit{Unlimited: true}
			default:
				n.Limit = &limit{Unit: "year", N: 1 << 20, Name: fmt.Sprint("limit-", g.names)}
			}
			if depth > 1 && g.IntN(3) == 0 {
				n.Below = g.level(depth - 1)
			}
			all = append(all, n)
		}
	}
	return all
}

// without returns the texts without empty ones and those that contain part.
func without(all []string, part string) (some []string) {
	for _, text := range all {
		if text != "" && !strings.Contains(text, part) {
			some = append(some, text)
		}
	}
	return some
}

func (g *generator) document(domain string) *document {
	d := &document{Domain: domain, Rules: g.level(2)}
	for range max(0, g.IntN(5)-2) {
		n := &node{Key: []string{"address", "plan", "other"}[g.IntN(3)]}
		free := append([]string(nil), ranges[1:9]...)
		some := without(values, "*")
		switch g.IntN(3) {
		case 0:
			g.setRanges(n, &free)
		case 1:
			n.Values = g.pick(&some, 4)
		default:
			n.Value = append(some, "bot-*", "10.1.2.3*")[g.IntN(len(some)+2)]
		}
		d.Exempt = append(d.Exempt, n)
	}
	return d
}

// request returns descriptors of one to three entries. Values of a few networks are frequent, so
// that many share a counter.
func (g *generator) request() (all [][]entry) {
	for range 1 + g.IntN(3) {
		var entries []entry
		for range 1 + g.IntN(2)*g.IntN(3) {
			entries = append(entries, entry{[]string{"address", "address", "address", "plan", "other"}[g.IntN(5)], values[g.IntN(len(values))]})
		}
		all = append(all, entries)
	}
	return all
}

// TestModel sends random requests for random rules of many domains, and compares the name of the
// limit and the remaining hits of each descriptor with the model. SLUICE_SEED=n selects the rules and
// the requests.
func TestModel(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv("SLUICE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		must.OK(t, err)
		seed = n
	}
	g := &generator{Rand: rand.New(rand.NewPCG(seed, seed)), t: t, dir: t.TempDir()}
	var docs []*document
	var text strings.Builder
	for i := range 60 {
		d := g.document(fmt.Sprint("tenant-", i))
		line, err := json.Marshal(d)
		must.OK(t, err)
		docs = append(docs, d)
		text.WriteString("---\n" + string(line) + "\n")
	}
	path := filepath.Join(g.dir, "rules.yaml")
	must.OK(t, os.WriteFile(path, []byte(text.String()), 0o600))
	set, diagnostics, err := source.Load([]string{path}, "", descriptors.Options{})
	must.OK(t, err)
	if set == nil {
		t.Fatal(diagnostics)
	}
	service := servertest.Service(t, answer.Settings{}, "")
	must.OK(t, service.SetRules(servertest.Noon, set))
	m := &model{used: map[string]int{}}
	limited := 0
	for n := range 12_000 {
		d, descriptors := docs[g.IntN(len(docs))], g.request()
		req := &rls.RateLimitRequest{Domain: d.Domain}
		for _, entries := range descriptors {
			one := &rlcommon.RateLimitDescriptor{}
			for _, e := range entries {
				one.Entries = append(one.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: e.key, Value: e.value})
			}
			req.Descriptors = append(req.Descriptors, one)
		}
		want := m.answer(d, descriptors)
		encoded, _, err := service.Answer(servertest.Noon, time.Minute, new(answer.Exchange), servertest.Marshal(t, req))
		must.OK(t, err)
		reply := new(rls.RateLimitResponse)
		must.OK(t, proto.Unmarshal(encoded, reply))
		got := make([]status, len(reply.GetStatuses()))
		for i, s := range reply.GetStatuses() {
			if s.GetCurrentLimit() != nil {
				got[i] = status{s.GetCurrentLimit().GetName(), int(s.GetLimitRemaining())}
				limited++
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			line, _ := json.Marshal(d)
			t.Fatalf("SLUICE_SEED=%d, request %d: %q: limits and remaining hits (-want +got):\n%s\n%s", seed, n, descriptors, diff, line)
		}
	}
	if m.exempt == 0 {
		t.Errorf("SLUICE_SEED=%d: no request is exempt", seed)
	}
	if shared := limited - len(m.used); shared < limited/4 || len(m.used) < 1000 {
		t.Errorf("SLUICE_SEED=%d: %d limited descriptors used %d counters, want more of both kinds", seed, limited, len(m.used))
	}
}
