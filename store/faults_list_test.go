//go:build more

package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/internal/effort"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// A fault is a failure of a server, which inject causes and repair ends.
type fault struct {
	name   string
	args   []string
	inject func(t *testing.T, s *storetest.Server)
	repair func(t *testing.T, s *storetest.Server)
	kinds  []redis.Kind // accepted kinds of the error
}

const loading = "loading"

var faults = []fault{
	{
		"stopped", nil, func(_ *testing.T, s *storetest.Server) { s.Stop() },
		func(_ *testing.T, s *storetest.Server) { s.Continue() },
		[]redis.Kind{redis.Timeout},
	},
	{
		"killed", nil, func(_ *testing.T, s *storetest.Server) { s.Kill() },
		func(_ *testing.T, s *storetest.Server) { s.Run() },
		[]redis.Kind{redis.Connection},
	},
	{
		"busy with another script", nil, func(t *testing.T, s *storetest.Server) {
			t.Helper()
			s.Must("CONFIG", "SET", "lua-time-limit", "1")
			go func() { _, _ = s.Command("EVAL", "while true do end", "0") }()
			storetest.Eventually(t, "busy", func() bool {
				_, err := s.Command("GET", "x")
				return err != nil && strings.HasPrefix(err.Error(), "BUSY")
			})
		},
		func(_ *testing.T, s *storetest.Server) { s.Must("SCRIPT", "KILL") },
		[]redis.Kind{redis.Busy, redis.Timeout},
	},
	{
		"made a replica", nil, func(_ *testing.T, s *storetest.Server) { s.Must("REPLICAOF", "127.0.0.1", "1") },
		func(_ *testing.T, s *storetest.Server) { s.Must("REPLICAOF", "NO", "ONE") },
		[]redis.Kind{redis.ReadOnly, redis.Replicas},
	},
	{
		"no memory",
		[]string{"--maxmemory-policy", "noeviction"},
		func(_ *testing.T, s *storetest.Server) { s.Must("CONFIG", "SET", "maxmemory", "1") },
		func(_ *testing.T, s *storetest.Server) { s.Must("CONFIG", "SET", "maxmemory", "0") },
		[]redis.Kind{redis.Memory},
	},
	{
		"too few replicas", nil,
		func(_ *testing.T, s *storetest.Server) { s.Must("CONFIG", "SET", "min-replicas-to-write", "1") },
		func(_ *testing.T, s *storetest.Server) { s.Must("CONFIG", "SET", "min-replicas-to-write", "0") },
		[]redis.Kind{redis.Replicas},
	},
	{
		"no right to run scripts", nil,
		func(_ *testing.T, s *storetest.Server) {
			s.Must("ACL", "SETUSER", "default", "-eval", "-evalsha")
		},
		func(_ *testing.T, s *storetest.Server) { s.Must("ACL", "SETUSER", "default", "+@all") },
		[]redis.Kind{redis.Refused},
	},
	{
		"no right to a command of the script", nil,
		func(_ *testing.T, s *storetest.Server) { s.Must("ACL", "SETUSER", "default", "-get", "-set") },
		func(_ *testing.T, s *storetest.Server) { s.Must("ACL", "SETUSER", "default", "+@all") },
		[]redis.Kind{redis.Refused},
	},
	{
		"a snapshot that fails",
		[]string{"--dbfilename", "d"},
		func(t *testing.T, s *storetest.Server) {
			t.Helper()
			must.OK(t, os.Mkdir(filepath.Join(s.Dir, "d"), 0o700))
			s.Must("CONFIG", "SET", "save", "3600 1")
			s.Must("BGSAVE")
			awaitPersistence(t, s, "rdb_last_bgsave_status:err")
		},
		func(_ *testing.T, s *storetest.Server) { s.Must("CONFIG", "SET", "save", "") },
		[]redis.Kind{redis.Disk},
	},
	{
		loading,
		[]string{"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024", "--key-load-delay", "2000"},
		func(t *testing.T, s *storetest.Server) {
			t.Helper()
			s.Must("DEBUG", "POPULATE", "100000") // loading takes minutes
			go func() { _, _ = s.Command("DEBUG", "RELOAD") }()
			awaitPersistence(t, s, "loading:1")
		},
		func(t *testing.T, s *storetest.Server) {
			t.Helper()
			s.Must("CONFIG", "SET", "key-load-delay", "0")
			awaitPersistence(t, s, "loading:0")
		},
		[]redis.Kind{redis.Loading, redis.Timeout},
	},
}

// awaitPersistence waits until INFO persistence of s has a line.
func awaitPersistence(t *testing.T, s *storetest.Server, line string) {
	t.Helper()
	storetest.Eventually(t, line, func() bool {
		info, err := s.Command("INFO", "persistence")
		return err == nil && strings.Contains(info, "\n"+line+"\r\n") // there is also a field async_loading
	})
}

// TestFaultTable prints the table of docs/failure-modes.md: each fault lasts a second, under the
// load of four callers whose deadline is Envoy's default of 20 ms, with each algorithm. It is a
// measurement and needs a quiet machine.
func TestFaultTable(t *testing.T) {
	effort.Require(t, effort.All)
	policies := []*limiter.Policy{
		{Algorithm: limiter.FixedWindow, Limit: 1 << 31, Window: time.Hour},
		{Algorithm: limiter.SlidingWindow, Limit: 1 << 31, Window: time.Hour, SubWindows: 10},
		{Algorithm: limiter.SlidingLog, Limit: limiter.MaxLog, Window: time.Second},
		hugeBucket,
		{Algorithm: limiter.LeakyBucket, Limit: 1 << 30, Window: time.Second, Burst: 1 << 31},
		{Algorithm: limiter.Concurrency, Limit: limiter.MaxLog, Window: time.Second},
	}
	var table strings.Builder
	for _, f := range faults {
		var longest, back time.Duration
		least := 1.0
		for _, p := range policies {
			l, share, b := f.measure(t, p)
			longest, back = max(longest, l), max(back, b)
			least = min(least, share)
		}
		fmt.Fprintf(&table, "| %s | %.1f | %.0f %% | %.2f |\n",
			f.name, longest.Seconds()*1000, 100*least, back.Seconds())
	}
	t.Logf("longest answer in ms, smallest share of charges that the fallback decided during that second, seconds until the store decides again:\n%s", table.String())
}

func (f *fault) measure(t *testing.T, p *limiter.Policy) (longest time.Duration, share float64, back time.Duration) {
	t.Helper()
	t.Run(fmt.Sprintf("%s with algorithm %d", f.name, p.Algorithm), func(t *testing.T) {
		srv := storetest.Start(t, f.args...)
		o := &recorder{}
		s := runStore(t, Options{Server: serverAt(srv), Observer: o, Timeout: time.Second})
		storetest.Eventually(t, "up", s.Up)
		slowest := startLoad(t, s, p, 19*time.Millisecond)
		f.inject(t, srv)
		began, byItself := o.decisions()
		time.Sleep(time.Second)
		ended, byStore := o.decisions()
		f.repair(t, srv)
		repaired := clock()
		_, before := o.decisions()
		storetest.Eventually(t, "the store decides again", func() bool {
			_, n := o.decisions()
			return n > before
		})
		back = clock().Sub(repaired)
		share = float64(ended-began) / float64(max(1, ended-began+byStore-byItself))
		longest = time.Duration(slowest.Load())
	})
	return longest, share, back
}
