package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/storetest/luahost"
)

func startHost(t *testing.T) (*luahost.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	h := luahost.NewServer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Serve(l)
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return h, l.Addr().String()
}

func TestLuahostDecidesAsATable(t *testing.T) {
	t.Parallel()
	_, address := startHost(t)
	c, err := redis.Dial(context.Background(), &redis.Server{Network: "tcp", Address: address}, longTimeout)
	must.OK(t, err)
	defer c.Close()
	must.OK(t, warm(c))
	r := tapePlayer{c: c}
	random := rand.NewChaCha8([32]byte{18})
	for n := range 100 {
		data := make([]byte, 1500)
		_, _ = random.Read(data)
		r.prefix = fmt.Sprintf("t%d", n)
		r.play(t, data)
	}
	t.Logf("%d charges, %d requests by native commands, %d penalties", r.charges, r.native, r.penalties)
}
