package main

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/source"
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

// TestConditionsOfRules has rules that do not load, at the start and later.
func TestConditionsOfRules(t *testing.T) {
	k := newKept(t)
	take := func(when, rules, want string) {
		t.Helper()
		_ = k.takeRules(*k.rules(rules))
		expectActive(t, k.metrics, when, want)
	}
	take("bad at the start", "bad", "rules_missing")
	take("good", "user:a", "")
	take("bad after good ones", "bad", "rules_rejected")
	if lines := k.metrics.Conditions.Active(time.Now())[0].Lines; len(lines) != 1 || lines[0] != errBad.Error() {
		t.Errorf("the lines are %q, want the error", lines)
	}
	take("other good ones", "path:b", "")
	take("bad again", "bad", "rules_rejected")
	_ = k.takeRules(source.Update{Set: k.service.Rules()})
	expectActive(t, k.metrics, "the file is as before", "")
}

// TestConditionsOfDefaults has a file of defaults that does not load, while the rules of the management server do.
func TestConditionsOfDefaults(t *testing.T) {
	k := newKept(t)
	x, err := (&xdsFlags{Options: xds.Options{Target: "127.0.0.1:1"}}).newXDS(k.keeper, descriptors.Options{})
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
	_ = k.takeRules(*k.rules("user:a"))
	write("defalts: []\n")
	group, ctx := errgroup.WithContext(t.Context())
	t.Cleanup(func() { _ = group.Wait() })
	good := make(chan struct{})
	x.followDefaults(ctx, group, file, sync.OnceFunc(func() { close(good) }))
	expectActive(t, k.metrics, "bad defaults", "rules_rejected")
	_ = k.takeRules(*k.rules("path:b"))
	expectActive(t, k.metrics, "good rules with the defaults before", "rules_rejected")
	write("domain: d\nall_or_nothing: true\n")
	<-good
	expectActive(t, k.metrics, "good defaults", "")
}

// TestConditionsOfTables has a file of rows that does not load, and a journal that cannot be written.
func TestConditionsOfTables(t *testing.T) {
	k := newKept(t)
	take := func(when, a, want string) {
		t.Helper()
		_ = k.take(source.Change{Tables: []source.TableUpdate{k.rows("a", a), k.rows("b", "path=1")}})
		expectActive(t, k.metrics, when, want)
	}
	_ = k.takeRules(*k.rules("user:a path:b"))
	take("a bad table and one that waits for it", "bad", "table_rejected table_rejected")
	take("good", "user=1", "")

	k.journalChanged("c", errors.New("no space"))
	k.journalChanged("b", errors.New("no space"))
	expectActive(t, k.metrics, "a full disk", "table_not_saved table_not_saved")
	k.journalChanged("c", nil)
	k.journalChanged("b", nil)
	expectActive(t, k.metrics, "room on the disk", "")
}

// TestConditionsOfTheManagementServer has a server that cannot be reached for a while.
func TestConditionsOfTheManagementServer(t *testing.T) {
	k := newKept(t)
	l := &xdsLog{logger: k.logger, metrics: k.metrics.XDS()}
	for range 2 {
		for range 3 { // the log has the first of them
			l.disconnected(errors.New("refused"), time.Second)
			expectActive(t, k.metrics, "refused", "management_server_unavailable")
		}
		l.connected()
		expectActive(t, k.metrics, "connected", "")
	}
	if n := k.logs.FilterMessage(telemetry.ManagementServerUnavailable.Define().Sentence).Len(); n != 2 {
		t.Errorf("the log has %d lines, want one for each absence", n)
	}
}

// TestConditionsOfTheStore has two primaries, of which one comes back and one loses its slots to others.
func TestConditionsOfTheStore(t *testing.T) {
	k := newKept(t)
	log := (&storeFlags{}).log(k.logger)
	log.Away("a:1", redis.Kinds[0], errors.New("refused"), "")
	log.Away("b:1", redis.Kinds[0], errors.New("refused"), "start it")
	expectActive(t, k.metrics, "both", "store_unavailable store_unavailable")
	log.Back("a:1", time.Second, store.Repaid{})
	if active := k.metrics.Conditions.Active(time.Now()); len(active) != 1 || active[0].Remedy != "start it" || active[0].Fields["store"] != "b:1" {
		t.Errorf("the conditions are %+v, want the second store", active)
	}
	log.Replaced("b:1")
	expectActive(t, k.metrics, "replaced", "")
}
