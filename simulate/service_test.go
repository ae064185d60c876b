package simulate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// allFields are rules with all algorithms, groups and modes.
const allFields = `
domain: every
descriptors:
  - { key: fixed, rate_limit: { unit: second, requests_per_unit: 3 } }
  - { key: window, rate_limit: { unit: second, requests_per_unit: 4, algorithm: sliding_window } }
  - { key: log, rate_limit: { unit: second, requests_per_unit: 4, algorithm: sliding_log } }
  - { key: token, rate_limit: { unit: second, requests_per_unit: 4, algorithm: token_bucket, burst: 6 } }
  - { key: leaky, rate_limit: { unit: second, requests_per_unit: 5, algorithm: leaky_bucket, slack: 1, max_wait: 300ms } }
  - { key: debt, rate_limit: { unit: second, requests_per_unit: 4, algorithm: token_bucket, count_refused: true } }
  - { key: none, rate_limit: { unit: second, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 2 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 2 } }
  - { key: other, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 4 } }
  - key: share
    charge: first_with_room
    rate_limits:
      - { unit: second, requests_per_unit: 1 }
      - { unit: second, requests_per_unit: 3, algorithm: sliding_log, counter: pool }
  - key: list
    rate_limits:
      - { unit: second, requests_per_unit: 3 }
      - { unit: second, requests_per_unit: 1, shadow: true }
      - { unit: minute, requests_per_unit: 40, algorithm: token_bucket }
`

// TestMatchesService compares the simulation of random requests with the service's replies.
// SLUICE_SEED sets the seed.
func TestMatchesService(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SLUICE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SLUICE_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, rules := range []string{allFields, strings.Replace(allFields, "domain: every", "domain: every\nall_or_nothing: true", 1)} {
		compareDecisions(t, random, rules)
	}
}

func compareDecisions(t *testing.T, random *rand.Rand, rules string) {
	t.Helper()
	const requests = 20_000
	const patience = 200 * time.Millisecond
	metrics, err := telemetry.New(telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := limiter.New(limiter.Options{})
	if err != nil {
		t.Fatal(err)
	}
	service := answer.NewService(answer.Settings{Bounds: answer.Bounds{MessageBytes: 1 << 20, Descriptors: 1000, Entries: 64, KeyBytes: 1024}}, table, metrics)
	if err := service.SetRules(limiter.Time(noon.UnixNano()), compile(t, rules)); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	var want []bool
	var call answer.Exchange
	at := noon.UnixNano()
	denied := 0
	for range requests {
		at += random.Int64N(int64(40 * time.Millisecond))
		message, line := randomRequest(random, at)
		b, err := proto.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := service.Answer(limiter.Time(at), patience, &call, b); err != nil {
			t.Fatal(err)
		}
		want = append(want, call.OverLimit())
		if call.OverLimit() {
			denied++
		}
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(text)
		log.WriteByte('\n')
	}
	n := 0
	report, err := Run(t.Context(), Options{
		Logs: []accesslog.Log{logOf("log", log.String())}, Rules: compile(t, rules), Timeout: patience, Now: now,
		OnDecision: func(at limiter.Time, _, denied bool) {
			if n < len(want) && denied != want[n] {
				t.Errorf("request %d at %d: denied is %v, want %v", n, at, denied, want[n])
			}
			n++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n != requests || report.Rules.Denied != uint64(denied) || denied < requests/10 || denied > requests*9/10 {
		t.Errorf("%d requests, %d denied, want %d, %d", n, report.Rules.Denied, requests, denied)
	}
}

// requestLine is a line of the format requests.
type requestLine struct {
	Time        int64            `json:"time"`
	Domain      string           `json:"domain"`
	Hits        uint32           `json:"hits,omitempty"`
	Descriptors []descriptorLine `json:"descriptors"`
}

type descriptorLine struct {
	Entries [][2]string `json:"entries"`
	Hits    *uint64     `json:"hits,omitempty"`
	Refund  bool        `json:"refund,omitempty"`
	Limit   string      `json:"limit,omitempty"`
}

var everyKey = []string{"fixed", "window", "log", "token", "leaky", "debt", "none", "free", "shadow", "quota", "other", "list", "share", "unknown"}

// randomRequest returns the same request as a message and as a line.
func randomRequest(random *rand.Rand, at int64) (*rls.RateLimitRequest, requestLine) {
	m, l := &rls.RateLimitRequest{Domain: "every"}, requestLine{Time: at, Domain: "every"}
	if random.IntN(10) == 0 {
		m.HitsAddend = uint32(random.IntN(4))
		l.Hits = m.GetHitsAddend()
	}
	for range 1 + random.IntN(3) {
		key, value := everyKey[random.IntN(len(everyKey))], strconv.Itoa(random.IntN(4))
		if random.IntN(20) == 0 {
			key = "none"
		} else if key == "none" {
			key = "fixed"
		}
		dm := &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
		dl := descriptorLine{Entries: [][2]string{{key, value}}}
		if random.IntN(5) == 0 {
			hits := uint64(random.IntN(4))
			dm.HitsAddend, dl.Hits = wrapperspb.UInt64(hits), &hits
			if random.IntN(3) == 0 {
				dm.IsNegativeHits, dl.Refund = true, true
			}
		}
		if random.IntN(10) == 0 {
			n := uint32(random.IntN(6))
			dm.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: typev3.RateLimitUnit_SECOND}
			dl.Limit = fmt.Sprintf("%d/second", n)
		}
		m.Descriptors, l.Descriptors = append(m.Descriptors, dm), append(l.Descriptors, dl)
	}
	return m, l
}
