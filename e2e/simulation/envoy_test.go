package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/e2e/h2client"
	"github.com/sluice-ratelimit/sluice/store"
)

// envoy is a proxy that calls the replicas as Envoy 1.40 does: one connection to each, a deadline for
// each call, and a second call at the end of a request with a lease.
type envoy struct {
	world *world
	host  string
	turn  atomic.Int64

	mu   sync.Mutex
	last map[string]*h2client.Conn // by replica
	all  []*h2client.Conn
}

// to returns the connection to a replica, and opens one if there is none.
func (e *envoy) to(ctx context.Context, replica string) (*h2client.Conn, error) {
	e.mu.Lock()
	last := e.last[replica]
	e.mu.Unlock()
	if last != nil && last.Usable() {
		return last, nil
	}
	conn, err := e.world.network.dial(ctx, e.host, replica+grpcPort)
	if err != nil {
		return nil, err
	}
	if last, err = h2client.New(conn, h2client.Options{Window: 1 << 20}); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last[replica], e.all = last, append(e.all, last)
	return last, nil
}

// end closes all connections, and reports violations of the protocol by the server.
func (e *envoy) end() {
	for _, one := range e.all {
		one.Close()
		<-one.Done
		e.world.checkProtocol(e.host, one)
	}
}

// checkProtocol verifies that the server has answered each call once, and no others.
func (w *world) checkProtocol(host string, c *h2client.Conn) {
	if v := c.Violation(); v != "" {
		w.fail("%s: the server violates the protocol: %s", host, v)
	}
}

// call makes a unary call. A reply that cannot be decoded is a violation.
func (w *world) call(ctx context.Context, c *h2client.Conn, path string, timeout time.Duration, request, reply proto.Message) error {
	b, err := c.Call(ctx, path, timeout, mustMarshal(request))
	if err != nil {
		return err
	}
	if err = proto.Unmarshal(b, reply); err != nil {
		w.fail("a reply to a call of %s cannot be decoded: %v", path, err)
	}
	return err
}

func mustMarshal(m proto.Message) []byte {
	return mustHave(proto.MarshalOptions{Deterministic: true}.Marshal(m))
}

// pick returns the next replica, in turn.
func (e *envoy) pick() string {
	return e.world.replicas[int(e.turn.Add(1))%len(e.world.replicas)].host
}

const rateLimitPath = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// call makes a rate limit call with the timeout of the filter. It ends earlier if the client of the
// request disconnects after the given time.
func (e *envoy) call(replica string, disconnects time.Duration, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	timeout := e.world.callTimeout
	ctx, cancel := context.WithTimeout(context.Background(), min(timeout, disconnects))
	defer cancel()
	c, err := e.to(ctx, replica)
	if err != nil {
		return nil, err
	}
	reply, began := new(rls.RateLimitResponse), time.Now()
	err = e.world.call(ctx, c, rateLimitPath, timeout, request, reply)
	e.world.checkDeadline(replica, began.Add(timeout))
	if err != nil {
		return nil, err
	}
	if len(reply.GetStatuses()) != len(request.GetDescriptors()) {
		e.world.fail("%s: %s sent %d statuses for %d descriptors", e.host, replica, len(reply.GetStatuses()), len(request.GetDescriptors()))
	}
	return reply, nil
}

// checkDeadline verifies that a call ends before its deadline.
func (w *world) checkDeadline(replica string, deadline time.Time) {
	if late := time.Since(deadline); late > 0 {
		w.fail("a call to %s ended %v after its deadline", replica, late)
	}
}

// request is a request that passes an envoy.
type request struct {
	*entry

	envoy       *envoy
	disconnects time.Duration // when its client disconnects during the first call
	endsTwice   time.Duration // after which its end is reported again; 0 for never
	lasts       time.Duration // its duration, if it is admitted
}

// newRequest returns a request with random properties.
func (e *envoy) newRequest(l *limit, tenant string, random *rand.Rand) *request {
	q := &request{entry: &entry{limit: l, tenant: tenant, replica: e.pick(), hits: l.cost(random)}, envoy: e, disconnects: time.Hour}
	if random.IntN(20) == 0 {
		q.disconnects = time.Duration(1 + random.Int64N(int64(3*time.Millisecond)))
	}
	q.endReplica = q.replica
	if random.IntN(4) == 0 {
		q.endReplica = e.pick()
	}
	if random.IntN(8) == 0 {
		q.endsTwice = time.Duration(1 + random.Int64N(int64(300*time.Millisecond)))
	}
	q.lasts = time.Duration(random.ExpFloat64() * l.lasts * float64(time.Second))
	if l.reserve > 0 {
		q.cost = random.Uint64N(2 * l.reserve)
	}
	return q
}

func (q *request) call(replica string, disconnects time.Duration, descs ...*rlcommon.RateLimitDescriptor) (*rls.RateLimitResponse, error) {
	return q.envoy.call(replica, disconnects, &rls.RateLimitRequest{Domain: domain, Descriptors: descs})
}

// descriptor returns a descriptor with the entries of a request.
func (q *request) descriptor(hits uint64, negative bool) *rlcommon.RateLimitDescriptor {
	return newDescriptor(q.limit.key, q.tenant, hits, negative)
}

func newDescriptor(key, value string, hits uint64, negative bool) *rlcommon.RateLimitDescriptor {
	d := &rlcommon.RateLimitDescriptor{
		Entries:        []*rlcommon.RateLimitDescriptor_Entry{{Key: key, Value: value}},
		IsNegativeHits: negative,
	}
	if hits != 1 {
		d.HitsAddend = wrapperspb.UInt64(hits)
	}
	return d
}

// outcome is the result of a call.
type outcome string

const (
	admitted outcome = "admitted"
	denied   outcome = "denied"
	failed   outcome = "failed"  // an error of the service: it has not decided
	unknown  outcome = "unknown" // no answer: it may have decided
)

func outcomeOf(reply *rls.RateLimitResponse, err error) outcome {
	var status *h2client.StatusError
	switch {
	case errors.As(err, &status):
		return failed
	case err != nil:
		return unknown
	case reply.GetOverallCode() == rls.RateLimitResponse_OK:
		return admitted
	}
	return denied
}

// run makes the calls of a request.
func (q *request) run() {
	w := q.envoy.world
	q.sent = time.Now()
	reply, err := q.call(q.replica, q.disconnects, q.descriptor(q.hits, false))
	q.received, q.outcome = time.Now(), outcomeOf(reply, err)
	w.record(q.envoy.host, "%s %s %d at %s: %s %v", q.limit.key, q.tenant, q.hits, q.replica, q.outcome, err)
	w.ledger.add(q.entry)
	if q.disconnects >= w.callTimeout && (q.outcome == unknown || q.outcome == failed) {
		q.unanswered = err
	}
	if !q.limit.grantsLeases() {
		return
	}
	if q.outcome != admitted {
		q.endWithoutLease()
		return
	}
	q.lease = uint64(reply.GetDynamicMetadata().GetFields()[q.limit.key].GetNumberValue())
	switch {
	case q.lease == 0 && w.shared && w.fallback == store.Allow:
		return // it has no permit
	case q.lease == 0:
		w.fail("%s: an admitted request of %s has no lease: %v", q.replica, q.limit.key, reply)
		return
	}
	time.Sleep(q.lasts)
	q.ending = time.Now()
	descs := []*rlcommon.RateLimitDescriptor{q.descriptor(q.lease, true)}
	if q.limit.reserve > 0 {
		descs = append(descs, q.descriptor(q.cost, false))
	}
	_, err = q.call(q.endReplica, time.Hour, descs...)
	q.ended, q.endFailed = time.Now(), err != nil
	w.record(q.envoy.host, "%s %s ends at %s: %v", q.limit.key, q.tenant, q.endReplica, err)
	if q.endsTwice > 0 {
		time.Sleep(q.endsTwice)
		if w.ledger.hasEqualLease(q.entry) {
			return // the end of this one would end the other one
		}
		_, err = q.call(q.endReplica, time.Hour, descs[0])
		w.record(q.envoy.host, "%s %s ends again at %s: %v", q.limit.key, q.tenant, q.endReplica, err)
	}
}

// endWithoutLease makes the call at the end of a request that was denied, or got no answer. It
// reserves nothing, whatever the cost (docs/algorithms.md, "reserve").
func (q *request) endWithoutLease() {
	if q.endsTwice == 0 {
		return
	}
	time.Sleep(q.lasts)
	cost := q.descriptor(q.cost, false)
	cost.HitsAddend = wrapperspb.UInt64(q.cost) // also if it is 1
	_, err := q.call(q.endReplica, time.Hour, cost)
	q.envoy.world.record(q.envoy.host, "%s %s of cost %d ends without a lease at %s: %v", q.limit.key, q.tenant, q.cost, q.endReplica, err)
}
