//go:build more

package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
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
