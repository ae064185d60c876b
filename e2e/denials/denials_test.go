// Package denials compares the replies to denied requests with a model that was written from the
// documentation alone, and has real clients read them.
package denials_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
)

// TestModel sends random requests to services with random rules and settings, at simulated times,
// and compares each reply with the model. SLUICE_SEED=n repeats the run of a seed.
func TestModel(t *testing.T) {
	t.Parallel()
	from, to := seeds(t)
	seen := map[string]int{}
	for seed := from; seed <= to && !t.Failed(); seed++ {
		runModel(t, seed, seen)
	}
	for _, event := range []string{"denial", "body", "JSON", "hidden only", "quotas", "lease returned", "gRPC", "long message", "shadow", "passed"} {
		if seen[event] == 0 && to-from > 90 { // fewer seeds lack some kinds
			t.Errorf("no reply of the kind %q in %v", event, seen)
		}
	}
	t.Log(seen)
}

// seeds returns the first and the last seed.
func seeds(t *testing.T) (from, to uint64) {
	t.Helper()
	text := os.Getenv("SLUICE_SEED")
	if text == "" {
		return 1, uint64(effort.Times(t, 10))
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	must.OK(t, err)
	return seed, seed
}

func runModel(t *testing.T, seed uint64, seen map[string]int) {
	t.Helper()
	now := int64(servertest.Noon) + int64(seed%86_400_000)*int64(977*time.Millisecond)
	g := generator{rand.New(rand.NewPCG(seed, seed))}
	quotas := g.chance(8)
	docs := g.rules(quotas)
	settings := answer.Settings{
		ShadowMode: g.chance(12), QuotaMode: quotas, RetryAfterHeader: g.chance(2), DeniedBy: g.chance(2), GRPCDenials: g.chance(4),
		RateLimitHeaders: pick(g, "none", "structured"), DeniedResponse: pick(g, append(presets, "")...),
	}
	text := ruleFile(t, docs)
	service := servertest.Service(t, settings, text)
	m := &model{settings: settings, counters: map[string]*counter{}}
	held := map[item]string{} // leases that can be returned, and their domains
	for n := range 60 {
		now += int64(pick(g, 0, 0, time.Millisecond, 250*time.Millisecond, 999*time.Millisecond, 7*time.Second, 70*time.Second, 37*time.Minute, 5*time.Hour))
		c := g.call(docs, held)
		want := m.answer(now, c)
		reply := ask(t, service, now, c)
		if diff := compare(c, want, reply); diff != "" {
			var descriptors []string
			for _, i := range c.items {
				line, _ := json.Marshal(i.rule)
				descriptors = append(descriptors, fmt.Sprintf("%q, %d hits, lease %d: %s", i.value, i.hits, i.returns, line))
			}
			t.Fatalf("SLUICE_SEED=%d, request %d at %v: %s\ngot %v\nto a request with\n%s\nin %q, all_or_nothing %v, denied_response %+v\nsettings %+v", seed, n, time.Unix(0, now).UTC(), diff, reply,
				strings.Join(descriptors, "\n"), c.doc.Domain, c.doc.AllOrNothing, c.doc.Response, settings)
		}
		for name, v := range reply.GetDynamicMetadata().GetFields() {
			for _, i := range c.items {
				if i.rule == nil || i.returns != 0 {
					continue
				}
				if at := slices.IndexFunc(i.rule.all(), func(l *limit) bool { return l.Algorithm == "concurrency" && l.Name == name }); at >= 0 {
					held[item{rule: i.rule, value: i.value, returns: int64(v.GetNumberValue()), granted: now, limit: at}] = c.doc.Domain
				}
			}
		}
		m.count(seen, c, want)
	}
}

func (m *model) count(seen map[string]int, c *call, p *prediction) {
	for event, is := range map[string]bool{
		"denial": p.over, "passed": !p.over, "body": p.body != "", "JSON": p.json, "shadow": m.settings.ShadowMode, "gRPC": p.grpc, "long message": p.grpc && encodedBytes(p.body) > 2048,
		"lease returned": slices.ContainsFunc(c.items, func(i item) bool { return i.returns != 0 }) && p.over,
		"hidden only":    p.over && p.body == "" && p.headers["retry-after-ms"] != "",
		"quotas":         p.over && !slices.ContainsFunc(c.items, func(i item) bool { return i.rule == nil || !i.rule.Quota }) && len(c.items) > 1,
	} {
		if is {
			seen[event]++
		}
	}
}

// call returns a random request. Its descriptors use different rules, so they have no counter in
// common.
func (g generator) call(docs []*document, held map[item]string) *call {
	c := &call{doc: pick(g, docs...)}
	if leases := slices.SortedFunc(maps.Keys(held), compareItems); len(leases) > 0 && g.chance(3) {
		lease := pick(g, leases...)
		if held[lease] == c.doc.Domain {
			delete(held, lease)
			c.items = append(c.items, lease)
		}
	}
	for _, i := range g.Perm(len(c.doc.Rules))[:1+g.IntN(4)] {
		r := c.doc.Rules[i]
		if r.Below != nil {
			r = r.Below[0]
		}
		if slices.ContainsFunc(c.items, func(i item) bool { return i.rule == r }) {
			continue
		}
		value := pick(g, "v1", "v2", "v\r\nx-injected: 1", "v{name}", "v\u2028")
		if r.Value != "" && !strings.HasSuffix(r.Value, "*") {
			value = r.Value
		}
		c.items = append(c.items, item{rule: r, value: value, hits: pick[int64](g, 1, 1, 1, 1, 1, 2, 3, 0)})
	}
	if g.chance(6) {
		c.items = append(c.items, item{value: "unknown", hits: 1})
	}
	return c
}

// compareItems orders leases independently of their numbers, which are random.
func compareItems(a, b item) int {
	return cmp.Or(int(a.granted-b.granted), cmp.Compare(a.rule.Key, b.rule.Key), cmp.Compare(a.value, b.value), a.limit-b.limit)
}

func ask(t *testing.T, service *answer.Service, now int64, c *call) *rls.RateLimitResponse {
	t.Helper()
	encoded, _, err := service.Answer(limiter.Time(now), time.Minute, new(answer.Exchange), servertest.Marshal(t, request(c)))
	must.OK(t, err)
	reply := new(rls.RateLimitResponse)
	must.OK(t, proto.Unmarshal(encoded, reply))
	return reply
}

// request returns the message of a call.
func request(c *call) *rls.RateLimitRequest {
	req := &rls.RateLimitRequest{Domain: c.doc.Domain}
	for _, i := range c.items {
		d := &rlcommon.RateLimitDescriptor{}
		if i.hits != 1 {
			d.HitsAddend = wrapperspb.UInt64(uint64(i.hits))
		}
		if i.returns != 0 {
			d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(uint64(i.returns)), true
		}
		key := "unknown"
		if i.rule != nil {
			key = i.rule.Key
			if i.rule.parent != "" {
				d.Entries = append(d.Entries, servertest.Entry(i.rule.parent, "any"))
			}
		}
		d.Entries = append(d.Entries, servertest.Entry(key, i.value))
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// compare returns the differences between a reply and its prediction.
func compare(c *call, want *prediction, reply *rls.RateLimitResponse) string {
	got := &prediction{over: reply.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT, headers: map[string]string{}, json: want.json, wait: want.wait, never: want.never}
	details := ""
	for _, h := range reply.GetResponseHeadersToAdd() {
		name := strings.ToLower(h.GetKey())
		if _, twice := got.headers[name]; twice {
			return "header " + name + " is given twice"
		}
		if strings.ContainsFunc(h.GetValue(), unicode.IsControl) || len(h.GetRawValue()) > 0 || len(h.GetKey()) == 0 {
			return fmt.Sprintf("header %q has control characters", h)
		}
		if name == "grpc-status-details-bin" {
			details = h.GetValue()
			continue
		}
		got.headers[name] = h.GetValue()
	}
	got.body, got.grpc = string(reply.GetRawBody()), got.headers["grpc-status"] != ""
	if long := encodedBytes(got.body) > 2048; (details == "") != (long || !want.grpc || want.never) {
		return "grpc-status-details-bin is " + details
	}
	if diff := checkDetails(details, got.body, want.wait); details != "" && diff != "" {
		return diff
	}
	for _, name := range slices.Sorted(maps.Keys(reply.GetDynamicMetadata().GetFields())) {
		if name == "denied_by" {
			got.deniedBy = reply.GetDynamicMetadata().GetFields()[name].GetStringValue()
			continue
		}
		got.leases = append(got.leases, name)
	}
	slices.Sort(want.leases)
	if len(reply.GetRequestHeadersToAdd()) > 0 {
		return "headers are added to the request"
	}
	for i, s := range reply.GetStatuses() {
		visible := func(l *limit) bool {
			return !l.Hidden && !l.Candidate && l.N == int64(s.GetCurrentLimit().GetRequestsPerUnit())
		}
		if s.GetCurrentLimit() != nil && !slices.ContainsFunc(c.items[i].rule.all(), visible) {
			return fmt.Sprintf("status %d has a limit that clients must not know", i)
		}
	}
	same := gocmp.Comparer(func(a, b string) bool { return a == b || want.json && gocmp.Equal(decode(a), decode(b)) })
	return gocmp.Diff(want, got, gocmp.AllowUnexported(prediction{}), gocmp.FilterPath(func(p gocmp.Path) bool { return p.String() == "body" }, same))
}

// decode returns decoded JSON, or text that is not JSON.
func decode(text string) (v any) {
	if json.Unmarshal([]byte(text), &v) != nil {
		return fmt.Sprintf("not JSON: %q", text)
	}
	return v
}

// encodedBytes returns the length of a text in grpc-message, in which each byte outside printable
// ASCII is %XX.
func encodedBytes(text string) (n int) {
	for _, c := range []byte(text) {
		if n++; c < ' ' || c > '~' || c == '%' {
			n += 2
		}
	}
	return n
}

// checkDetails compares a google.rpc.Status with the expected message and delay.
func checkDetails(value, message string, wait time.Duration) string {
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
	var s status.Status
	if err == nil {
		err = proto.Unmarshal(text, &s)
	}
	var info errdetails.RetryInfo
	if err == nil && len(s.GetDetails()) == 1 {
		err = s.GetDetails()[0].UnmarshalTo(&info)
	}
	// A replica knows the store's clock to a microsecond.
	if got := info.GetRetryDelay().AsDuration().Round(time.Millisecond); err != nil || s.GetCode() != 8 || s.GetMessage() != message || got != wait.Round(time.Millisecond) {
		return fmt.Sprintf("details are %v, %v, %v; want the message and a delay of %v", &s, &info, err, wait)
	}
	return ""
}
