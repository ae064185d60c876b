package luahost

import (
	"net"
	"strconv"
	"strings"
)

// A Sentinel answers queries for the address of a primary. Its methods may be called concurrently.
// [NewSentinel] returns one.
type Sentinel struct {
	master  string
	current func() string
}

// NewSentinel returns a Sentinel of a primary, whose address current returns. current may be called
// concurrently.
func NewSentinel(master string, current func() string) *Sentinel {
	return &Sentinel{master: master, current: current}
}

// ServeConn serves a connection until it ends, and closes it.
func (s *Sentinel) ServeConn(conn net.Conn) { serveConn(s, conn) }

// Serve serves the connections of a listener until that is closed, as [Server.Serve] does.
func (s *Sentinel) Serve(l net.Listener) error { return serve(l, s.ServeConn) }

// execute runs a command and appends its reply to out.
func (s *Sentinel) execute(_ *client, args []string, out []byte) []byte {
	switch name := strings.ToUpper(args[0]); {
	case name == "PING":
		return appendReply(out, status("PONG"))
	case name == "SENTINEL" && len(args) == 3:
		return appendReply(out, s.query(strings.ToLower(args[1]), args[2]))
	default:
		return appendReply(out, failure("ERR unknown command '"+args[0]+"'"))
	}
}

// query returns the reply to SENTINEL.
func (s *Sentinel) query(what, master string) reply {
	switch {
	case what == "get-master-addr-by-name" && master != s.master:
		return nothing{}
	case what == "get-master-addr-by-name":
		host, port := splitAddress(s.current())
		return []reply{host, strconv.FormatInt(port, 10)}
	}
	return failure("ERR unknown subcommand '" + what + "'. Try SENTINEL HELP.")
}
