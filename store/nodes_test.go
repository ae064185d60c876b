package store

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
)

// The number of shards is bounded, whatever addresses nodes send.
func TestShardsAreBounded(t *testing.T) {
	s, err := New(Options{Server: redis.Server{Nodes: []string{"a:1"}}, Timeout: longTimeout, Fallback: Deny})
	must.OK(t, err)
	s.main.start = func(*shard) context.CancelFunc { return func() {} }
	made := 0
	for n := range 3 * redis.MaxPrimaries {
		if s.main.shardAt(fmt.Sprintf("a:%d", n+1)) != nil {
			made++
		}
	}
	if made != 2*redis.MaxPrimaries || s.main.shardAt("a:1") == nil {
		t.Errorf("%d new shards, want %d in addition to the existing ones", made, 2*redis.MaxPrimaries)
	}
}

// An address that a node or a Sentinel sends is accepted only if it is a host and a port.
func TestNodeAt(t *testing.T) {
	for _, tt := range [][3]string{
		{"127.0.0.1", "7001", "127.0.0.1:7001"},
		{"a.example", "65535", "a.example:65535"},
		{"::1", "1", "[::1]:1"},
		{"", "7001", "asked:7001"},
		{"a", "007001", "a:7001"},
		{"a", "0", ""},
		{"a", "65536", ""},
		{"a", "99999999999999999999", ""},
		{"a", "-1", ""},
		{"a", "", ""},
		{"a", "x", ""},
		{"a b", "1", ""},
		{"a\n", "1", ""},
		{"a/b", "1", ""},
		{"user@a", "1", ""},
		{"\xff", "1", ""},
		{strings.Repeat("a", 256), "1", ""},
	} {
		got, err := redis.NodeAt(tt[0], tt[1], "asked:6379")
		if got != tt[2] || (err == nil) != (tt[2] != "") {
			t.Errorf("nodeAt(%q, %q) = %q, %v, want %q", tt[0], tt[1], got, err, tt[2])
		}
	}
}
