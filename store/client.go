package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Nothing else of this package knows the client library, so that another one is a change here.

// A client is a connection to one server. Its run may be called concurrently.
type client struct {
	lib     rueidis.Client
	address string
	timeout time.Duration // how long a connection may take, handshakes and all: only probes wait for one

	mu     sync.Mutex
	conn   net.Conn // so that close can end what waits for it
	dialed bool
	closed bool
}

// dial connects. It takes as long as timeout at most, and waits no longer than ctx.
func dial(ctx context.Context, to *Server, timeout time.Duration) (*client, error) {
	c := &client{address: to.Address, timeout: timeout}
	var secure *tls.Config
	if to.TLS != nil {
		var err error
		if secure, err = to.TLS.config(to.host()); err != nil {
			return nil, err
		}
	}
	user, password, err := to.Auth.credentials()
	if err != nil {
		return nil, err
	}
	opt := rueidis.ClientOption{
		InitAddress:       []string{to.Address},
		SelectDB:          to.Database,
		Username:          user,
		Password:          password,
		Dialer:            net.Dialer{Timeout: timeout},
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

// within does what waits for the server, and closes c if that takes too long or ctx ends.
func (c *client) within(ctx context.Context, do func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	timer := time.NewTimer(c.timeout)
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
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
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
func (c *client) run(m *message, r *reply) error { return c.eval(decideScript, decideSHA, m, r) }

// eval is run for a script of that hash.
func (c *client) eval(script, sha string, m *message, r *reply) error {
	res := c.lib.Do(context.Background(), c.script("EVALSHA", sha, m))
	if unknown(&res) {
		res = c.lib.Do(context.Background(), c.script("EVAL", script, m))
	}
	return r.take(&res)
}

// unknown reports whether a server lacks the script: one that was started or took over has never
// seen it. SCRIPT LOAD is forbidden by some proxies.
func unknown(res *rueidis.RedisResult) bool {
	err := res.Error()
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// runs is run for several messages in one write. Each run gets a reply or an error of its own.
func (c *client) runs(all []*run) {
	if len(all) == 1 && !all[0].asking && !all[0].native {
		all[0].err = c.run(&all[0].message, &all[0].reply)
		return
	}
	if c.pipe(all, "EVALSHA", decideSHA, func(*run) bool { return true }) {
		c.pipe(all, "EVAL", decideScript, func(r *run) bool { return r.unknown && !r.native })
	}
}

// pipe runs the script for those that want it. It reports whether the server lacks the script.
func (c *client) pipe(all []*run, command, script string, wants func(*run) bool) (lacks bool) {
	var commands []rueidis.Completed
	for _, r := range all {
		if wants(r) {
			if r.native {
				commands = c.natives(commands, r)
				continue
			}
			if r.asking {
				commands = append(commands, c.lib.B().Arbitrary("ASKING").Build())
			}
			commands = append(commands, c.script(command, script, &r.message))
		}
	}
	results := c.lib.DoMulti(context.Background(), commands...)
	for _, r := range all {
		if !wants(r) {
			continue
		}
		if r.native {
			r.err, results = nil, r.counted(results)
			continue
		}
		if r.asking {
			results = results[1:]
		}
		if r.unknown = unknown(&results[0]); r.unknown {
			lacks = true
		}
		r.err = r.reply.take(&results[0])
		results = results[1:]
	}
	return lacks
}

// natives appends the commands of r's asks.
func (c *client) natives(commands []rueidis.Completed, r *run) []rueidis.Completed {
	for _, a := range r.asks {
		for words := range a.call.commands() {
			if r.asking {
				commands = append(commands, c.lib.B().Arbitrary("ASKING").Build())
			}
			commands = append(commands, c.lib.B().Arbitrary(words[0]).Args(words[1:]...).Build())
		}
	}
	return commands
}

// counted has the asks of a native run know what the store said, and returns the results of others.
func (r *run) counted(results []rueidis.RedisResult) []rueidis.RedisResult {
	for _, a := range r.asks {
		a.found = a.found[:0]
		told := 0
		for words := range a.call.commands() {
			if r.asking {
				results = results[1:]
			}
			var said count
			message, err := results[0].ToMessage()
			switch {
			case rueidis.IsRedisNil(err):
			case err != nil:
				said.err = err
			case message.IsInt64():
				said.number, said.err = message.ToInt64()
			default:
				said.text, said.err = message.ToString()
			}
			told = a.counted(words, told, said)
			results = results[1:]
		}
	}
	return results
}

// take makes r what the script answered.
func (r *reply) take(res *rueidis.RedisResult) error {
	all, err := res.ToArray()
	if _, said := rueidis.IsRedisErr(err); said && kindOf(err) == Connection {
		return &failure{Script, err} // the library leaves out the word ERR
	}
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

// primary asks a Sentinel for the address of the primary that it calls master, and takes
// as long as the connection may.
func (c *client) primary(ctx context.Context, master string) (address string, err error) {
	err = c.within(ctx, func() error { //nolint:contextcheck // close ends it
		told, err := c.lib.Do(context.Background(), c.lib.B().Arbitrary("SENTINEL", "get-master-addr-by-name", master).Build()).AsStrSlice()
		if rueidis.IsRedisNil(err) || err == nil && len(told) != 2 {
			return fmt.Errorf("sentinel %s knows no primary called %q", c.address, master)
		}
		if err == nil {
			address = net.JoinHostPort(told[0], told[1])
		}
		return err
	})
	return address, err
}

// slots asks a node of a cluster whose the slots are. The spans that it returns lack their lanes.
func (c *client) slots(ctx context.Context) (spans []span, err error) {
	err = c.within(ctx, func() error { //nolint:contextcheck // close ends it
		all, err := c.lib.Do(context.Background(), c.lib.B().Arbitrary("CLUSTER", "SLOTS").Build()).ToArray()
		if err != nil {
			return err
		}
		for _, one := range all {
			s, err := c.span(one)
			if err != nil {
				return fmt.Errorf("read whose the slots are: %w", err)
			}
			spans = append(spans, s)
		}
		return nil
	})
	return spans, err
}

// span reads an element of CLUSTER SLOTS: first, last, primary, replicas.
func (c *client) span(one rueidis.RedisMessage) (s span, err error) {
	parts, err := one.ToArray()
	if err != nil || len(parts) < 3 {
		return s, fmt.Errorf("%v is no range of slots: %w", one, err)
	}
	first, err := parts[0].ToInt64()
	last, err2 := parts[1].ToInt64()
	node, err3 := parts[2].ToArray()
	if err := errors.Join(err, err2, err3); err != nil || first < 0 || last < first || last >= slots || len(node) < 2 {
		return s, fmt.Errorf("%v is no range of slots: %w", one, err)
	}
	host, err := node[0].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return s, err
	}
	port, err := node[1].ToInt64()
	return span{first: uint16(first), last: uint16(last), address: hostOf(host, port, c.address)}, err //nolint:gosec // below slots
}
