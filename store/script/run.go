package script

import (
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// A Run is one run of a script on the calls of its message. Or it is calls that the server's own commands decide.
type Run struct {
	calls         []*Call
	Message       message
	Reply         reply
	Native        bool
	Asking        bool          // of a node that is only about to get the slot
	allowed       resp.Reply    // to ASKING
	nativeReplies []*resp.Reply // to each native command
	unknown       bool          // the server lacks the script
	Err           error
}

// Clear makes r a run without calls, at the time of [message.clear].
func (r *Run) Clear(at limiter.Time) {
	clear(r.calls)
	r.calls, r.Native, r.Asking, r.Err = r.calls[:0], false, false, nil
	r.Message.clear(at)
}

// Add appends c, which must not change while r is used.
func (r *Run) Add(c *Call) {
	r.calls = append(r.calls, c)
	if !r.Native {
		r.Message.add(c)
	}
}

// replyLimits is more than what the script answers m by: a counter of five numbers and a ring, each.
func (m *message) replyLimits() resp.Limits {
	return resp.Limits{Values: 64 + 4*(len(m.Keys)+len(m.Args)), Bytes: 4<<10 + 512*len(m.Keys)}
}

// Run sends all runs in one write. Each gets a reply or an error of its own. It waits until all replies are there or the
// connection is closed. SCRIPT LOAD is forbidden by some proxies, so a server that lacks the script, since it was
// started or took over, is sent the whole.
func (s *script) Run(c *redis.Conn, all ...*Run) {
	if sendRuns(c, all, "EVALSHA", s.sha, func(*Run) bool { return true }) {
		sendRuns(c, all, "EVAL", s.text, func(r *Run) bool { return r.unknown && !r.Native })
	}
}

// sendRuns runs the script for those that want it. It reports whether the server lacks the script.
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

// appendAsking has a node that is only about to get the slot do what follows.
func (r *Run) appendAsking(x *redis.Exchange) {
	if r.Asking {
		r.allowed.Reset(redis.ShortReply)
		x.Append(&r.allowed, "ASKING")
	}
}

// append adds the run of a script.
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

// appendNative adds the commands of r's calls.
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

// readNative has the calls of a native run know what the store said.
func (r *Run) readNative() {
	said := r.nativeReplies
	for _, c := range r.calls {
		c.Found, c.Err, c.LacksExpiry, c.Negative = c.Found[:0], nil, false, false
		for command := range c.commands() {
			c.readReply(command, said[0])
			said = said[1:]
		}
	}
}

// Cost estimates how long r takes in the store.
func (r *Run) Cost() (total time.Duration) {
	for _, c := range r.calls {
		total += c.Cost
	}
	return total
}

// Read has each call know what its charges found, or its foreign key.
func (r *Run) Read() {
	if r.Native { // they do
		return
	}
	for _, c := range r.calls {
		if c.Err = r.Reply.Read(&r.Message, c); c.Err != nil && !isForeign(c.Err) {
			r.Err = redis.BadReply("%w", c.Err)
			return
		}
	}
	r.Reply.readTook()
}
