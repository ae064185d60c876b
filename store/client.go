package store

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Nothing else of this package knows the client library, so that another one is a change here.

// dialTimeout is how long a connection may take, handshakes and all. Only probes wait for one.
const dialTimeout = time.Second

// A client is a connection to one server. Its run may be called concurrently.
type client struct {
	lib rueidis.Client

	mu     sync.Mutex
	conn   net.Conn // so that close can end what waits for it
	dialed bool
	closed bool
}

// dial connects. It takes dialTimeout at most, and waits no longer than ctx.
func dial(ctx context.Context, to *Server) (*client, error) {
	c := &client{}
	var secure *tls.Config
	if to.TLS != nil {
		var err error
		if secure, err = to.TLS.config(to.host()); err != nil {
			return nil, err
		}
	}
	user, password, err := to.credentials()
	if err != nil {
		return nil, err
	}
	opt := rueidis.ClientOption{
		InitAddress:       []string{to.Address},
		SelectDB:          to.Database,
		Username:          user,
		Password:          password,
		Dialer:            net.Dialer{Timeout: dialTimeout},
		ClientSetInfo:     rueidis.DisableClientSetInfo, // which users who may do little may not
		DisableRetry:      true,
		DisableCache:      true,
		AlwaysRESP2:       true,
		ForceSingleClient: true,
		// Two batches at most are under way, and a batch is larger than what is
		// kept of a connection's buffers anyway.
		RingScaleEachConn: 4,
		PipelineMultiplex: -1,
		DialCtxFn: func(_ context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return c.connect(ctx, d, to.Network, address, secure)
		},
	}
	err = c.within(ctx, func() error { // the library's handshake does not look at ctx
		lib, err := rueidis.NewClient(opt)
		c.mu.Lock()
		c.lib = lib
		abandoned := c.closed
		c.mu.Unlock()
		if abandoned && lib != nil {
			lib.Close()
		}
		return err
	})
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// within does what waits for the server, and closes c if that takes dialTimeout or ctx ends.
func (c *client) within(ctx context.Context, do func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	timer := time.NewTimer(dialTimeout)
	defer timer.Stop()
	var err error
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = context.DeadlineExceeded
	}
	c.close()
	<-ended //nolint:errcheck // that it was closed
	return err
}

// connect is the dialer of the library.
func (c *client) connect(ctx context.Context, d *net.Dialer, network, address string, secure *tls.Config) (net.Conn, error) {
	c.mu.Lock()
	again := c.dialed
	c.dialed = true
	c.mu.Unlock()
	if again { // the library would have a batch wait for it
		return nil, net.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	closed := c.closed
	c.conn = conn
	c.mu.Unlock()
	if closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	if secure == nil {
		return conn, nil
	}
	inside := tls.Client(conn, secure)
	if err := inside.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return inside, nil
}

// close ends the connection and all that waits for it. It does not wait.
func (c *client) close() {
	c.mu.Lock()
	lib, was := c.lib, c.closed
	c.closed = true
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.mu.Unlock()
	if lib != nil && !was {
		lib.Close() // at once, since its connections are closed
	}
}

// run runs the script on m and makes r its reply. It waits until the reply is there or the
// connection is closed.
func (c *client) run(m *message, r *reply) error {
	res := c.lib.Do(context.Background(), c.script("EVALSHA", decideSHA, m))
	err := res.Error()
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		// A server that was started or took over has never seen it. SCRIPT LOAD is
		// forbidden by some proxies.
		res = c.lib.Do(context.Background(), c.script("EVAL", decideScript, m))
		err = res.Error()
	}
	if err != nil {
		return err
	}
	all, err := res.ToArray()
	if err != nil {
		return err
	}
	r.values = r.values[:0]
	for i := range all {
		v := value{isText: all[i].IsString()}
		if v.isText {
			v.text, err = all[i].ToString()
		} else {
			v.number, err = all[i].ToInt64()
		}
		if err != nil {
			return err
		}
		r.values = append(r.values, v)
	}
	return r.begin()
}

func (c *client) script(command, script string, m *message) rueidis.Completed {
	return c.lib.B().Arbitrary(command).Args(script, strconv.Itoa(len(m.keys))).Keys(m.keys...).Args(m.args...).Build()
}

// warm has the server know the script, by a run on nothing.
func (c *client) warm(f *flight) error { return c.run(&f.message, &f.reply) }
