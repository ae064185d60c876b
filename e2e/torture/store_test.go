//go:build torture

package torture

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/e2e/torture/hostile"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/store/storetest"
)

// connectionErrors are ways to cause a connection error. Each writes frames after the given number
// of calls.
var connectionErrors = map[string]func(fr *http2.Framer, calls int){
	"PUSH_PROMISE": func(fr *http2.Framer, _ int) { _ = fr.WriteRawFrame(http2.FramePushPromise, 0, 1, nil) },
	"pings": func(fr *http2.Framer, _ int) {
		for range 5 {
			_ = fr.WritePing(false, [8]byte{})
		}
	},
	"a large frame": func(fr *http2.Framer, _ int) { _ = fr.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<16)) },
	"resets": func(fr *http2.Framer, calls int) {
		for i := range calls {
			_ = fr.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
		}
		_ = fr.WriteRawFrame(http2.FramePushPromise, 0, 1, nil)
	},
	"close": func(*http2.Framer, int) {},
}

// TestConnectionErrorsWithAStore has a store decide the calls of connections that end with errors,
// and of another client, whose calls must all be answered.
func TestConnectionErrorsWithAStore(t *testing.T) {
	Parallel(t)
	const calls = 100
	rnd := Rand(t)
	store := storetest.Start(t)
	s := Start(t, Options{
		Rules: "domain: torture\ndescriptors:\n  - { key: attacker, rate_limit: { unit: year, requests_per_unit: 1000000 } }\n  - { key: honest, rate_limit: { unit: year, requests_per_unit: 1000000 } }\n" +
			"  - { key: delayed, rate_limit: { unit: second, requests_per_unit: 5000, algorithm: leaky_bucket, slack: 0, max_wait: 20ms } }\n",
		Args: []string{"--store", "redis://" + store.Addr, "--store-timeout", "1s"},
	})
	neighbour := rls.NewRateLimitServiceClient(Dial(t, s.Addr("grpc")))
	call := func() {
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		defer cancel()
		if _, err := neighbour.ShouldRateLimit(ctx, Request(Key{"honest", "v"})); err != nil {
			t.Errorf("a call of the other client: %v", err)
		}
	}
	askAtOnce := func(n int) {
		var calling sync.WaitGroup
		for range n {
			calling.Go(call)
		}
		calling.Wait()
	}
	for name, end := range connectionErrors {
		for range Pick(4, 100) {
			broken := breakConnection(t, rnd, s.Addr("grpc"), calls, end)
			askAtOnce(calls / 2)
			_ = broken.Close()
			call() // gives the server time to notice
			askAtOnce(calls)
		}
		if t.Failed() {
			t.Fatalf("failed after connections that ended with %s", name)
		}
	}
	if store.Must("DBSIZE") == "0" {
		t.Error("the store has decided no hits")
	}
}

// breakConnection sends calls followed by an error in one write. It returns when the server has
// closed the connection, if it does.
func breakConnection(t *testing.T, rnd *rand.Rand, addr string, calls int, end func(fr *http2.Framer, calls int)) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must.OK(t, err)
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&out, conn)
	fr.AllowIllegalWrites = true
	_ = fr.WriteSettings() // writes to memory
	encoder := hpack.NewEncoder(&block)
	for i := range calls {
		block.Reset()
		for _, f := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"},
			{":authority", "sluice"},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
		} {
			_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		id := uint32(2*i + 1)
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = fr.WriteData(id, true, hostile.Request("torture", []string{"attacker", "delayed"}[rnd.IntN(2)], strconv.Itoa(rnd.IntN(10))))
	}
	length := out.Len()
	end(fr, calls)
	ends := out.Len() > length
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Log(err) // the server closed first
	}
	for ends {
		f, err := fr.ReadFrame()
		if ends = err == nil; ends && f.Header().Type == http2.FrameGoAway {
			return conn
		}
	}
	return conn
}
