package luahost_test

import (
	"net"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/script"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

// BenchmarkDecide measures the decision script for one charge of each algorithm.
func BenchmarkDecide(b *testing.B) {
	for name, p := range map[string]*limiter.Policy{
		"fixed":       {Algorithm: limiter.FixedWindow, Limit: 1000, Window: time.Minute},
		"sliding":     {Algorithm: limiter.SlidingWindow, Limit: 1000, Window: time.Minute},
		"log":         {Algorithm: limiter.SlidingLog, Limit: 1000, Window: time.Minute},
		"bucket":      {Algorithm: limiter.TokenBucket, Limit: 1000, Window: time.Minute, Burst: 1000},
		"concurrency": {Algorithm: limiter.Concurrency, Limit: 10, Window: time.Minute},
	} {
		b.Run("alg="+name, func(b *testing.B) {
			s, args := record(b, p)
			b.ReportAllocs()
			for b.Loop() {
				s.Do(args...)
			}
		})
	}
}

// record returns a server, and the command that decides a charge of a policy by the script.
func record(tb testing.TB, p *limiter.Policy) (s *luahost.Server, command []string) {
	tb.Helper()
	s = luahost.NewServer()
	s.OnCommand(func(name string, args [][]byte, _ []byte) {
		command = []string{name}
		for _, arg := range args {
			command = append(command, string(arg))
		}
	})
	here, there := net.Pipe()
	go s.ServeConn(there)
	c := redis.New(here, "pipe", time.Minute)
	var run script.Run
	for range 2 { // the first sends the script
		var call script.Call
		call.Encode(0, &limiter.Batch{Charges: []limiter.Charge{{Policy: p, Hits: 1}}}, [][]byte{[]byte("bench")}, 0)
		run.Clear(0)
		run.Add(&call)
		if script.DecideScript.Run(c, &run); run.Err != nil {
			tb.Fatal(run.Err)
		}
	}
	c.Close()
	s.OnCommand(nil)
	return s, command
}
