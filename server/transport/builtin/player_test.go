package builtin

import (
	"net"
	"sync"
	"testing"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const scriptRules = "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 3}}, " +
	"{key: held, rate_limit: {unit: second, unit_multiplier: 10, requests_per_unit: 1, algorithm: leaky_bucket, slack: 0, max_wait: 60s, max_waiting: 100}}]}"

// player is a transport with the client of a script.
type player struct {
	transport.Transport
	metrics  *telemetry.Metrics
	listener *oneListener
	conn     net.Conn
	queue    chan []byte
	done     sync.WaitGroup

	mu   sync.Mutex
	came []byte
	deaf bool // the client has stopped reading
}

// oneListener accepts one connection.
type oneListener struct {
	conn chan net.Conn
	done chan struct{}
	once sync.Once
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *oneListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *oneListener) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// newPlayer starts a transport and connects to it. It must be called in a synctest bubble.
func newPlayer(t *testing.T, limits transport.Limits, creds credentials.TransportCredentials) *player {
	t.Helper()
	limits = fillLimits(limits)
	s := service(t, answer.Settings{Bounds: answer.Bounds{MessageBytes: limits.MaxMessageBytes}}, scriptRules)
	config := transport.Config{Limits: limits, Handler: answer.NewHandler(s, zap.NewNop(), nil, false), Creds: creds}
	p := &player{
		metrics:  s.Metrics(),
		listener: &oneListener{conn: make(chan net.Conn, 1), done: make(chan struct{})},
		queue:    make(chan []byte, 1<<10),
	}
	p.Transport = start(config)
	client, conn := net.Pipe()
	p.conn = client
	p.listener.conn <- conn
	p.done.Go(func() { _ = p.Serve(p.listener) })
	p.done.Go(func() {
		for b := range p.queue {
			_, _ = client.Write(b) // fails after the end
		}
	})
	p.done.Go(func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			p.mu.Lock()
			p.came = append(p.came, buffer[:n]...)
			deaf := p.deaf
			p.mu.Unlock()
			if err != nil || deaf {
				return
			}
		}
	})
	return p
}

// stop closes the connection and stops the transport.
func (p *player) stop() {
	close(p.queue)
	_ = p.conn.Close()
	p.Stop()
	p.done.Wait()
}
