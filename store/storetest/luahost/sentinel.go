package luahost

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// A Sentinel answers queries for the address of a primary, and publishes messages. Its methods may
// be called concurrently. [NewSentinel] returns one.
type Sentinel struct {
	master  string
	current func() string

	turn        chan struct{} // full while a command runs or a method uses the fields below
	replicas    []string
	subscribers []*client
}

// NewSentinel returns a Sentinel of a primary, whose address current returns.
func NewSentinel(master string, current func() string) *Sentinel {
	return &Sentinel{master: master, current: current, turn: make(chan struct{}, 1)}
}

// ServeConn serves a connection until it ends, and closes it.
func (s *Sentinel) ServeConn(conn net.Conn) { serveConn(s, conn) }

// Serve serves the connections of a listener until that is closed, as [Server.Serve] does.
func (s *Sentinel) Serve(l net.Listener) error { return serve(l, s.ServeConn) }

// SetReplicas sets the addresses of the replicas.
func (s *Sentinel) SetReplicas(addresses ...string) {
	s.locked(func() { s.replicas = slices.Clone(addresses) })
}

// Publish sends a message to the subscribers of a channel, such as +switch-master. A connection with
// many unsent messages is closed.
func (s *Sentinel) Publish(channel, message string) {
	s.locked(func() {
		for _, c := range s.subscribers {
			if !slices.Contains(c.channels, channel) {
				continue
			}
			select {
			case c.pushes <- appendReply(nil, []reply{"message", channel, message}):
			default:
				_ = c.conn.Close()
			}
		}
	})
}

// Switch publishes that the primary has another address.
func (s *Sentinel) Switch(from, to string) {
	fields := []string{s.master}
	for _, address := range []string{from, to} {
		host, port := splitAddress(address)
		fields = append(fields, host, strconv.FormatInt(port, 10))
	}
	s.Publish("+switch-master", strings.Join(fields, " "))
}

func (s *Sentinel) locked(do func()) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	do()
}

// execute runs a command and appends its reply to out.
func (s *Sentinel) execute(c *client, args []string, out []byte) []byte {
	s.locked(func() {
		name := strings.ToUpper(args[0])
		switch {
		case name == "SUBSCRIBE" && len(args) > 1:
			out = s.subscribe(c, args[1:], out)
		case name == "PING" && len(c.channels) > 0:
			out = appendReply(out, []reply{"pong", ""})
		case name == "PING":
			out = appendReply(out, status("PONG"))
		case name == "SENTINEL" && len(args) == 3:
			out = appendReply(out, s.query(strings.ToLower(args[1]), args[2]))
		default:
			out = appendReply(out, failure("ERR unknown command '"+args[0]+"'"))
		}
	})
	return out
}

// query returns the reply to SENTINEL.
func (s *Sentinel) query(what, master string) reply {
	switch {
	case what == "get-master-addr-by-name" && master != s.master:
		return nothing{}
	case what == "get-master-addr-by-name":
		host, port := splitAddress(s.current())
		return []reply{host, strconv.FormatInt(port, 10)}
	case what == "replicas" && master != s.master:
		return failure("ERR No such master with that name")
	case what == "replicas":
		all := []reply{}
		for _, address := range s.replicas {
			host, port := splitAddress(address)
			all = append(all,
				[]reply{"name", address, "ip", host, "port", strconv.FormatInt(port, 10), "flags", "slave"})
		}
		return all
	}
	return failure("ERR unknown subcommand '" + what + "'. Try SENTINEL HELP.")
}

// maxPushes is the maximum number of unsent messages of a connection.
const maxPushes = 256

// subscribe subscribes a connection to channels. Its first call starts a goroutine that sends
// messages.
func (s *Sentinel) subscribe(c *client, channels []string, out []byte) []byte {
	if c.pushes == nil {
		c.pushes = make(chan []byte, maxPushes)
		s.subscribers = append(s.subscribers, c)
		c.pushing.Go(func() {
			for message := range c.pushes {
				_ = c.write(message) // fails after the connection is closed
			}
		})
	}
	for _, channel := range channels {
		if !slices.Contains(c.channels, channel) {
			c.channels = append(c.channels, channel)
		}
		out = appendReply(out, []reply{"subscribe", channel, int64(len(c.channels))})
	}
	return out
}

// forget is called after a connection has ended.
func (s *Sentinel) forget(c *client) {
	s.locked(func() {
		s.subscribers = slices.DeleteFunc(s.subscribers, func(other *client) bool { return other == c })
	})
	if c.pushes != nil {
		close(c.pushes)
	}
	c.pushing.Wait()
}
