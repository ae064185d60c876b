package builtin

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/clock"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/servertest"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// callLate makes a call whose deadline passes before its request is complete, and returns its
// status.
func (c *rawClient) callLate(message []byte) string {
	c.t.Helper()
	stream := c.next
	c.next += 2
	c.block(0)
	c.must(c.enc.WriteField(hpack.HeaderField{Name: "grpc-timeout", Value: "1n"}))
	c.startCall(stream, c.text.Bytes())
	c.must(c.fr.WritePing(false, [8]byte{1}))
	for pinged := false; !pinged; {
		f, err := c.fr.ReadFrame()
		c.must(err)
		ack, isPing := f.(*http2.PingFrame)
		pinged = isPing && ack.IsAck()
	}
	c.must(c.fr.WriteData(stream, true, prefixed(message)))
	return c.readEnds(1)[stream]
}

// TestLateEndCallsReturnLeases verifies that a lease is also returned by a call whose deadline has
// passed, since Envoy makes that call only once; and that other late requests charge nothing, in
// memory and with a store.
func TestLateEndCallsReturnLeases(t *testing.T) {
	for _, later := range []bool{false, true} {
		now, table := clock.New(), servertest.Table(t)
		settings := answer.Settings{Clock: now}
		if later {
			g := &gate{table, make(chan func(), 10)}
			go func() {
				for decide := range g.waiting {
					decide()
				}
			}()
			t.Cleanup(func() { close(g.waiting) })
			settings.Decider, settings.Namer = g, descriptors.NewNamer("p:", nil)
		}
		s := servertest.ServiceOn(t, table, settings, onePermit)
		client, request := serve(t, s).rawClient(t), simpleRequest()
		if status := client.callLate(marshal(t, request)); status != "4" {
			t.Errorf("a late request gets status %s, want DEADLINE_EXCEEDED", status)
		}
		at, _ := now.Now()
		x := &answer.Exchange{}
		reply, _, err := s.Answer(at, 0, x, marshal(t, request))
		must.OK(t, err)
		var response rls.RateLimitResponse
		must.OK(t, proto.Unmarshal(slices.Clone(reply), &response))
		lease := response.GetDynamicMetadata().GetFields()["streams"].GetNumberValue()
		if lease < limiter.FirstLease {
			t.Fatalf("the first request gets %v", &response)
		}
		end := proto.CloneOf(request)
		end.Descriptors[0].HitsAddend = wrapperspb.UInt64(uint64(lease))
		if status := client.callLate(marshal(t, end)); status != "0" {
			t.Errorf("a late end call gets status %s, want OK", status)
		}
		if !isFree(t, s, now, marshal(t, request)) {
			t.Error("a late end call returned no lease")
		}
	}
}

// TestResetsDuringDrainReturnLeases verifies that a lease is returned if the client resets the call
// after the drained connection has sent its last answer.
func TestResetsDuringDrainReturnLeases(t *testing.T) {
	now, draining := clock.New(), make(chan struct{})
	s := service(t, answer.Settings{Clock: now}, onePermit)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.OK(t, err)
	server := New(transport.Config{
		Limits: fillLimits(transport.Limits{}), Handler: answer.NewHandler(s, zap.NewNop(), nil, false), Creds: insecure.NewCredentials(),
		Quotas: newQuotas(t, s, new(atomic.Int64)), Draining: draining,
	})
	server.lingerTime = time.Hour
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	r := &running{addr: l.Addr().String()}
	client, request := r.rawClient(t), marshal(t, simpleRequest())
	id := client.call(request, 0)
	client.readEnds(1)
	close(draining)
	var drained sync.WaitGroup
	drained.Go(server.GracefulStop)
	for {
		f, err := client.fr.ReadFrame()
		if errors.Is(err, io.EOF) {
			break
		}
		client.must(err)
		if ping, ok := f.(*http2.PingFrame); ok && !ping.IsAck() {
			client.must(client.fr.WritePing(true, ping.Data))
		}
	}
	client.must(client.fr.WriteRSTStream(id, http2.ErrCodeCancel))
	_ = client.conn.Close()
	drained.Wait()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !isFree(t, s, now, request) {
		t.Error("the lease of a call that was reset after the drain was not returned")
	}
}
