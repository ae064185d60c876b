package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// step demonstrates one feature.
type step struct {
	title string
	play  func(context.Context, *stage, *transcript) error
}

// script expects examples/quickstart/rules.yaml. Later steps depend on the counters of alice and
// bob from earlier ones.
var script = []step{
	{"A limit per user: 5 requests per hour, then 429", func(ctx context.Context, s *stage, t *transcript) error {
		return s.sendAndCompare(ctx, t, request{user: "alice", path: "/"},
			answer{200, "4"}, answer{200, "3"}, answer{200, "2"}, answer{200, "1"}, answer{200, "0"},
			answer{429, "0"})
	}},
	{"Each user has a separate counter, and ci-robot a higher limit", func(ctx context.Context, s *stage, t *transcript) error {
		if err := s.sendAndCompare(ctx, t, request{user: "bob", path: "/"}, answer{200, "4"}); err != nil {
			return err
		}
		return s.sendAndCompare(ctx, t, request{user: "ci-robot", path: "/"}, answer{200, "99"})
	}},
	{"Costs: an export counts as 3 requests, even a denied one", func(ctx context.Context, s *stage, t *transcript) error {
		return s.sendAndCompare(ctx, t, request{user: "bob", path: "/export"}, answer{200, "1"}, answer{429, "0"})
	}},
	{"Nested rules: 2 POST requests to /search per hour", func(ctx context.Context, s *stage, t *transcript) error {
		if err := s.sendAndCompare(ctx, t, request{method: http.MethodPost, path: "/search"},
			answer{200, "1"}, answer{200, "0"}, answer{429, "0"}); err != nil {
			return err
		}
		t.note("Other methods have no limit:")
		return s.sendAndCompare(ctx, t, request{path: "/search"}, answer{200, ""})
	}},
	{"Shadow mode: the third request exceeds the limit; it is counted in a metric and not denied", showShadow},
	{"Reload: raise the limit from 5 to 8 per hour while sluice runs", showReload},
}

func showShadow(ctx context.Context, s *stage, t *transcript) error {
	if err := s.sendAndCompare(ctx, t, request{path: "/beta"},
		answer{200, "1"}, answer{200, "0"}, answer{200, "0"}); err != nil {
		return err
	}
	return s.showMetric(ctx, t, "ratelimit_service_rate_limit_shadow_mode", `rule="feature_beta"`, "1")
}

func showReload(ctx context.Context, s *stage, t *transcript) error {
	began := time.Now()
	if err := s.changeRules(ctx, "requests_per_unit: 5\n", "requests_per_unit: 8\n"); err != nil {
		return err
	}
	t.command("sed -i 's/requests_per_unit: 5$/requests_per_unit: 8/' rules.yaml")
	t.note("Active after %v. Counters are kept: alice has used 6, including the denied request.", time.Since(began).Round(time.Millisecond))
	return s.sendAndCompare(ctx, t, request{user: "alice", path: "/"}, answer{200, "1"}, answer{200, "0"}, answer{429, "0"})
}

// request is a client request.
type request struct {
	method string // default GET
	path   string
	user   string // the header x-user; left out if empty
}

// answer is an expected status and x-ratelimit-remaining, which is empty if no limit applies.
type answer struct {
	status    int
	remaining string
}

// sendAndCompare sends r once for each wanted answer. It returns an error if an answer differs.
func (s *stage) sendAndCompare(ctx context.Context, t *transcript, r request, want ...answer) error {
	t.command(r.curl(s.url()))
	for i, w := range want {
		reply, _, err := s.send(ctx, s.url(), r)
		if err != nil {
			return err
		}
		t.answer(reply.StatusCode, reply.Header)
		got := answer{reply.StatusCode, reply.Header.Get("x-ratelimit-remaining")}
		switch {
		case got != w:
			return fmt.Errorf("request %d: status %d with x-ratelimit-remaining %q, want %d with %q",
				i+1, got.status, got.remaining, w.status, w.remaining)
		case got.status == http.StatusTooManyRequests && reply.Header.Get("retry-after") == "":
			return fmt.Errorf("request %d: denied without retry-after", i+1)
		}
	}
	return nil
}

// curl returns the command that sends the same request.
func (r request) curl(base string) string {
	line := "curl -i"
	if r.method != "" {
		line += " -X " + r.method
	}
	if r.user != "" {
		line += " -H 'x-user: " + r.user + "'"
	}
	return line + " " + base + r.path
}
