package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// section is a part of the script that shows one thing.
type section struct {
	title string
	play  func(context.Context, *stage, *transcript) error
}

// script is what the demo shows, for examples/quickstart/rules.yaml. The acts
// build on each other: alice and bob keep their counters.
var script = []section{
	{"A limit for each client: 5 requests an hour", func(ctx context.Context, s *stage, t *transcript) error {
		return s.sendAndCompare(ctx, t, request{user: "alice", path: "/"},
			answer{200, "4"}, answer{200, "3"}, answer{200, "2"}, answer{200, "1"}, answer{200, "0"},
			answer{429, "0"})
	}},
	{"Others do not notice; one has a limit of its own", func(ctx context.Context, s *stage, t *transcript) error {
		if err := s.sendAndCompare(ctx, t, request{user: "bob", path: "/"}, answer{200, "4"}); err != nil {
			return err
		}
		return s.sendAndCompare(ctx, t, request{user: "ci-robot", path: "/"}, answer{200, "99"})
	}},
	{"A request may cost more: an export costs 3", func(ctx context.Context, s *stage, t *transcript) error {
		return s.sendAndCompare(ctx, t, request{user: "bob", path: "/export"}, answer{200, "1"}, answer{429, "0"})
	}},
	{"A rule of two levels: POST to /search, 2 an hour", func(ctx context.Context, s *stage, t *transcript) error {
		if err := s.sendAndCompare(ctx, t, request{method: http.MethodPost, path: "/search"},
			answer{200, "1"}, answer{200, "0"}, answer{429, "0"}); err != nil {
			return err
		}
		t.note("any other method has no limit:")
		return s.sendAndCompare(ctx, t, request{path: "/search"}, answer{200, ""})
	}},
	{"Shadow mode: the metrics tell what would be denied, nothing is", showShadow},
	{"A rule changes while sluice runs: 8 an hour instead of 5", showReload},
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
	t.note("in force after %v; the counters are kept: alice used 6, the denied one included", time.Since(began).Round(time.Millisecond))
	return s.sendAndCompare(ctx, t, request{user: "alice", path: "/"}, answer{200, "1"}, answer{200, "0"}, answer{429, "0"})
}

// request is what a client sends.
type request struct {
	method string // default GET
	path   string
	user   string // the header x-user; left out if empty
}

// answer is what the script expects: a status and x-ratelimit-remaining, which is empty
// where no limit applies.
type answer struct {
	status    int
	remaining string
}

// sendAndCompare sends r once for each answer and compares.
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
