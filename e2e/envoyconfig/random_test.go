package envoyconfig_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/e2e/backend"
	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// root is the path of the repository's root.
const root = "../.."

// TestComputedCallsEqualEnvoys sends random requests through random route tables of the real Envoy,
// and compares the descriptors of each call with the computed ones.
func TestComputedCallsEqualEnvoys(t *testing.T) {
	tables, requests := 3, effort.Times(t, 100)
	if effort.Level(t) >= effort.All {
		tables = 10
	}
	first := uint64(1)
	if text := os.Getenv("SLUICE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first = n
	}
	for i := range tables {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { compare(t, seed, requests) })
	}
}

// compare runs one random route table. SLUICE_SEED sets the seed of the first table.
func compare(t *testing.T, seed uint64, requests int) {
	t.Helper()
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	a := startTestEnvoy(t, g.bootstrap())
	all := make([]envoyconfig.Request, requests)
	for i := range all {
		all[i] = g.request(i)
	}
	send(t, a.envoy, all)

	var count tally
	late, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	for i, request := range all {
		computed, err := a.config.Calls(request)
		if err != nil {
			t.Fatal(err)
		}
		want := count.calls(computed)
		if want == nil {
			continue
		}
		if got := a.recorder.await(strconv.Itoa(i), len(want), late.Done()); !agree(want, got) {
			t.Errorf("%s\ncomputed %v\nEnvoy made the calls %v\nroute %s %s %v", requestText(request), want, got, computed.VirtualHost, computed.Route, computed.Pos)
		}
	}
	t.Logf("%d requests, %d of them without a known route or call; %d descriptors were sent, %d not sent, %d unknown", requests, count.noRoute, count.sent, count.not, count.unknown)
	if count.sent < requests/10 || count.not < requests/10 || count.unknown > count.sent/5 || count.noRoute > requests/5 {
		t.Error("too few calls were compared")
	}
	if t.Failed() {
		keep := filepath.Join(os.TempDir(), fmt.Sprintf("asked-%d.json", seed))
		t.Logf("the configuration is in %s (%v)", keep, os.WriteFile(keep, a.text, 0o600))
	}
}

// request returns a random request. Its calls carry the number i.
func (g generator) request(i int) envoyconfig.Request {
	r := envoyconfig.Request{
		Method: pick(g, "GET", "POST", "PUT"), Scheme: "http", Authority: pick(g, hosts...),
		Path:     pick(g, paths...) + pick(g, queries...),
		Remote:   netip.MustParseAddr("127.0.0.1"),
		Metadata: map[string]string{"ns:tier": "", "ns:deep.er": "", "ns:n": "", "ns:none": "", "ns:limit": ""},
		Listener: fmt.Sprint("l", g.IntN(len(managers))),
		Headers:  []envoyconfig.Header{{Name: caseHeader, Value: strconv.Itoa(i)}},
	}
	for _, name := range names {
		if name[0] == ':' || g.chance(2) {
			continue
		}
		r.Headers = append(r.Headers, envoyconfig.Header{Name: name, Value: pick(g, values...)})
		if g.chance(6) {
			r.Headers = append(r.Headers, envoyconfig.Header{Name: name, Value: pick(g, values...)})
		}
	}
	if g.chance(8) {
		r.Headers = append(r.Headers, envoyconfig.Header{Name: "upgrade", Value: pick(g, "websocket", "Other", "none", "h2c")})
		if !g.chance(4) {
			r.Headers = append(r.Headers, envoyconfig.Header{Name: "connection", Value: pick(g, "Upgrade", "keep-alive, upgrade")})
		}
	}
	if g.chance(20) {
		r.Headers = append(r.Headers, envoyconfig.Header{Name: "x-forwarded-proto", Value: pick(g, "http", "https")})
	}
	if g.chance(2) {
		r.Headers = append(r.Headers, envoyconfig.Header{Name: "x-forwarded-for", Value: pick(g, forwards...)})
	}
	return r
}

func startEnvoy(t *testing.T, bootstrap []byte, r *recorder) *envoy.Envoy {
	t.Helper()
	binary := suite.Envoy(t, root)
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	upstream, err := backend.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = upstream.Close() })
	e, err := envoy.Start(ctx, envoy.Options{
		Binary: binary, Bootstrap: bootstrap, Dir: t.TempDir(),
		Clusters: map[string][]string{"sluice": {r.addr}, "backend": {upstream.Addr}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return e
}

// send sends requests, eight at a time.
func send(t *testing.T, e *envoy.Envoy, all []envoyconfig.Request) {
	t.Helper()
	client := &http.Client{
		Timeout:       suite.Patience,
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 8},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(8)
	for _, r := range all {
		group.Go(func() error {
			addr := e.Addr(r.Listener)
			path, query, ok := strings.Cut(r.Path, "?")
			req := (&http.Request{
				Method: r.Method, Host: r.Authority, Header: http.Header{"User-Agent": nil},
				URL: &url.URL{Scheme: "http", Host: addr, Opaque: "//" + addr + path, RawQuery: query, ForceQuery: ok},
			}).WithContext(ctx)
			req.URL.Opaque = path
			for _, h := range r.Headers {
				req.Header[h.Name] = append(req.Header[h.Name], h.Value)
			}
			resp, err := client.Do(req)
			if err != nil {
				return fmt.Errorf("%s: %w", requestText(r), err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func requestText(r envoyconfig.Request) string {
	return fmt.Sprintf("%s %s %s%s %q", r.Listener, r.Method, r.Authority, r.Path, r.Headers)
}

// tally counts the compared descriptors and requests.
type tally struct{ sent, not, unknown, noRoute int }

// anything represents an unknown descriptor.
const anything = "?"

// calls returns the computed calls, sorted like those of a recorder; nil if they are unknown.
func (n *tally) calls(a *envoyconfig.Calls) []call {
	all := []call{}
	if strings.HasPrefix(a.NotCalled, "unknown") {
		n.noRoute++
		return nil
	}
	for _, c := range a.ByFilter {
		if strings.HasPrefix(c.NotCalled, envoyconfig.UnknownPrefix) {
			n.noRoute++
			return nil
		}
		now, late := call{domain: c.Domain}, call{domain: c.Domain}
		for i := range c.Descriptors {
			d := &c.Descriptors[i]
			to := &now
			if d.StreamDone {
				to = &late
			}
			switch {
			case d.Unknown != "":
				n.unknown++
				to.descriptors = append(to.descriptors, anything)
			case d.NotSent != "":
				n.not++
			default:
				n.sent++
				text := d.String()
				if d.HasHits {
					text += " x" + strconv.FormatUint(d.Hits, 10)
				}
				if d.Refund {
					text += " back"
				}
				if d.HasOverride {
					text += fmt.Sprintf(" limit %d/%v", d.Override.RequestsPerUnit, typev3.RateLimitUnit(d.Override.Unit))
				}
				to.descriptors = append(to.descriptors, text)
			}
		}
		for _, made := range []call{now, late} {
			if slices.Contains(made.descriptors, anything) && !slices.ContainsFunc(made.descriptors, func(d string) bool { return d != anything }) {
				n.noRoute++
				return nil // it is unknown whether there is a call
			}
			if len(made.descriptors) > 0 {
				all = append(all, made)
			}
		}
	}
	slices.SortFunc(all, func(a, b call) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// agree reports whether the calls equal the computed ones, except for unknown descriptors.
func agree(want, got []call) bool {
	if len(want) != len(got) {
		return false
	}
	left := slices.Clone(got)
	for _, w := range want {
		i := slices.IndexFunc(left, func(c call) bool { return c.domain == w.domain && matches(w.descriptors, c.descriptors) })
		if i < 0 {
			return false
		}
		left = slices.Delete(left, i, i+1)
	}
	return true
}

// matches reports whether got equals want, where anything matches one descriptor or none.
func matches(want, got []string) bool {
	switch {
	case len(want) == 0:
		return len(got) == 0
	case want[0] == anything:
		return matches(want[1:], got) || len(got) > 0 && matches(want[1:], got[1:])
	default:
		return len(got) > 0 && want[0] == got[0] && matches(want[1:], got[1:])
	}
}
