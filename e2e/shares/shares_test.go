//go:build more

package shares_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/e2e/window"
	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

var sluiceBinary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, "../..", func(binary, _ string) { sluiceBinary = binary }))
}

// connections is the number of connections to a replica. A goroutine serves each.
const connections = 8

// service is one or more replicas.
type service struct {
	sluices []*sluice.Sluice
	clients []rlsv3.RateLimitServiceClient
}

// start starts a replica in memory, or several with a new store.
func start(t *testing.T, replicas int, domains []*domain, args ...string) *service {
	t.Helper()
	if time.Now().UTC().Hour() == 23 { // windows end at midnight
		window.AwaitHour(t)
	}
	var text strings.Builder
	for _, d := range domains {
		text.WriteString(d.yaml())
	}
	path := filepath.Join(t.TempDir(), "rows.csv")
	must.OK(t, os.WriteFile(path, []byte(table), 0o600))
	args = append(args, "--config", suite.WriteRules(t, text.String()), "--table", "rows="+path)
	args = append(args, "--decision-metadata", "--denied-by", "--retry-after-header")
	s := &service{sluices: suite.StartReplicas(t, sluice.Options{Binary: sluiceBinary, Args: args}, replicas)}
	for _, one := range s.sluices {
		for range connections {
			conn, err := grpc.NewClient(one.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
			must.OK(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			s.clients = append(s.clients, rlsv3.NewRateLimitServiceClient(conn))
		}
	}
	return s
}

// ask sends a request of a client.
func (s *service) ask(t *testing.T, replica, client int, domain string, calls []call) (a answer) {
	t.Helper()
	request := &rlsv3.RateLimitRequest{Domain: domain}
	for _, c := range calls {
		d := &commonv3.RateLimitDescriptor{
			Entries:        []*commonv3.RateLimitDescriptor_Entry{{Key: c.rule.key, Value: c.value}},
			HitsAddend:     wrapperspb.UInt64(uint64(max(c.hits, -c.hits))),
			IsNegativeHits: c.hits < 0,
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	response, err := s.clients[replica*connections+client%connections].ShouldRateLimit(t.Context(), request)
	if err != nil {
		t.Error(err)
		return answer{replies: make([]reply, len(calls))}
	}
	metadata := response.GetDynamicMetadata().GetFields()
	decisions := metadata["sluice"].GetStructValue().GetFields()["decisions"].GetListValue().GetValues()
	a.over = response.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT
	a.soft = metadata["soft"].GetStringValue()
	for i, status := range response.GetStatuses() {
		decision := decisions[i].GetStructValue().GetFields()
		a.replies = append(a.replies, reply{
			over:      status.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT,
			names:     []string{decision["name"].GetStringValue()},
			remaining: int(status.GetLimitRemaining()),
			charged:   int(decision["charged"].GetNumberValue()),
			later:     len(response.GetResponseHeadersToAdd()) > 0, // Retry-After
		})
	}
	return a
}

// differs returns how an answer differs from that of the model, or "".
func differs(got, want answer, calls []call) string {
	for i, w := range want.replies {
		g := got.replies[i]
		bad := !w.unknown && g.over != w.over || w.names != nil && !slices.Contains(w.names, g.names[0])
		bad = bad || w.remaining != anything && g.remaining != w.remaining
		if bad || calls[i].hits >= 0 && g.charged != w.charged {
			return fmt.Sprintf("descriptor %d", i)
		}
	}
	switch {
	case got.over != want.over:
		return "code"
	case want.soft != "?" && got.soft != want.soft:
		return "soft"
	case len(calls) == 1 && want.over && got.replies[0].later != want.replies[0].later:
		return "Retry-After"
	}
	return ""
}

func (c call) String() string {
	return fmt.Sprintf("%s=%s hits %d", c.rule.key, c.value, c.hits)
}

// rounds calls run with new replicas and random domains.
func rounds(t *testing.T, domains, scale int, run func(t *testing.T, s *service, all []*domain, round uint64)) {
	t.Helper()
	for name, replicas := range map[string]int{"memory": 1, "store": 3} {
		t.Run(name, func(t *testing.T) {
			for round := range uint64(max(1, effort.Level(t)/4-1)) {
				var all []*domain
				for i := range domains {
					all = append(all, randomDomain(rand.New(rand.NewPCG(round, uint64(i))), fmt.Sprint("d", i), scale))
				}
				if run(t, start(t, replicas, all), all, round); t.Failed() {
					t.Fatalf("round %d", round)
				}
			}
		})
	}
}

// TestOneAfterTheOther predicts each answer. Each of 64 clients has a domain of its own.
func TestOneAfterTheOther(t *testing.T) {
	rounds(t, 64, 1, func(t *testing.T, s *service, all []*domain, round uint64) {
		t.Helper()
		var clients sync.WaitGroup
		for i, d := range all {
			clients.Go(func() { s.compare(t, d, i, rand.New(rand.NewPCG(round, 1000+uint64(i)))) })
		}
		clients.Wait()
	})
}

// compare sends the requests of a client until an answer differs.
func (s *service) compare(t *testing.T, d *domain, client int, r *rand.Rand) {
	t.Helper()
	refunds, replicas := client%2 == 0, len(s.sluices)
	for n := range 160 {
		calls := d.randomRequest(r, refunds)
		replica := client % replicas // denials may be repeated for 1.1 s after a refund at another replica
		if !refunds {
			replica = r.IntN(replicas)
		}
		used := fmt.Sprint(d.used)
		want := d.answer(calls)
		got := s.ask(t, replica, client, d.name, calls)
		if bad := differs(got, want, calls); bad != "" {
			t.Errorf("request %d: %v: %s\ngot  %+v\nwant %+v\nused %s\n%s", n, calls, bad, got, want, used, d.yaml())
			return
		}
	}
	s.compareCounters(t, d, 5)
}

// compareCounters compares the used hits of the first tenants with those of the domain.
func (s *service) compareCounters(t *testing.T, d *domain, tenants int) {
	t.Helper()
	for n := range tenants * len(d.rules) {
		c := call{rule: d.rules[n/tenants], value: fmt.Sprint("t", n%tenants)}
		url := fmt.Sprintf("http://%s/counters?domain=%s&descriptor=%s=%s", s.sluices[0].Addr("debug"), d.name, c.rule.key, c.value)
		var answer struct {
			Counters []struct {
				Name           string
				Used, Capacity int
				Soft           bool
			}
		}
		must.OK(t, json.Unmarshal(suite.Get(t, url), &answer))
		for _, got := range answer.Counters {
			l := c.rule.limits[slices.IndexFunc(c.rule.limits, func(l limit) bool { return l.name == got.Name })]
			want := d.used[d.counter(c, l)]
			if got.Used < want || got.Used > want+d.lost(l) || got.Used > got.Capacity && !got.Soft {
				t.Errorf("%s %v: %+v, want %d used\n%s", d.name, c, got, want, d.yaml())
			}
		}
	}
}
