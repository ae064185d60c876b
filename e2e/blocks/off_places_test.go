package blocks_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// place is a rule that has blocks: off for the value "off" of its key, and not for "auto".
type place struct {
	key    string
	rule   string   // in YAML, with the further field
	limits int      // of a request
	with   []string // keys of further descriptors of a request, whose value is "auto"
}

// placeLimit is the number of all limits.
const placeLimit = 1_000_000

// places are all ways to set blocks: off in a rule file and in tables.
var places = []place{
	{key: "fixed", limits: 1, rule: "rate_limit: {unit: year, requests_per_unit: 1000000%s}"},
	{key: "not-counted", limits: 1, rule: "rate_limit: {unit: year, requests_per_unit: 1000000, count_refused: false%s}"},
	{key: "sliding", limits: 1, rule: "rate_limit: {unit: year, requests_per_unit: 1000000, algorithm: sliding_window%s}"},
	{key: "soft", limits: 1, rule: "rate_limit: {name: soft, soft: true, unit: year, requests_per_unit: 1000000%s}"},
	{key: "notified", limits: 1, rule: "rate_limit: {name: notified, notify_at: 0.5, unit: year, requests_per_unit: 1000000%s}"},
	{key: "shadow", limits: 1, rule: "shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1000000%s}"},
	{key: "list", limits: 2, rule: "rate_limits: [{unit: year, requests_per_unit: 1000000}, {unit: year, unit_multiplier: 2, requests_per_unit: 2000000%s}]"},
	{key: "candidate", limits: 2, rule: "rate_limits: [{unit: year, requests_per_unit: 1000000}, {unit: year, unit_multiplier: 2, requests_per_unit: 2000000, shadow: true%s}]"},
	{key: "table", limits: 1, rule: "rate_limit: {unit: year, requests_per_unit: 60, table: plans%s}"},
	{key: "pair", limits: 2, with: []string{"fixed"}, rule: "rate_limit: {unit: year, requests_per_unit: 1000000%s}"},
}

// defaultPlaces have blocks: off from a file of defaults, by the path or the name of a rule.
var defaultPlaces = []place{
	{key: "named", limits: 1},
	{key: "path", limits: 1},
	{key: "domain", limits: 1},
}

const placeDefaults = `domain: d
defaults:
  - {name: named-off, rate_limit: {blocks: off}}
  - {name: named-auto, rate_limit: {blocks: auto}}
  - {path: [{key: path, value: off}], rate_limit: {blocks: off}}
  - {path: [{key: path, value: auto}], rate_limit: {blocks: auto}}
  - {path: [{key: domain, value: auto}], rate_limit: {blocks: auto}}
  - {rate_limit: {blocks: off}}
`

// ask sends a request of one hit for a place.
func (p *place) ask(t *testing.T, f *fleet, replica int, value string) *rlsv3.RateLimitResponse {
	t.Helper()
	request := &rlsv3.RateLimitRequest{Domain: "d"}
	add := func(key, value string) {
		request.Descriptors = append(request.Descriptors, &commonv3.RateLimitDescriptor{
			Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: value}},
		})
	}
	add(p.key, value)
	for _, key := range p.with {
		add(key, "auto")
	}
	reply, err := f.services[replica].ShouldRateLimit(t.Context(), request)
	must.OK(t, err)
	for _, status := range reply.GetStatuses() {
		status.DurationUntilReset = nil
	}
	return reply
}

// check sends requests with the values "auto" and "off" alternately, until many of "auto" were
// decided from blocks. The store decides all those of "off". The replies are those of plain, which
// has no blocks, and have the exact count.
func (p *place) check(t *testing.T, f, plain *fleet) {
	t.Helper()
	const each = 50
	sent, first, block := 0, f.decided(t, "block"), 0
	suite.Eventually(t, p.key+" has blocks", func() bool {
		for n := range each {
			p.ask(t, f, n%len(f.sluices), "auto")
		}
		before, store := f.decided(t, "block"), f.decided(t, "store")
		for n := range each {
			got, want := p.ask(t, f, n%len(f.sluices), "off"), p.ask(t, plain, 0, "off")
			sent++
			status := got.GetStatuses()[0]
			if left := int(status.GetLimitRemaining()); status.GetCurrentLimit() != nil && left != placeLimit-sent {
				t.Fatalf("%s: %d hits remain after %d, want %d", p.key, left, sent, placeLimit-sent)
			}
			if p.with == nil && !proto.Equal(got, want) {
				t.Fatalf("%s: the reply is\n%v\nand without blocks\n%v", p.key, got, want)
			}
		}
		block = f.decided(t, "block")
		if block != before {
			t.Fatalf("%s: %d requests were decided from blocks, want none", p.key, block-before)
		}
		if n := f.decided(t, "store") - store; n != p.limits*each {
			t.Fatalf("%s: the store decided %d charges, want %d", p.key, n, p.limits*each)
		}
		return block >= first+4*each
	})
	t.Logf("%s: %d requests with blocks: off, %d decisions from blocks", p.key, sent, block-first)
}

// TestBlocksOffEverywhere sets blocks: off in all places that can, and compares with a sluice without
// blocks.
func TestBlocksOffEverywhere(t *testing.T) {
	t.Parallel()
	t.Run("rules", func(t *testing.T) {
		t.Parallel()
		var text strings.Builder
		text.WriteString("domain: d\ndescriptors:\n")
		for _, p := range places {
			for _, value := range []string{"off", "auto"} {
				fmt.Fprintf(&text, "  - {key: %s, value: %s, "+p.rule+"}\n", p.key, value, ", blocks: "+value)
			}
		}
		table := filepath.Join(t.TempDir(), "plans.csv")
		suite.Replace(t, table, "table,requests_per_unit\noff,1000000\nauto,1000000\n")
		f, plain := startPlaces(t, text.String(), "--table", "plans="+table)
		for _, p := range places {
			p.check(t, f, plain)
		}
	})
	defaults := func(t *testing.T) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "defaults.yaml")
		suite.Replace(t, path, placeDefaults)
		return path
	}
	t.Run("defaults", func(t *testing.T) {
		t.Parallel()
		var text strings.Builder
		text.WriteString("domain: d\ndescriptors:\n")
		for _, p := range defaultPlaces {
			for _, value := range []string{"off", "auto"} {
				fmt.Fprintf(&text, "  - {key: %s, value: %s, rate_limit: {name: %s-%s, unit: year, requests_per_unit: %d}}\n", p.key, value, p.key, value, placeLimit)
			}
		}
		f, plain := startPlaces(t, text.String(), "--defaults", defaults(t))
		for _, p := range defaultPlaces {
			p.check(t, f, plain)
		}
	})
	t.Run("xds", func(t *testing.T) {
		t.Parallel()
		m, err := adstest.Start(adstest.Options{})
		must.OK(t, err)
		t.Cleanup(m.Stop)
		config := &pb.RateLimitConfig{Name: "d", Domain: "d"}
		for _, p := range defaultPlaces {
			for _, value := range []string{"off", "auto"} {
				limit := &pb.RateLimitPolicy{Name: p.key + "-" + value, Unit: pb.RateLimitUnit_YEAR, RequestsPerUnit: placeLimit}
				config.Descriptors = append(config.Descriptors, &pb.RateLimitDescriptor{Key: p.key, Value: value, RateLimit: limit})
			}
		}
		must.OK(t, m.Set("1", config))
		f, plain := startPlaces(t, "", "--xds-addr", m.Addr(), "--defaults", defaults(t))
		for _, p := range defaultPlaces {
			p.check(t, f, plain)
		}
	})
}

// startPlaces starts two replicas with blocks, and one without, on stores of their own.
func startPlaces(t *testing.T, rules string, args ...string) (f, plain *fleet) {
	t.Helper()
	args = append(args, patient...)
	store := storetest.Start(t)
	f = startSluices(t, store, direct(store)[:2], rules, suite.Patience, args...)
	store = storetest.Start(t)
	return f, startSluices(t, store, direct(store)[:1], rules, suite.Patience, append(args, "--store-blocks", "off")...)
}

// TestBlocksOffCommands sends requests with blocks: off one by one, after others had blocks. The
// store executes an INCRBY for each, as without blocks.
func TestBlocksOffCommands(t *testing.T) {
	t.Parallel()
	p := places[0]
	text := fmt.Sprintf("domain: d\ndescriptors: [{key: fixed, value: off, "+p.rule+"}, {key: fixed, value: auto, "+p.rule+"}]\n", ", blocks: off", "")
	f, plain := startPlaces(t, text)
	suite.Eventually(t, "a counter has blocks", func() bool {
		p.ask(t, f, 0, "auto")
		return f.decided(t, "block") > 100
	})
	suite.Eventually(t, "all unused hits are returned", func() bool { return f.account(t, 0).unused == 0 })
	calls := func(f *fleet) (n int) {
		for line := range strings.Lines(f.store.Must("INFO", "commandstats")) {
			if rest, ok := strings.CutPrefix(line, "cmdstat_incrby:calls="); ok {
				count, _, _ := strings.Cut(rest, ",")
				n, _ = strconv.Atoi(count)
			}
		}
		return n
	}
	const requests = 1000
	for name, f := range map[string]*fleet{"blocks": f, "no blocks": plain} {
		before := calls(f)
		for n := range requests {
			p.ask(t, f, n%len(f.sluices), "off")
		}
		if n := calls(f) - before; n != requests {
			t.Errorf("%s: %d commands for %d requests", name, n, requests)
		}
	}
}
