package main

import (
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/internal/file"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/daemon"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/telemetry"
	"github.com/sluice-ratelimit/sluice/xds"
)

// newTestDaemon returns a daemon that can load rules, and its log.
func newTestDaemon(t *testing.T) (*daemon.Daemon, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	metrics := servertest.Metrics(t)
	d, err := daemon.New(daemon.Options{
		Metrics: metrics, Logger: metrics.Events.Watch(zap.New(core)), Tables: new(tables.Registry),
		Settings: answer.Settings{Bounds: servertest.Bounds(answer.Bounds{})},
	})
	must.OK(t, err)
	return d, logs
}

// TestConditionsOfDefaults uses a file of defaults that fails to load, with valid rules from the
// management server.
func TestConditionsOfDefaults(t *testing.T) {
	d, _ := newTestDaemon(t)
	load := func(text string) {
		t.Helper()
		must.OK(t, d.Loader.LoadRules(source.Update{Set: servertest.Compile(t, text)}))
	}
	x, err := (&xdsFlags{Options: xds.Options{Target: "127.0.0.1:1"}}).newClient(d, descriptors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "defaults.yaml")
	write := func(text string) {
		t.Helper()
		if err := file.Replace(path, 0o600, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
			t.Fatal(err)
		}
	}
	load("domain: a")
	write("defalts: []\n")
	group, ctx := errgroup.WithContext(t.Context())
	t.Cleanup(func() { _ = group.Wait() })
	good := make(chan struct{})
	x.followDefaults(ctx, group, path, sync.OnceFunc(func() { close(good) }))
	servertest.ExpectConditions(t, d.Metrics, "bad defaults", "rules_rejected")
	load("domain: b")
	servertest.ExpectConditions(t, d.Metrics, "good rules with the defaults before", "rules_rejected")
	write("domain: d\nall_or_nothing: true\n")
	<-good
	servertest.ExpectConditions(t, d.Metrics, "good defaults", "")
}

// TestConditionsOfTheManagementServer uses a server that is temporarily unreachable.
func TestConditionsOfTheManagementServer(t *testing.T) {
	d, logs := newTestDaemon(t)
	l := &xdsLog{logger: d.Logger, metrics: d.Metrics.XDS()}
	for range 2 {
		for range 3 { // only the first is logged
			l.disconnected(errors.New("refused"), time.Second)
			servertest.ExpectConditions(t, d.Metrics, "refused", "management_server_unavailable")
		}
		l.connected()
		servertest.ExpectConditions(t, d.Metrics, "connected", "")
	}
	if n := logs.FilterMessage(telemetry.ManagementServerUnavailable.Define().Sentence).Len(); n != 2 {
		t.Errorf("the log has %d lines, want one for each outage", n)
	}
}
