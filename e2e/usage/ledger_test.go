//go:build more

package usage_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
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

const root = "../.."

var sluiceBinary string

func TestMain(m *testing.M) {
	os.Exit(suite.Main(m, root, func(binary, _ string) { sluiceBinary = binary }))
}

// eightYears is a window that does not end during a test.
const (
	eightYears = 8 * 365 * 24 * time.Hour
	eight      = "unit: year, unit_multiplier: 8, "
)

// limit is a limit of a rule.
type limit struct {
	key, kind, name string
	n, burst        int
	fields          string
}

// limits are the limits of each domain, in the order of their keys.
var limits = []limit{
	{"fixed", "fixed", "fixed", 300, 0, eight + "count_refused: %v"},
	{"calendar", "calendar", "calendar", 200, 0, "unit: year, calendar: true, count_refused: false"},
	{"log", "log", "", 150, 0, eight + "algorithm: sliding_log"},
	{"list", "sliding", "sliding", 250, 0, eight + "algorithm: sliding_window, sub_windows: 4"},
	{"list", "soft", "included", 90, 0, eight + "soft: true"},
	{"list", "hidden", "secret", 400, 0, eight + "hidden: true"},
	{"list", "bucket", "bucket", 100, 220, eight + "algorithm: token_bucket, burst: 220"},
	{"list", "hidden", "trial", 10, 0, eight + "shadow: true, algorithm: sliding_log"},
	{"leaky", "bucket", "leaky", 50, 150, eight + "algorithm: leaky_bucket, slack: 149"},
	{"tabled", "sliding", "tabled", 100, 0, eight + "algorithm: sliding_window, sub_windows: 4, table: rows"},
	{"streams", "permits", "streams", 5, 0, eight + "algorithm: concurrency"},
}

// rows are numbers of values, -1 for unlimited.
var rows = map[string]int{"v0": -1, "v1": 40, "v2": 0}

func rulesOf(limits []limit, domains int, countRefused bool) string {
	var text strings.Builder
	for d := range domains {
		fmt.Fprintf(&text, "---\ndomain: d%d\ndescriptors:\n", d)
		key := ""
		for _, l := range limits {
			field, indent := "rate_limit:", "      "
			if l.key == "list" {
				field, indent = "rate_limits:", "    - "
			}
			if l.key != key {
				fmt.Fprintf(&text, "  - key: %s\n    %s\n", l.key, field)
			}
			key = l.key
			fields := strings.ReplaceAll(l.fields, "%v", strconv.FormatBool(countRefused))
			fmt.Fprintf(&text, "%s{ name: %q, requests_per_unit: %d, %s }\n", indent, l.name, l.n, fields)
		}
	}
	return text.String()
}

// item is an item of limits in the reply of /usage.
type item struct {
	Name            string
	Limit           int
	Window          string
	Burst           int
	Used, Remaining int
	Resets          float64    `json:"resets_in_seconds"`
	At              *time.Time `json:"resets_at"`
	Soft            bool
	Held            int
}

// service is one or more replicas.
type service struct {
	sluices []*sluice.Sluice
	clients []rlsv3.RateLimitServiceClient
}

func start(t *testing.T, replicas int, rules string, args ...string) *service {
	t.Helper()
	if time.Now().UTC().Hour() == 23 { // windows end at midnight
		window.AwaitHour(t)
	}
	path := filepath.Join(t.TempDir(), "rows.csv")
	must.OK(t, os.WriteFile(path, []byte("tabled,requests_per_unit,unlimited\nv0,,true\nv1,40,\nv2,0,\n"), 0o600))
	args = append(args, "--config", suite.WriteRules(t, rules), "--usage", "--table", "rows="+path)
	s := &service{sluices: suite.StartReplicas(t, sluice.Options{Binary: sluiceBinary, Args: args}, replicas)}
	for _, one := range s.sluices {
		conn, err := grpc.NewClient(one.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		must.OK(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		s.clients = append(s.clients, rlsv3.NewRateLimitServiceClient(conn))
	}
	return s
}

// get requests a path with the given headers in the form name: value.
func get(t *testing.T, addr, path string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
	must.OK(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	reply, err := http.DefaultClient.Do(r)
	must.OK(t, err)
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	must.OK(t, err)
	return reply.StatusCode, string(body)
}

// ledger has the used hits of a domain by counter, and its leases.
type ledger struct {
	domain string
	mode   string
	limits []limit
	used   map[string]int
	leases map[string][]uint64
}

// usage returns the expected limits of descriptors in the form key=value.
func (g *ledger) usage(descriptors []string) (items []item) {
	var soft []item
	for _, d := range descriptors {
		for _, l := range g.limits {
			key, value, _ := strings.Cut(d, "=")
			if n, ok := rows[value]; ok && l.name == "tabled" {
				l.n = n
			}
			if l.key != key || l.kind == "hidden" || l.n < 0 {
				continue
			}
			i := item{Name: l.name, Limit: l.n, Window: "8year", Burst: l.burst, Used: g.used[d+l.name], Soft: l.kind == "soft"}
			i.Remaining = max(0, max(l.n, l.burst)-i.Used)
			now := time.Now().UTC()
			untilNext := func(w time.Duration) float64 { return (w - time.Duration(now.UnixNano())%w).Seconds() }
			switch {
			case l.kind == "permits":
				i.Window, i.Held = "", i.Used
			case i.Used == 0:
			case l.kind == "sliding":
				i.Resets = untilNext(eightYears/4) + eightYears.Seconds()
			case l.kind == "log":
				i.Resets = eightYears.Seconds()
			case l.kind == "bucket":
				i.Resets = float64(i.Used) * eightYears.Seconds() / float64(l.n)
			case l.kind == "calendar":
				i.Resets = time.Date(now.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).Sub(now).Seconds()
			default:
				i.Resets = untilNext(eightYears)
			}
			if l.kind == "calendar" {
				i.Window = "year"
			}
			if i.Soft {
				soft = append(soft, i)
			} else {
				items = append(items, i)
			}
		}
	}
	return append(items, soft...)
}

// send sends a request with one descriptor, and adds its hits to the ledger.
func (g *ledger) send(t *testing.T, client rlsv3.RateLimitServiceClient, d string, hits int) {
	t.Helper()
	key, value, _ := strings.Cut(d, "=")
	one := &commonv3.RateLimitDescriptor{
		Entries:        []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: value}},
		HitsAddend:     wrapperspb.UInt64(uint64(max(hits, -hits))),
		IsNegativeHits: hits < 0,
	}
	switch leases := g.leases[d]; {
	case key == "streams" && hits > 0:
		one.HitsAddend = nil
	case key == "streams" && len(leases) == 0:
		return
	case key == "streams":
		one.HitsAddend, one.IsNegativeHits = wrapperspb.UInt64(leases[0]), true
		g.leases[d] = leases[1:]
	}
	reply, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: g.domain, Descriptors: []*commonv3.RateLimitDescriptor{one}})
	must.OK(t, err)
	passed := reply.GetOverallCode() == rlsv3.RateLimitResponse_OK
	if lease := reply.GetDynamicMetadata().GetFields()["streams"]; lease != nil {
		g.leases[d] = append(g.leases[d], uint64(lease.GetNumberValue()))
	}
	for _, l := range g.limits {
		switch {
		case l.key != key:
		case key == "streams":
			g.used[d+l.name] = len(g.leases[d])
		case passed, l.kind == "soft", strings.Contains(l.fields, "%v") && g.mode != "blocks":
			g.used[d+l.name] = max(0, g.used[d+l.name]+hits)
		}
	}
}

// differs returns how a reply differs from the ledger, or "". Unused hits of blocks count in addition.
func (g *ledger) differs(got, want []item) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d limits, want %d", len(got), len(want))
	}
	for i, w := range want {
		one := got[i]
		if g.mode == "blocks" && one.Used >= w.Used {
			w.Used, w.Remaining, w.Resets = one.Used, one.Remaining, one.Resets
		}
		far := max(one.Resets-w.Resets, w.Resets-one.Resets) > 3600
		if far || (one.At == nil) != (w.Resets == 0) || one.At != nil && (time.Until(*one.At).Seconds()-one.Resets) > 60 {
			return fmt.Sprintf("%s resets in %v s, at %v, want in %v", one.Name, one.Resets, one.At, w.Resets)
		}
		if one.At, one.Resets, w.Resets = nil, 0, 0; one != w {
			return fmt.Sprintf("limit %d is %+v, want %+v", i, one, w)
		}
	}
	return ""
}

// TestUsageIsTheLedger compares /usage with the hits of each of 16 clients, which have a domain each.
func TestUsageIsTheLedger(t *testing.T) {
	for mode, replicas := range map[string]int{"memory": 1, "store": 2, "blocks": 2} {
		t.Run(mode, func(t *testing.T) {
			args := []string(nil)
			if mode == "blocks" {
				args = []string{"--store-blocks", "auto"}
			}
			s := start(t, replicas, rulesOf(limits, 16, mode != "blocks"), args...)
			var clients sync.WaitGroup
			for i := range 16 {
				clients.Go(func() {
					r := rand.New(rand.NewPCG(1, uint64(i)))
					g := &ledger{fmt.Sprint("d", i), mode, limits, map[string]int{}, map[string][]uint64{}}
					for n := range effort.Times(t, 20) {
						one := func() string {
							return limits[r.IntN(len(limits))].key + "=" + []string{"v0", "v1", "v2", "v3", "v3", "v3", "v3", "v3"}[r.IntN(8)]
						}
						d, hits, asked := one(), 1+r.IntN(60), []string{one()}
						if r.IntN(4) == 0 {
							hits = -r.IntN(60)
						}
						if mode == "blocks" {
							hits = max(0, hits) // a refund could take unused hits of a block
						}
						g.send(t, s.clients[r.IntN(replicas)], d, hits)
						if asked[0] != d {
							asked = append(asked, d)
						}
						headers := []string{"x-sluice-domain: " + g.domain}
						for _, a := range asked {
							headers = append(headers, "x-sluice-descriptor: "+a)
						}
						status, body := get(t, s.sluices[r.IntN(replicas)].Addr("http"), "/usage", headers...)
						var got struct{ Limits []item }
						if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
							t.Errorf("%s: %d %s", headers, status, body)
							return
						}
						if bad := g.differs(got.Limits, g.usage(asked)); bad != "" {
							t.Errorf("%s, request %d, after %d hits of %v: %v: %s\n%s\nwant %+v", g.domain, n, hits, d, asked, bad, body, g.usage(asked))
							return
						}
					}
				})
			}
			clients.Wait()
		})
	}
}
