package storetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// StartReplica starts a replica of s and waits until it is synchronised.
func StartReplica(tb testing.TB, s *Server) *Server {
	tb.Helper()
	r := StartBinary(tb, s.binary, "--replicaof", "127.0.0.1", s.Port())
	Eventually(tb, "the replica is synchronised",
		func() bool { return strings.Contains(r.Must("INFO", "replication"), "master_link_status:up") })
	return r
}

// StartSentinels starts Sentinels that watch a primary by the name main. It waits until they know each
// other and the given number of replicas. They fail over if a test asks them to, but not by themselves,
// however busy the machine is: see [EnableSentinelFailover].
func StartSentinels(tb testing.TB, primary *Server, replicas, count int) (all []*Server) {
	tb.Helper()
	for range count {
		s := newServer(tb, primary.binary, nil)
		s.conf = filepath.Join(s.Dir, "sentinel.conf")
		text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nlogfile %s\n"+
			"sentinel monitor main 127.0.0.1 %s %d\nsentinel down-after-milliseconds main 600000\n"+
			"sentinel failover-timeout main 5000\n", s.Port(), s.Dir, filepath.Join(s.Dir, "log"), primary.Port(),
			count/2+1)
		if err := os.WriteFile(s.conf, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		s.Run()
		all = append(all, s)
	}
	for _, s := range all {
		Eventually(tb, "the Sentinels know each other and the replicas", func() bool {
			return strings.Contains(s.Must("INFO", "sentinel"), fmt.Sprintf("slaves=%d,sentinels=%d", replicas, count))
		})
	}
	return all
}

// EnableSentinelFailover makes Sentinels fail over when the primary has not answered for two seconds.
func EnableSentinelFailover(all []*Server) {
	for _, s := range all {
		s.Must("SENTINEL", "SET", "main", "down-after-milliseconds", "2000")
	}
}
