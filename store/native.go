package store

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
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// Most requests need no script: what they ask of fixed windows counts whether it is refused or not,
// or is a look. INCRBY says what a window has counted with the hits, so what it had before, and GETRANGE
// says that of a look. Running a script costs the store several times these commands: see
// docs/performance.md.
//
// An expiry goes with every INCRBY, in the same write. So no key is left without one, whoever made it.

const (
	// mostNative is how many charges native commands decide of a request: the names of all are compared.
	mostNative = 16
	// mostNativeHits keeps counts below 2^63, where INCRBY fails. Greater hits are for the script, which
	// cuts counts.
	mostNativeHits = 1 << 20
)

// encodeNative is encode for a request that native commands can decide. It reports false for others.
//
// Charges count by themselves there: no group keeps them from it. Of two on one counter the second
// would not know what others did in between.
func (c *call) encodeNative(now limiter.Time, b *limiter.Batch, names [][]byte, jitter time.Duration) bool {
	if !isNative(b, names) {
		return false
	}
	c.reset()
	b.Stored().SetOff()
	c.native, c.cost = true, costOfAll(b)
	for i := range b.Charges {
		from := &b.Charges[i]
		p := from.Policy
		start := len(c.buf)
		c.buf = appendStart(append(c.buf, names[i]...), p, now)
		key := c.since(start)
		at := charge{algorithm: limiter.FixedWindow, key: len(c.keys), first: true, end: p.WindowEnd(now), hits: int64(b.Stored().Hits(i))} //nolint:gosec // at most mostNativeHits
		c.keys, c.charges = append(c.keys, key), append(c.charges, at)
		if at.hits == 0 {
			c.args = append(c.args, "GETRANGE", key, "0", "31") // of what other programs wrote not all
			continue
		}
		c.args = append(c.args, "INCRBY", key, c.number(at.hits), "EXPIREAT", key, c.number(at.expires(p, jitter)))
	}
	return true
}

func isNative(b *limiter.Batch, names [][]byte) bool {
	if len(b.Charges) > mostNative {
		return false
	}
	for i := range b.Charges {
		c := &b.Charges[i]
		if c.Refund || !isFixed(c.Policy) || c.Hits > mostNativeHits || c.Hits > 0 && !c.Policy.CountRefused ||
			slices.ContainsFunc(names[:i], func(name []byte) bool { return bytes.Equal(name, names[i]) }) {
			return false
		}
	}
	return true
}

// expires returns when the key of a fixed window does, in seconds since 1970.
func (at *charge) expires(p *limiter.Policy, jitter time.Duration) int64 {
	late := rand.Int64N(int64(min(jitter, p.Window)/time.Second) + 1) //nolint:gosec // no secret
	return int64(at.end+outlives)/int64(time.Second) + late
}

// commands are those of a native call.
func (c *call) commands() iter.Seq[[]string] {
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

// counted has a know what the store said to its next command. told is how many charges it has told of.
func (a *ask) counted(command []string, told int, said *resp.Reply) int {
	number := int64(0)
	switch err := failed(said); {
	case err != nil:
		if text := err.Error(); strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "not an integer") || strings.Contains(text, "would overflow") {
			err = &foreignError{command[1], err}
		}
		a.err = cmp.Or(a.err, err)
	case said.Kind(0) == resp.Integer:
		number = said.Int(0)
	case said.Text(0) != "": // of a look
		n, err := strconv.ParseInt(said.Text(0), 10, 64)
		if err != nil && a.err == nil {
			a.err = &foreignError{command[1], errForeign}
		}
		number = n
	}
	if command[0] == "EXPIREAT" {
		return told
	}
	at := &a.call.charges[told]
	before := max(number-at.hits, 0)
	a.found = append(a.found, limiter.State{Hits: uint64(before), Time: at.end})
	return told + 1
}

// A foreignError says that another program wrote the key of a counter.
type foreignError struct {
	key string
	err error
}

var errForeign = errors.New("the value is none of sluice's")

func (e *foreignError) Error() string { return "read the counter " + e.key + ": " + e.err.Error() }
func (e *foreignError) Unwrap() error { return e.err }

func isForeign(err error) bool {
	var f *foreignError
	return errors.As(err, &f)
}
