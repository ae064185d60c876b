package answer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// candidateRules have candidates of every algorithm, next to limits in every mode. Lines with
// shadow are the candidates.
const candidateRules = `
domain: d
descriptors:
  - key: a
    rate_limits:
      - {unit: minute, requests_per_unit: 5, shadow: true}
      - {unit: minute, requests_per_unit: 9, name: a}
      - {unit: second, requests_per_unit: 2, name: tight, shadow: true}
  - key: b
    quota_mode: true
    metadata: {p: 1}
    rate_limits:
      - {unit: minute, requests_per_unit: 6, name: b}
      - {unit: hour, requests_per_unit: 0, shadow: true}
    descriptors:
      - key: c
        shadow_mode: true
        detailed_metric: true
        rate_limits:
          - {unit: minute, requests_per_unit: 3}
          - {unit: minute, requests_per_unit: 2, algorithm: token_bucket, shadow: true}
  - key: "g*"
    rate_limits:
      - {unit: minute, requests_per_unit: 20, replaces: [{name: a}, {name: tight}]}
      - {unit: minute, requests_per_unit: 3, algorithm: sliding_window, shadow: true}
      - {unit: second, requests_per_unit: 1, algorithm: leaky_bucket, slack: 0, max_wait: 60s, shadow: true}
---
domain: e
all_or_nothing: true
descriptors:
  - key: a
    rate_limits:
      - {unit: minute, requests_per_unit: 9}
      - {unit: minute, requests_per_unit: 4, algorithm: sliding_log, shadow: true}
  - key: b
    rate_limits:
      - {unit: minute, requests_per_unit: 2, algorithm: leaky_bucket, slack: 0, max_wait: 60s}
      - {unit: minute, requests_per_unit: 1, shadow: true}
      - {unit: hour, requests_per_unit: 500}
`

// withoutCandidates removes the lines of candidates from rules.
func withoutCandidates(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "shadow: true") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestCandidatesChangeNoReply sends the same requests to rules with and without candidates. The
// replies are equal except for the hash of the rules, and have the same delay.
func TestCandidatesChangeNoReply(t *testing.T) {
	settings := Settings{
		NearLimitRatio: 0.8, DynamicMetadata: true, DecisionMetadata: true, RetryAfterHeader: true,
		ResponseHeaders: true, Headers: Headers{Limit: "l", Remaining: "r", Reset: "t"},
	}
	quota := settings
	quota.QuotaMode = true
	for name, newService := range map[string]func(rules string) *Service{
		"table":      func(rules string) *Service { return service(t, settings, rules) },
		"quota mode": func(rules string) *Service { return service(t, quota, rules) },
		"store": func(rules string) *Service {
			store := new(elsewhere)
			stored := settings
			stored.Decider, stored.Namer = store, descriptors.NewNamer("p:", nil)
			s := service(t, stored, rules)
			store.Table = s.table
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			with, without := newService(candidateRules), newService(withoutCandidates(candidateRules))
			var c, d Exchange
			now, delayed, denied := noon, 0, 0
			for n := range 5_000 {
				request := randomRequest(r)
				if request.GetDomain() == "" || len(request.GetDescriptors()) == 0 {
					continue
				}
				now += limiter.Time(r.Int64N(int64(2 * time.Second)))
				in := marshal(t, request)
				want, wantDelay, wantErr := without.Answer(now, time.Minute, &c, in)
				got, delay, err := with.Answer(now, time.Minute, &d, in)
				if err != nil || wantErr != nil {
					t.Fatal(err, wantErr)
				}
				got = bytes.ReplaceAll(got, []byte(with.Rules().Hash), []byte(without.Rules().Hash))
				if !bytes.Equal(got, want) || delay != wantDelay {
					var a, b rls.RateLimitResponse
					if err := proto.Unmarshal(got, &a); err != nil {
						t.Fatal(err)
					}
					if err := proto.Unmarshal(want, &b); err != nil {
						t.Fatal(err)
					}
					t.Fatalf("seed %d, request %d: with candidates %v after %v, without %v after %v\n%v", seed, n, &a, delay, &b, wantDelay, request)
				}
				if delay > 0 {
					delayed++
				}
				if c.OverLimit() {
					denied++
				}
			}
			if denied == 0 || delayed == 0 && name != "store" { // the store decides all at the same time
				t.Errorf("seed %d: %d denied and %d delayed, want some of each", seed, denied, delayed)
			}
		})
	}
}

// TestCandidatesCountLikeShadowRules compares the counters of a candidate with those of a rule in
// shadow mode with this limit only.
func TestCandidatesCountLikeShadowRules(t *testing.T) {
	for _, words := range []string{
		"unit: minute, requests_per_unit: 5",
		"unit: minute, requests_per_unit: 5, count_refused: false",
		"unit: minute, requests_per_unit: 5, algorithm: sliding_window",
		"unit: minute, requests_per_unit: 5, algorithm: sliding_log",
		"unit: minute, requests_per_unit: 5, algorithm: token_bucket, burst: 2",
		"unit: minute, requests_per_unit: 5, algorithm: leaky_bucket, max_wait: 20s",
	} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprint(words, together), func(t *testing.T) {
				settings := Settings{NearLimitRatio: 0.8}
				domain := fmt.Sprintf("{domain: d, all_or_nothing: %v, descriptors: [{key: k, ", together)
				combined := service(t, settings, domain+"rate_limits: [{unit: minute, requests_per_unit: 7}, {name: trial, shadow: true, "+words+"}]}]}")
				alone := service(t, settings, domain+"shadow_mode: true, rate_limit: {"+words+"}}]}")
				r := rand.New(rand.NewPCG(1, 2))
				now := noon
				for range 300 {
					now += limiter.Time(r.Int64N(int64(20 * time.Second)))
					in := marshal(t, &rls.RateLimitRequest{
						Domain: "d", HitsAddend: r.Uint32N(4),
						Descriptors: []*rlcommon.RateLimitDescriptor{{
							Entries:        []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")},
							IsNegativeHits: r.IntN(8) == 0,
						}},
					})
					for _, s := range []*Service{combined, alone} {
						if _, _, err := s.Answer(now, time.Minute, &Exchange{}, in); err != nil {
							t.Fatal(err)
						}
					}
				}
				got, want := countedOf(t, combined, "trial shadow"), countedOf(t, alone, "")
				if got != want || want.Shadow == 0 || want.Within == 0 || want.Shadow != want.Over {
					t.Errorf("the candidate counted %+v, alone it counts %+v", got, want)
				}
				if h := countedOf(t, combined, "7/minute"); h.Shadow != 0 || h.Over == 0 {
					t.Errorf("the active limit counted %+v", h)
				}
			})
		}
	}
}

// countedOf returns the metrics of the limits with the label.
func countedOf(t *testing.T, s *Service, label string) (h telemetry.Hits) {
	t.Helper()
	families, err := s.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		into := map[string]*uint64{
			"total_hits": &h.Total, "over_limit": &h.Over, "near_limit": &h.Near, "within_limit": &h.Within, "shadow_mode": &h.Shadow,
			"total_negative_hits": &h.Negative,
		}[strings.TrimPrefix(f.GetName(), "ratelimit_service_rate_limit_")]
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if into != nil && l.GetName() == "limit" && l.GetValue() == label {
					*into += uint64(m.GetCounter().GetValue())
				}
			}
		}
	}
	return h
}

// TestCandidateDelaysNoReply uses a candidate that would delay replies.
func TestCandidateDelaysNoReply(t *testing.T) {
	s := service(t, Settings{}, `{domain: d, descriptors: [{key: k, rate_limits: [{unit: minute, requests_per_unit: 7},
		{unit: minute, requests_per_unit: 1, algorithm: leaky_bucket, slack: 0, max_wait: 60s, shadow: true}]}]}`)
	in := marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")},
	}}})
	var c Exchange
	for range 2 {
		if _, delay, err := s.Answer(noon, time.Hour, &c, in); err != nil || delay != 0 {
			t.Fatalf("delayed by %v, error %v; want a reply at once", delay, err)
		}
	}
	if wait := c.plan.Batch.Decisions[1].Wait; wait != time.Minute {
		t.Errorf("the candidate would delay the second for %v, want a minute", wait)
	}
}

// elsewhere decides by a table, in another goroutine, before Decide returns.
type elsewhere struct{ *limiter.Table }

func (e *elsewhere) Decide(now limiter.Time, b *limiter.Batch, _ [][]byte, w limiter.Waiter) (bool, error) {
	decided := make(chan struct{})
	go func() {
		e.Table.Decide(now, b)
		w.Decided(nil)
		close(decided)
	}()
	<-decided
	return false, nil
}

func (e *elsewhere) Cancel(now limiter.Time, b *limiter.Batch, _ [][]byte) { e.Table.Cancel(now, b) }
func (*elsewhere) Up() bool                                                { return true }

func (*elsewhere) Reset(context.Context, limiter.Time, *limiter.Batch, [][]byte, int) (uint64, error) {
	return 0, nil
}
