package script

import (
	"bytes"
	"cmp"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// Requests need no script if their charges are on fixed windows, and are peeks or count even if
// denied. INCRBY returns the new count, and so the count before; GETRANGE reads the count of a
// peek. A script costs the store several times as much: see docs/performance.md.
//
// Every INCRBY is followed by EXPIREAT in the same write, so no key is left without an expiry.

const (
	// maxNative is the maximum number of charges of a native request: all pairs of names are
	// compared.
	maxNative = 16
	// maxNativeHits keeps counts below 2^63, where INCRBY fails. More hits need the script, which
	// caps counts.
	maxNativeHits = 1 << 20
)

// EncodeNative is Encode for a request that native commands can decide. It reports false for other
// requests.
//
// Each charge counts independently of its group. Two charges on one counter are not native, because
// other requests may run between them.
func (c *Call) EncodeNative(now limiter.Time, b *limiter.Batch, names [][]byte, jitter time.Duration) bool {
	if !isNative(b, names) {
		return false
	}
	c.Reset()
	b.Stored().OffsetRefunds()
	c.Native = true
	c.Cost = CostOfAll(b)
	for i := range b.Charges {
		from := &b.Charges[i]
		p := from.Policy
		start := len(c.buf)
		c.buf = AppendName(c.buf, now, p, names[i])
		key := c.tail(start)
		at := charge{
			algorithm: limiter.FixedWindow, key: len(c.Keys), first: true, end: p.WindowEnd(now),
		}
		at.hits = int64(b.Stored().Hits(i)) //nolint:gosec // at most maxNativeHits
		c.Keys = append(c.Keys, key)
		c.charges = append(c.charges, at)
		if at.hits == 0 {
			c.args = append(c.args, "GETRANGE", key, "0", "31") // bounds the reply for values of other programs
			continue
		}
		c.args = append(c.args, "INCRBY", key, c.number(at.hits), "EXPIREAT", key, c.number(c.expires(&at, p, jitter)))
	}
	return true
}

func isNative(b *limiter.Batch, names [][]byte) bool {
	if len(b.Charges) > maxNative {
		return false
	}
	for i := range b.Charges {
		if NativeCommands(&b.Charges[i]) == 0 ||
			slices.ContainsFunc(names[:i], func(name []byte) bool { return bytes.Equal(name, names[i]) }) {
			return false
		}
	}
	return true
}

// NativeCommands returns the number of commands that decide a charge without a script, 0 if it needs
// one.
func NativeCommands(c *limiter.Charge) int {
	switch {
	case c.Refund || c.Reserve || c.Penalises() || !IsFixed(c.Policy) || c.Hits > maxNativeHits ||
		c.Hits > 0 && !c.Policy.CountRefused:
		return 0
	case c.Hits == 0:
		return 1
	default:
		return 2
	}
}

// expires returns when the key of a fixed window expires, in seconds since 1970 by the server's
// clock.
func (c *Call) expires(at *charge, p *limiter.Policy, jitter time.Duration) int64 {
	late := rand.Int64N(int64(min(jitter, p.Window)/time.Second) + 1) //nolint:gosec // no secret
	return int64(at.end+keyMargin)/int64(time.Second) + c.ClockAhead + late
}

// commands returns the commands of a native call.
func (c *Call) commands() iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for from := 0; from < len(c.args); {
			to := from + 3
			if c.args[from] == "GETRANGE" {
				to = from + 4
			}
			if !yield(c.args[from:to]) {
				return
			}
			from = to
		}
	}
}

// readReply reads the reply to the next command.
//
// An INCRBY is never repeated. If the expiry after it was redirected, its hits are counted, and
// would count twice if both were sent again, so the expiry is left to [Call.EncodeExpire].
func (c *Call) readReply(command []string, reply *resp.Reply) {
	err := redis.ReplyError(reply)
	if command[0] == "EXPIREAT" {
		if n := len(c.Found); err != nil && n > 0 && c.charges[n-1].counted && redis.KindOf(err) == redis.Cluster {
			c.LacksExpiry = true
		} else {
			c.Err = cmp.Or(c.Err, err)
		}
		return
	}
	at := &c.charges[len(c.Found)]
	number := int64(0)
	at.counted = false
	switch {
	case err != nil:
		if text := err.Error(); strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "not an integer") ||
			strings.Contains(text, "would overflow") {
			err = &ForeignError{command[1], err}
		}
		c.Err = cmp.Or(c.Err, err)
	case reply.Kind(0) == resp.Integer:
		number = reply.Int(0)
		at.counted = true
	case reply.Text(0) != "": // a peek
		var ours bool
		if number, ours = readCount(reply.Text(0)); !ours {
			c.Err = cmp.Or[error](c.Err, &ForeignError{command[1], errForeign})
		}
	}
	c.Found = append(c.Found, limiter.State{Hits: uint64(max(number-at.hits, 0)), Time: at.end})
}

// EncodeExpire encodes the expiries of a native call whose hits are counted.
func (c *Call) EncodeExpire(native *Call) {
	c.Reset()
	c.Native = true
	c.Cost = native.Cost
	for command := range native.commands() {
		if command[0] == "EXPIREAT" {
			c.args = append(c.args, "EXPIREAT", c.text([]byte(command[1])), c.text([]byte(command[2])))
		}
	}
}

// Counted reports whether c is a native call and its last reply confirms that its hits on the named
// counter are counted.
func (c *Call) Counted(name string) bool {
	return c.Native &&
		slices.ContainsFunc(c.charges, func(at charge) bool { return at.counted && c.Keys[at.key] == name })
}

// readCount is read_count of counters.lua.
func readCount(text string) (n int64, ours bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && len(text) <= 18 && strconv.FormatInt(n, 10) == text
}

// A ForeignError reports that another program wrote the key of a counter.
type ForeignError struct {
	Key string
	Err error
}

var errForeign = errors.New("the value was not written by sluice")

// Error names the key.
func (e *ForeignError) Error() string { return "read the counter " + e.Key + ": " + e.Err.Error() }

// Unwrap returns the error without the key.
func (e *ForeignError) Unwrap() error { return e.Err }
