package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Ways in which an Envoy can limit, as columns of a table. They use the same Envoy, upstream and
// sluice, and differ in one filter.
const (
	limitNone   = "no limit"
	limitBucket = "RLQS, one bucket"
	limitUsers  = "RLQS, 1,000 users"
	limitLocal  = "Envoy's local limit"
	limitCalls  = "a call per request (RLS)"
)

//go:embed limits.yaml filters
var limitFiles embed.FS

// limitFilters are the files of the filters.
var limitFilters = map[string]string{limitNone: "", limitBucket: "bucket.yaml", limitUsers: "users.yaml", limitLocal: "local.yaml", limitCalls: "calls.yaml"}

// addLimits adds a service for each way to limit.
func (w *testbed) addLimits() error {
	for name, file := range limitFilters {
		config, err := limitFiles.ReadFile("limits.yaml")
		if err != nil {
			return err
		}
		filter := []byte{}
		if file != "" {
			if filter, err = limitFiles.ReadFile("filters/" + file); err != nil {
				return err
			}
		}
		const marker = "                  # FILTER\n"
		if !bytes.Contains(config, []byte(marker)) {
			return errors.New("limits.yaml has no line '# FILTER'")
		}
		indented := strings.ReplaceAll(strings.TrimRight(string(filter), "\n"), "\n", "\n                  ")
		if indented != "" {
			indented = "                  " + indented + "\n"
		}
		s := w.sluiceService(name)
		s.bootstrap = bytes.Replace(config, []byte(marker), []byte(indented), 1)
		if name == limitBucket || name == limitUsers {
			s.warmup = 8 * time.Second // for 6 s after its start sluice makes no new assignments
		}
		w.add(s)
	}
	return nil
}

// startUpstream starts the upstream of those Envoys in this process, whose CPU time is not counted.
func (w *testbed) startUpstream(ctx context.Context) error {
	if w.upstream != "" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("start the upstream: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // until this process exits
	w.upstream = l.Addr().String()
	return nil
}
