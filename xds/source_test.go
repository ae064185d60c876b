package xds_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a running source and records its calls.
type client struct {
	t       *testing.T
	updates chan source.Update
	answers chan bool
	up      chan struct{}
	down    chan error
	ignored chan string
	stop    func()
}

// follow runs a source with short delays until the test ends.
func follow(t *testing.T, target string, opt xds.Options) *client {
	t.Helper()
	c := &client{
		t: t, updates: make(chan source.Update, 100), answers: make(chan bool, 1000),
		up: make(chan struct{}, 100), down: make(chan error, 1000), ignored: make(chan string, 100),
	}
	opt.Target = target
	opt.NodeID = cmp.Or(opt.NodeID, "default")
	opt.RetryInterval = cmp.Or(opt.RetryInterval, 10*time.Millisecond)
	opt.MaxMessageBytes = cmp.Or(opt.MaxMessageBytes, 16<<20)
	opt.Backoff = xds.Backoff{Initial: 10 * time.Millisecond, Max: 10 * time.Millisecond}
	load := opt.OnLoad
	opt.OnLoad = func(u source.Update) error {
		c.updates <- u
		if load != nil {
			return load(u)
		}
		return nil
	}
	opt.OnAnswered = func(ack bool) { c.answers <- ack }
	opt.OnConnected = func() { c.up <- struct{}{} }
	opt.OnDisconnected = func(err error, _ time.Duration) { c.down <- err }
	opt.OnIgnored = func(url string) { c.ignored <- url }
	s, err := xds.NewSource(opt)
	must.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	c.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(c.stop)
	return c
}

// receive returns the next element.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	return <-from
}

// dump returns the rules of an update as text. The update must have rules.
func (c *client) dump(u source.Update) string {
	c.t.Helper()
	if u.Set == nil {
		c.t.Fatalf("update is %v, want rules", u.Err)
	}
	var b strings.Builder
	must.OK(c.t, u.Set.Dump(&b))
	return b.String()
}

func start(t *testing.T, o adstest.Options) *adstest.Server {
	t.Helper()
	s, err := adstest.Start(o)
	must.OK(t, err)
	t.Cleanup(s.Stop)
	return s
}

func set(t *testing.T, s *adstest.Server, version string, resources ...*pb.RateLimitConfig) {
	t.Helper()
	must.OK(t, s.Set(version, resources...))
}

func wait(t *testing.T, s *adstest.Server, match func(adstest.Request) bool) adstest.Request {
	t.Helper()
	r, err := s.Wait(t.Context(), match)
	must.OK(t, err)
	return r
}

// domain returns a resource with one rule, which limits each user to perMinute.
func domain(name string, perMinute uint32) *pb.RateLimitConfig {
	return &pb.RateLimitConfig{Name: name, Domain: name, Descriptors: []*pb.RateLimitDescriptor{{
		Key: "user", RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_MINUTE, RequestsPerUnit: perMinute},
	}}}
}

func line(name string, perMinute uint32) string {
	return fmt.Sprintf("%s.user: unit=MINUTE requests_per_unit=%d, shadow_mode: false, quota_mode: false\n", name, perMinute)
}

func TestFollowsServer(t *testing.T) {
	s := start(t, adstest.Options{})
	set(t, s, "1", domain("a", 5), domain("b", 6))
	c := follow(t, s.Addr(), xds.Options{})
	if got, want := c.dump(receive(t, c.updates)), line("a", 5)+line("b", 6); got != want {
		t.Errorf("the first rules are\n%swant\n%s", got, want)
	}
	wait(t, s, adstest.Acked("1"))

	set(t, s, "2", domain("a", 7), domain("b", 6))
	if got, want := c.dump(receive(t, c.updates)), line("a", 7)+line("b", 6); got != want {
		t.Errorf("updated rules are\n%swant\n%s", got, want)
	}
	wait(t, s, adstest.Acked("2"))

	set(t, s, "3", domain("b", 6))
	if got, want := c.dump(receive(t, c.updates)), line("b", 6); got != want {
		t.Errorf("rules without the domain a are\n%swant\n%s", got, want)
	}
	set(t, s, "4")
	if u := receive(t, c.updates); u.Set == nil || !u.Set.Empty() {
		t.Errorf("update without resources is %+v, want an empty set", u)
	}
	wait(t, s, adstest.Acked("4"))
}

func TestRejectsWholeResponse(t *testing.T) {
	s := start(t, adstest.Options{})
	set(t, s, "1", domain("a", 5))
	c := follow(t, s.Addr(), xds.Options{})
	first := receive(t, c.updates)
	wait(t, s, adstest.Acked("1"))

	bad := domain("b", 6)
	bad.Name = "listener-b"
	bad.Descriptors[0].RateLimit.Unit = pb.RateLimitUnit_UNKNOWN
	bad.Descriptors = append(bad.Descriptors,
		&pb.RateLimitDescriptor{Value: "x"},
		&pb.RateLimitDescriptor{Key: "k", RateLimit: &pb.RateLimitPolicy{Unlimited: true, Unit: pb.RateLimitUnit_WEEK}},
		&pb.RateLimitDescriptor{Key: "r", RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_DAY, Replaces: []*pb.RateLimitReplace{{}}}},
		&pb.RateLimitDescriptor{Key: "r"},
	)
	set(t, s, "2", domain("a", 7), bad, domain("c", 8), &pb.RateLimitConfig{Name: "second-c", Domain: "c"}, &pb.RateLimitConfig{Name: "nameless"})
	want := []string{
		`xds:listener-b: error: domain "b" > key "user" > rate_limit: unknown unit 0; allowed are second, minute, hour, day, week, month, year`,
		`xds:listener-b: error: domain "b" > key "" value "x": the key is missing or empty; every descriptor needs one`,
		`xds:listener-b: error: domain "b" > key "k" > rate_limit: unlimited excludes the unit WEEK; remove one of them`,
		`xds:listener-b: error: domain "b" > key "r" > rate_limit: an item of replaces has no name; add the name of the limit to replace`,
		`xds:listener-b: error: domain "b" > key "r": duplicate key and value on this level; first at xds:listener-b`,
		`xds:nameless: error: the domain is empty; every configuration must name its domain`,
		`xds:second-c: error: domain "c": duplicate domain, first at xds:c; merge the two, or set --merge-domains`,
	}
	slices.Sort(want)
	check := func(what, text string) {
		t.Helper()
		got := strings.Split(text, "\n")
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s is\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	u := receive(t, c.updates)
	if u.Set != nil || u.Err == nil {
		t.Fatalf("update is %+v, want an error", u)
	}
	check("the error", u.Err.Error())
	nack := wait(t, s, adstest.Rejected)
	check("the NACK", nack.GetErrorDetail().GetMessage())
	if nack.GetVersionInfo() != "1" || nack.GetResponseNonce() == "" {
		t.Errorf("NACK has version %q and nonce %q, want the active version and a nonce", nack.GetVersionInfo(), nack.GetResponseNonce())
	}
	if got, want := c.dump(first), line("a", 5); got != want {
		t.Errorf("the active rules are now %s, want %s", got, want)
	}

	// Back to the active rules: the same Set again.
	set(t, s, "3", domain("a", 5))
	if u := receive(t, c.updates); u.Set != first.Set {
		t.Errorf("restored update is %+v, want the active set", u)
	}
	wait(t, s, adstest.Acked("3"))
}

// TestServerRestarts stops the server and starts another on its address, whose versions start from
// the beginning.
func TestServerRestarts(t *testing.T) {
	s := start(t, adstest.Options{})
	set(t, s, "1", domain("a", 5))
	c := follow(t, s.Addr(), xds.Options{})
	receive(t, c.up)
	receive(t, c.updates)
	wait(t, s, adstest.Acked("1"))
	s.Stop()
	if err := receive(t, c.down); err == nil {
		t.Error("the stream ended without an error")
	}

	s = start(t, adstest.Options{Addr: s.Addr()})
	first := wait(t, s, func(adstest.Request) bool { return true })
	if first.GetVersionInfo() != "1" || first.GetResponseNonce() != "" {
		t.Errorf("first request to the new server is %v, want version 1 and no nonce", first)
	}
	set(t, s, "0", domain("a", 6))
	if got, want := c.dump(receive(t, c.updates)), line("a", 6); got != want {
		t.Errorf("rules of the new server are %s, want %s", got, want)
	}
	wait(t, s, adstest.Acked("0"))
}

func TestServerAbsentAtStart(t *testing.T) {
	s := start(t, adstest.Options{})
	s.Stop()
	c := follow(t, s.Addr(), xds.Options{})
	if err := receive(t, c.down); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("the failure is %v, want a refused connection", err)
	}
	s = start(t, adstest.Options{Addr: s.Addr()})
	set(t, s, "1", domain("a", 5))
	receive(t, c.updates)
	wait(t, s, adstest.Acked("1"))
}

func TestManyDescriptors(t *testing.T) {
	many := &pb.RateLimitConfig{Name: "many", Domain: "many"}
	for i := range 10_000 {
		many.Descriptors = append(many.Descriptors, &pb.RateLimitDescriptor{
			Key: "generic_key", Value: fmt.Sprintf("a/rather/long/name/of/a/route/%d", i),
			RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_HOUR, RequestsPerUnit: 10, Name: fmt.Sprintf("limit-%d", i)},
		})
	}
	s := start(t, adstest.Options{})
	set(t, s, "1", many)
	c := follow(t, s.Addr(), xds.Options{})
	if u := receive(t, c.updates); u.Set == nil || len(u.Set.Limits) != 10_000 {
		t.Fatalf("update is %+v, want 10000 limits", u.Err)
	}
	wait(t, s, adstest.Acked("1"))

	small := follow(t, s.Addr(), xds.Options{MaxMessageBytes: 100_000})
	if err := receive(t, small.down); !errors.Is(err, xds.ErrTooLarge) {
		t.Errorf("the stream ended with %v, want ErrTooLarge", err)
	}
}

// TestDefaults changes the defaults of active rules: the two compile together, or the active rules
// stay.
func TestDefaults(t *testing.T) {
	defaults := func(text string) *rules.Defaults {
		d, found := rulefile.ParseDefaults("defaults.yaml", []byte(text))
		must.OK(t, found.Err())
		return d
	}
	s := start(t, adstest.Options{})
	set(t, s, "1", domain("a", 5))
	updates := make(chan source.Update, 10)
	source, err := xds.NewSource(xds.Options{
		Target: s.Addr(), NodeID: "default", MaxMessageBytes: 16 << 20,
		OnLoad:     func(u source.Update) error { updates <- u; return nil },
		OnAnswered: func(bool) {}, OnConnected: func() {}, OnDisconnected: func(error, time.Duration) {},
	})
	must.OK(t, err)
	bucket := defaults("{domain: a, defaults: [{rate_limit: {algorithm: token_bucket, burst: 9}}]}")
	source.SetDefaults(bucket) // before the first rules
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		source.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	c := &client{t: t}
	with := strings.TrimSuffix(line("a", 5), "\n") + ", algorithm: token_bucket, burst: 9\n"
	first := receive(t, updates)
	if got := c.dump(first); got != with {
		t.Errorf("rules are %s, want %s", got, with)
	}
	wait(t, s, adstest.Acked("1"))

	// The slack is too large for a limit of 5 a minute.
	source.SetDefaults(defaults("{domain: a, defaults: [{rate_limit: {algorithm: leaky_bucket, slack: 4000000000}}]}"))
	if u := receive(t, updates); u.Err == nil {
		t.Errorf("update is %s, want an error", c.dump(u))
	}
	source.SetDefaults(bucket)
	if u := receive(t, updates); u.Set != first.Set {
		t.Errorf("update is %+v, want the active set", u)
	}
	source.SetDefaults(nil)
	if got, want := c.dump(receive(t, updates)), line("a", 5); got != want {
		t.Errorf("rules are %s, want %s", got, want)
	}

	// Only blocks changes.
	source.SetDefaults(defaults("{domain: a, defaults: [{rate_limit: {blocks: off}}]}"))
	if got, want := c.dump(receive(t, updates)), strings.TrimSuffix(line("a", 5), "\n")+", blocks: off\n"; got != want {
		t.Errorf("rules are %s, want %s", got, want)
	}
}
