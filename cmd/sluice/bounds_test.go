package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// TestFlagsSetBounds verifies which flag sets which bound, and the values of constants.
func TestFlagsSetBounds(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		bounds answer.Bounds
		limits transport.Limits
	}{
		{
			nil,
			answer.Bounds{MessageBytes: 4 << 20, Descriptors: 1000, Entries: 64, KeyBytes: 1 << 10},
			transport.Limits{
				MaxMessageBytes: 4 << 20, MaxStreams: 1024, MaxHeaderBytes: 128 << 10, MaxConnections: 10_000, MaxHTTPConnections: 1000,
				ConnectionTimeout: 5 * time.Second, MaxConnectionIdle: 15 * time.Minute,
				KeepaliveTime: time.Minute, KeepaliveTimeout: 10 * time.Second, KeepaliveMinTime: 10 * time.Second,
				MaxConnectionAge: 24 * time.Hour, MaxConnectionAgeGrace: time.Hour,
			},
		},
		{
			[]string{
				"--max-descriptors=1", "--max-entries=2", "--max-key-length=3",
				"--max-message=5", "--max-streams=6", "--max-header-size=1031", "--max-connections=8", "--max-http-connections=16",
				"--connection-timeout=9s", "--max-connection-idle=10s", "--keepalive-time=11s", "--keepalive-timeout=12s",
				"--keepalive-min-time=13s", "--max-connection-age=14s", "--GRPC_MAX_CONNECTION_AGE_GRACE=15s",
			},
			answer.Bounds{MessageBytes: 5, Descriptors: 1, Entries: 2, KeyBytes: 3},
			transport.Limits{
				MaxMessageBytes: 5, MaxStreams: 6, MaxHeaderBytes: 1031, MaxConnections: 8, MaxHTTPConnections: 16,
				ConnectionTimeout: 9 * time.Second, MaxConnectionIdle: 10 * time.Second,
				KeepaliveTime: 11 * time.Second, KeepaliveTimeout: 12 * time.Second, KeepaliveMinTime: 13 * time.Second,
				MaxConnectionAge: 14 * time.Second, MaxConnectionAgeGrace: 15 * time.Second,
			},
		},
	} {
		var root cli
		parser, err := newParser(&root, "sluice", console{})
		must.OK(t, err)
		if _, err := parser.Parse(append([]string{"serve"}, tt.args...)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.bounds, root.Serve.settings().Bounds); diff != "" {
			t.Errorf("bounds of %v (-want +got):\n%s", tt.args, diff)
		}
		if diff := cmp.Diff(tt.limits, root.Serve.Server.Limits); diff != "" {
			t.Errorf("limits of %v (-want +got):\n%s", tt.args, diff)
		}
	}
}
