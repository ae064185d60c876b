package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
)

// behaviour is the part of a test in the configuration of one sluice and one Envoy, which tests
// share because starting programs costs most of their time. These tests run one at a time.
type behaviour struct {
	// rules contains the rules of the test's domain, without the field domain.
	rules string
	// listener has the name of the domain.
	listener
}

// behaviours are those of all tests.
var behaviours []behaviour

// share adds a behaviour to the shared configuration. The returned function returns the programs,
// with the behaviour's listener as the default one. It starts them if necessary: for the first test,
// and if go test repeats a test, which expects new counters.
func share(name, rules string, l listener) func(t *testing.T) (*proxy, *sluice.Sluice) {
	l.name = name
	if l.rateLimit == nil {
		l.rateLimit = []string{"domain: " + name}
	}
	behaviours = append(behaviours, behaviour{rules, l})
	return func(t *testing.T) (*proxy, *sluice.Sluice) {
		t.Helper()
		suite.Envoy(t, root) // skips each test if there is none
		suite.SkipAtYearEnd(t)
		if shared.used[name] {
			shared.stop()
		}
		if shared.proxy == nil {
			shared.start(t)
		}
		shared.used[name] = true
		own := *shared.proxy
		own.ingress = name
		return &own, shared.sluice
	}
}

// shared contains the shared programs.
var shared programs

// programs is a [testing.TB] whose resources outlive the test that starts them.
type programs struct {
	testing.TB

	sluice   *sluice.Sluice
	proxy    *proxy
	used     map[string]bool // behaviours
	table    string          // a file of rows
	cleanups []func()
	errs     []error
}

func (s *programs) start(t *testing.T) {
	t.Helper()
	s.TB, s.used = t, map[string]bool{}
	s.table = filepath.Join(s.TempDir(), "users.csv")
	suite.Replace(s, s.table, firstRows)
	var rules strings.Builder
	var listeners []listener
	for _, b := range behaviours {
		fmt.Fprintf(&rules, "---\ndomain: %s\n%s\n", b.name, strings.TrimSpace(b.rules))
		listeners = append(listeners, b.listener)
	}
	s.sluice = startSluice(s, sluice.Options{Env: []string{"GOMAXPROCS=4"}, Args: []string{
		"--config", suite.WriteRules(s, rules.String()), "--table", "users=" + s.table,
		"--LIMIT_RESPONSE_HEADERS_ENABLED", "--ratelimit-headers=structured", "--retry-after-header",
		"--request-headers", "--LIMIT_REQUEST_REMAINING_HEADER", "X-Left",
		"--decision-metadata", "--denied-by", "--soft-header", "X-RateLimit-Soft",
	}})
	s.proxy = startProxy(s, listeners, "", s.sluice)
}

func (s *programs) stop() {
	s.proxy = nil
	for len(s.cleanups) > 0 {
		last := len(s.cleanups) - 1
		s.cleanups[last]()
		s.cleanups = s.cleanups[:last]
	}
}

func (*programs) Context() context.Context { return context.Background() }
func (s *programs) Cleanup(f func())       { s.cleanups = append(s.cleanups, f) }

func (s *programs) Errorf(format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf(format, args...))
}

func (s *programs) TempDir() string {
	dir, err := os.MkdirTemp(filepath.Dir(sluiceBinary), "shared-")
	if err != nil {
		s.Fatal(err)
	}
	return dir
}

// thenStop runs the tests and stops the shared programs.
type thenStop struct{ suite.Tests }

func (r thenStop) Run() int {
	code := r.Tests.Run()
	shared.stop()
	if err := errors.Join(shared.errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
