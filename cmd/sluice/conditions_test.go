package main

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/ruleset"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/telemetry"
	"github.com/sluice-ratelimit/sluice/xds"
)

// activeCodes returns the codes of the active conditions, the newest condition first.
func activeCodes(m *telemetry.Metrics) string {
	var codes []string
	for _, c := range m.Conditions.Active(time.Now()) {
		codes = append(codes, string(c.Code))
	}
	return strings.Join(codes, " ")
}

// expectActive fails the test unless these are the codes of the active conditions.
func expectActive(t *testing.T, m *telemetry.Metrics, when, want string) {
	t.Helper()
	if got := activeCodes(m); got != want {
		t.Errorf("%s: the conditions are %q, want %q", when, got, want)
	}
}

// newTestDaemon returns a daemon that can load rules, and its log.
func newTestDaemon(t *testing.T) (*daemon, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	metrics := servertest.Metrics(t)
	d := &daemon{metrics: metrics, logger: metrics.Events.Watch(zap.New(core)), table: servertest.Table(t), tables: new(tables.Registry)}
	d.service = answer.NewService(answer.Settings{Bounds: servertest.Bounds(answer.Bounds{})}, d.table, metrics)
	d.loader = ruleset.New(ruleset.Options{Service: d.service, Tables: d.tables, Metrics: metrics, Logger: d.logger, Now: now})
	return d, logs
}

// TestConditionsOfDefaults uses a file of defaults that fails to load, with valid rules from the
// management server.
func TestConditionsOfDefaults(t *testing.T) {
	d, _ := newTestDaemon(t)
	load := func(text string) {
		t.Helper()
		must.OK(t, d.loader.LoadRules(source.Update{Set: servertest.Compile(t, text)}))
	}
	x, err := (&xdsFlags{Options: xds.Options{Target: "127.0.0.1:1"}}).newClient(d, descriptors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "defaults.yaml")
	write := func(text string) {
		t.Helper()
		if err := replaceFile(file, 0o600, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
			t.Fatal(err)
		}
	}
	load("domain: a")
	write("defalts: []\n")
	group, ctx := errgroup.WithContext(t.Context())
	t.Cleanup(func() { _ = group.Wait() })
	good := make(chan struct{})
	x.followDefaults(ctx, group, file, sync.OnceFunc(func() { close(good) }))
	expectActive(t, d.metrics, "bad defaults", "rules_rejected")
	load("domain: b")
	expectActive(t, d.metrics, "good rules with the defaults before", "rules_rejected")
	write("domain: d\nall_or_nothing: true\n")
	<-good
	expectActive(t, d.metrics, "good defaults", "")
}

// TestConditionsOfTheManagementServer uses a server that is temporarily unreachable.
func TestConditionsOfTheManagementServer(t *testing.T) {
	d, logs := newTestDaemon(t)
	l := &xdsLog{logger: d.logger, metrics: d.metrics.XDS()}
	for range 2 {
		for range 3 { // only the first is logged
			l.disconnected(errors.New("refused"), time.Second)
			expectActive(t, d.metrics, "refused", "management_server_unavailable")
		}
		l.connected()
		expectActive(t, d.metrics, "connected", "")
	}
	if n := logs.FilterMessage(telemetry.ManagementServerUnavailable.Define().Sentence).Len(); n != 2 {
		t.Errorf("the log has %d lines, want one for each outage", n)
	}
}

// TestConditionsOfTheStore uses two unavailable primaries: one recovers, and the other loses its
// slots.
func TestConditionsOfTheStore(t *testing.T) {
	d, _ := newTestDaemon(t)
	log := (&storeFlags{}).callbacks(d.logger)
	log.Unavailable("a:1", redis.Kinds[0], errors.New("refused"), "")
	log.Unavailable("b:1", redis.Kinds[0], errors.New("refused"), "start it")
	expectActive(t, d.metrics, "both", "store_unavailable store_unavailable")
	log.Recovered("a:1", time.Second, store.Synced{})
	if active := d.metrics.Conditions.Active(time.Now()); len(active) != 1 || active[0].Remedy != "start it" || active[0].Fields["store"] != "b:1" {
		t.Errorf("the conditions are %+v, want the second store", active)
	}
	log.Replaced("b:1")
	expectActive(t, d.metrics, "replaced", "")
}
