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

// While a shard is unavailable, the node that was queried last comes first only if its own shard is
// available: otherwise an outdated node, which the URL may give another name, would be queried for
// good.
func TestOutdatedNodeIsNotQueriedFirst(t *testing.T) {
	s, err := New(Options{Server: redis.Server{Nodes: []string{"name:1", "b:1"}}, Timeout: longTimeout, Fallback: Deny})
	must.OK(t, err)
	s.main.start = func(*shard) context.CancelFunc { return func() {} }
	c := &cluster{backend: s.main, client: &redis.Conn{Address: "name:1"}}
	expect := func(when string, first ...string) {
		t.Helper()
		for _, want := range first {
			if got := c.candidates(); got[0] != want {
				t.Errorf("%s: %s is queried first, want %s; all: %v", when, got[0], want, got)
			}
		}
	}
	expect("without shards", "name:1", "name:1")
	own, other := s.main.shardAt("a:1"), s.main.shardAt("b:1")
	expect("both down", "b:1", "name:1", "b:1")
	other.conn = &redis.Conn{}
	expect("one up", "b:1", "b:1")
	own.conn = &redis.Conn{}
	expect("both up", "name:1", "name:1")
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
