package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/sluice-ratelimit/sluice/e2e/h2client"
)

const quotaPath = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"

// awaitResume returns when the Envoy is not suspended.
func (e *quotaEnvoy) awaitResume() {
	for {
		e.quotas.mu.Lock()
		left := time.Until(e.pausedUntil)
		e.quotas.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// suspendable is a connection of an Envoy that may be suspended. Meanwhile it neither reads nor
// writes.
type suspendable struct {
	net.Conn

	envoy *quotaEnvoy
}

func (c suspendable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.envoy.awaitResume()
	return n, err
}

func (c suspendable) Write(p []byte) (int, error) {
	c.envoy.awaitResume()
	return c.Conn.Write(p)
}

// send sends a report. Without a stream it opens one to a healthy sluice; if it cannot, the usage is
// lost, as with Envoy.
func (e *quotaEnvoy) send(report []byte) {
	e.quotas.mu.Lock()
	s, opens := e.stream, e.stream == nil && !e.connecting
	e.connecting = e.connecting || opens
	e.quotas.mu.Unlock()
	if opens {
		go e.open(report)
	} else if s != nil {
		if err := s.Send(report); err != nil {
			e.world.record(e.host, "cannot report: %v", err)
		}
	}
}

// open opens a stream, and sends the first report.
func (e *quotaEnvoy) open(first []byte) {
	var s *h2client.Stream
	c, err := e.connect()
	if err == nil {
		s, err = c.Open(quotaPath, 0, first, e.receive)
	}
	e.quotas.mu.Lock()
	if e.connecting = false; err == nil {
		e.stream = s
	}
	e.quotas.mu.Unlock()
	if err != nil {
		e.world.record(e.host, "cannot open a stream: %v", err)
		return
	}
	e.world.record(e.host, "opens a stream to %s", e.replica)
	<-s.Done
	e.world.record(e.host, "a stream has ended: %s %v", s.Status, s.Err) // the message has random names
	e.quotas.mu.Lock()
	defer e.quotas.mu.Unlock()
	if e.stream == s {
		e.stream = nil
	}
}

// connect returns a connection to a healthy sluice: the last one or a new one.
func (e *quotaEnvoy) connect() (*h2client.Conn, error) {
	e.quotas.mu.Lock()
	var healthy []string
	for _, r := range e.world.replicas {
		if e.healthy[r.host] || !e.world.shared {
			healthy = append(healthy, r.host)
		}
	}
	e.quotas.mu.Unlock()
	if len(healthy) == 0 {
		return nil, errors.New("no healthy sluice")
	}
	replica := healthy[hashText(e.host+e.now().String())%uint64(len(healthy))]
	if e.conn != nil && replica == e.replica && e.conn.Usable() {
		return e.conn, nil
	}
	c, err := e.dial(replica, e.quotas.pongDelay)
	if err != nil {
		return nil, err
	}
	if e.conn != nil {
		e.conn.Close()
	}
	e.quotas.mu.Lock()
	defer e.quotas.mu.Unlock()
	e.conns, e.conn, e.replica = append(e.conns, c), c, replica
	go e.keepAlive(c)
	return c, nil
}

func (e *quotaEnvoy) dial(replica string, pongDelay time.Duration) (*h2client.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := e.world.network.dial(ctx, e.host, replica+grpcPort)
	if err != nil {
		return nil, err
	}
	return h2client.New(suspendable{conn, e}, h2client.Options{PongDelay: pongDelay, Window: 1 << 20})
}

// keepAlive closes a connection whose PING is not acknowledged within 2 s, as configured in
// docs/rlqs.md.
func (e *quotaEnvoy) keepAlive(c *h2client.Conn) {
	for {
		select {
		case <-time.After(10 * time.Second):
		case <-c.Done:
			return
		}
		if c.Ping() != nil {
			return
		}
		select {
		case <-c.Pongs:
		case <-c.Done:
			return
		case <-time.After(2 * time.Second):
			e.awaitResume()
			e.world.record(e.host, "closes a connection without a pong")
			c.Close()
			return
		}
	}
}

// checkHealth asks a sluice every second whether it divides the domain.
func (e *quotaEnvoy) checkHealth(ctx context.Context, replica string) {
	var c *h2client.Conn
	check := func() (err error) {
		if c == nil || !c.Usable() {
			if c, err = e.dial(replica, 0); err != nil {
				return err
			}
		}
		var reply grpc_health_v1.HealthCheckResponse
		err = e.world.call(ctx, c, "/grpc.health.v1.Health/Check", time.Second, &grpc_health_v1.HealthCheckRequest{Service: "quota." + quotaDomain}, &reply)
		if err == nil && reply.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			err = fmt.Errorf("%v", reply.GetStatus())
		}
		return err
	}
	for wait := time.Duration(0); sleep(ctx, wait+e.world.network.latencyOf(e.host+replica)); wait = time.Second {
		e.awaitResume()
		err := check()
		e.quotas.mu.Lock()
		if e.healthy[replica] != (err == nil) {
			e.world.record(e.host, "health of %s: %v", replica, err)
		}
		e.healthy[replica] = err == nil
		e.quotas.mu.Unlock()
	}
	if c != nil {
		c.Close()
		<-c.Done
	}
}
