package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// share adds a behaviour to the shared configuration. The returned function starts the programs
// unless another test has, and returns an Envoy whose default listener is that of the behaviour.
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
		p, s := shared.start(t)
		own := *p
		own.ingress = name
		return &own, s
	}
}

// shared contains the shared programs.
var shared programs

// programs is a [testing.TB] whose resources outlive the test that starts them.
type programs struct {
	testing.TB

	once     sync.Once
	sluice   *sluice.Sluice
	proxy    *proxy
	cleanups []func()
	errs     []error
}

func (s *programs) start(t *testing.T) (*proxy, *sluice.Sluice) {
	t.Helper()
	s.once.Do(func() {
		s.TB = t
		var rules strings.Builder
		var listeners []listener
		for _, b := range behaviours {
			fmt.Fprintf(&rules, "---\ndomain: %s\n%s\n", b.name, strings.TrimSpace(b.rules))
			listeners = append(listeners, b.listener)
		}
		limits := startSluice(s, sluice.Options{Env: []string{"GOMAXPROCS=4"}, Args: []string{
			"--config", suite.WriteRules(s, rules.String()),
			"--response-headers", "--ratelimit-headers=structured", "--retry-after-header",
			"--request-headers", "--request-remaining-header", "X-Left",
			"--decision-metadata", "--denied-by", "--soft-header", "X-RateLimit-Soft",
		}})
		s.proxy, s.sluice = startProxy(s, listeners, "", limits), limits
	})
	if s.proxy == nil {
		t.Fatal("the shared programs did not start")
	}
	return s.proxy, s.sluice
}

// stop stops the programs and returns what is wrong with them.
func (s *programs) stop() error {
	for len(s.cleanups) > 0 {
		last := len(s.cleanups) - 1
		s.cleanups[last]()
		s.cleanups = s.cleanups[:last]
	}
	return errors.Join(s.errs...)
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
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
