package script

import (
	"errors"
	"strings"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// A Run is one run of a script for several calls, or a batch of native calls.
type Run struct {
	calls         []*Call
	Message       message
	Reply         reply
	Native        bool
	Asking        bool          // send ASKING first: the node is importing the slot
	allowed       resp.Reply    // reply to ASKING
	nativeReplies []*resp.Reply // reply to each native command
	unknown       bool          // the server does not know the script
	Err           error
}

// Clear empties r. at is the time of the run, 0 for the server's clock.
func (r *Run) Clear(at limiter.Time) {
	clear(r.calls)
	r.calls = r.calls[:0]
	r.Native = false
	r.Asking = false
	r.Err = nil
	r.Message.clear(at)
}

// Add appends c, which must not change while r is used.
func (r *Run) Add(c *Call) {
	r.calls = append(r.calls, c)
	if !r.Native {
		r.Message.add(c)
	}
}

// replyLimits bounds the reply to m: more than five numbers and a ring for each counter.
func (m *message) replyLimits() resp.Limits {
	return resp.Limits{Values: 64 + 4*(len(m.Keys)+len(m.Args)), Bytes: 4<<10 + 512*len(m.Keys)}
}

// Run sends all runs in one write, and sets the reply or the error of each. It waits until all
// replies are there or the connection is closed. Some proxies forbid SCRIPT LOAD, so the script is
// sent by EVAL to a server that does not know it, after a start or a failover.
func (s *script) Run(c *redis.Conn, all ...*Run) {
	if sendRuns(c, all, "EVALSHA", s.sha, func(*Run) bool { return true }) {
		sendRuns(c, all, "EVAL", s.text, func(r *Run) bool { return r.unknown && !r.Native })
	}
}

// sendRuns sends the runs for which wants returns true. It reports whether the server does not know
// the script.
func sendRuns(c *redis.Conn, all []*Run, command, script string, wants func(*Run) bool) (lacks bool) {
	x := c.Begin()
	defer c.Free(x)
	for _, r := range all {
		switch {
		case !wants(r):
		case r.Native:
			r.appendNative(x)
		default:
			r.append(x, command, script)
		}
	}
	err := c.Exchange(x)
	for _, r := range all {
		switch {
		case !wants(r):
		case err != nil:
			r.Err = err
		case r.Native:
			r.Err = nil
			r.readNative()
		default:
			r.Err = r.Reply.begin()
			raw := &r.Reply.raw
			r.unknown = raw.Kind(0) == resp.Failed && strings.HasPrefix(raw.Text(0), "NOSCRIPT")
			lacks = lacks || r.unknown
		}
	}
	return lacks
}

// appendAsking appends ASKING for a node that is importing the slot.
func (r *Run) appendAsking(x *redis.Exchange) {
	if r.Asking {
		r.allowed.Reset(redis.ShortReply)
		x.Append(&r.allowed, "ASKING")
	}
}

// append appends the command that runs the script.
func (r *Run) append(x *redis.Exchange, command, script string) {
	r.appendAsking(x)
	m := &r.Message
	r.Reply.raw.Reset(m.replyLimits())
	x.Command(&r.Reply.raw, 3+len(m.Keys)+len(m.Args))
	x.Argument(command)
	x.Argument(script)
	x.Argument(numeral(len(m.Keys)))
	for _, key := range m.Keys {
		x.Argument(key)
	}
	for _, arg := range m.Args {
		x.Argument(arg)
	}
}

// appendNative appends the commands of r's calls.
func (r *Run) appendNative(x *redis.Exchange) {
	n := 0
	for _, c := range r.calls {
		for command := range c.commands() {
			r.appendAsking(x)
			if n == len(r.nativeReplies) {
				r.nativeReplies = append(r.nativeReplies, &resp.Reply{})
			}
			r.nativeReplies[n].Reset(redis.ShortReply)
			x.Append(r.nativeReplies[n], command...)
			n++
		}
	}
}

// readNative reads the replies of native calls.
func (r *Run) readNative() {
	replies := r.nativeReplies
	for _, c := range r.calls {
		c.Found = c.Found[:0]
		c.Err = nil
		c.LacksExpiry = false
		for command := range c.commands() {
			c.readReply(command, replies[0])
			replies = replies[1:]
		}
	}
}

// Read reads the states that the charges of each call found, or its foreign key.
func (r *Run) Read() {
	if r.Native { // already read
		return
	}
	for _, c := range r.calls {
		c.Err = r.Reply.Read(&r.Message, c)
		if _, foreign := errors.AsType[*ForeignError](c.Err); c.Err != nil && !foreign {
			r.Err = redis.BadReply("%w", c.Err)
			return
		}
	}
}
