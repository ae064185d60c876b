package answer

import (
	"slices"
	"strconv"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// maxStructured is the maximum number of limits in the structured headers of a reply.
const maxStructured = 16

// collectNamed sets x.named to the charges that the structured headers describe: for each name of an
// enforced limit, the charge with the fewest remaining hits. If there are more than maxStructured
// names, the first ones are described, except that a charge that denies replaces one that does not.
func (x *Exchange) collectNamed() {
	x.named = x.named[:0]
	batch := &x.plan.Batch
next:
	for at, l := range x.plan.Limits[:len(batch.Charges)] {
		if c := &batch.Charges[at]; l == nil || l.Name == "" || l.Hidden || c.Refund || !c.Mode.Denies() ||
			batch.Decisions[at].Skipped {
			continue
		}
		for k, other := range x.named {
			if x.plan.Limits[other].Name == l.Name {
				if batch.Decisions[at].Remaining < batch.Decisions[other].Remaining {
					x.named[k] = at
				}
				continue next
			}
		}
		if len(x.named) < maxStructured {
			x.named = append(x.named, at)
		} else if x.denies(at) {
			x.keepDenying(at)
		}
	}
}

// keepDenying replaces the last element of x.named that does not deny by the charge at.
func (x *Exchange) keepDenying(at int) {
	for k, other := range slices.Backward(x.named) {
		if !x.denies(other) {
			x.named = append(slices.Delete(x.named, k, k+1), at)
			return
		}
	}
}

// appendStructured appends the response headers RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-11: lists of structured-field strings (RFC 9651).
func (x *Exchange) appendStructured(b []byte) []byte {
	if x.collectNamed(); len(x.named) == 0 {
		return b
	}
	for _, header := range [...]struct {
		name       string
		parameters func(b []byte, c *limiter.Charge, d *limiter.Decision) []byte
	}{{"RateLimit-Policy", appendPolicy}, {"RateLimit", appendRemaining}} {
		b = appendMessage(b, fieldResponseHeaders, func(b []byte) []byte {
			return appendMessage(appendString(b, 1, header.name), 2, func(b []byte) []byte {
				for i, at := range x.named {
					if i > 0 {
						b = append(b, ", "...)
					}
					b = appendStructuredText(b, x.plan.Limits[at].Name)
					b = header.parameters(b, &x.plan.Batch.Charges[at], &x.plan.Batch.Decisions[at])
				}
				return b
			})
		})
	}
	return b
}

// appendStructuredText appends a name as a String of RFC 9651, section 3.3.3. Bytes that are not
// printable ASCII become question marks.
func appendStructuredText(b []byte, name string) []byte {
	b = append(b, '"')
	for _, c := range []byte(name[:min(len(name), rules.MaxSentName)]) {
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, rules.PrintableASCII(c))
	}
	return append(b, '"')
}

// appendPolicy appends the parameters of a limit: q, and w in seconds or qu. A bucket has its size
// and the time in which it fills.
func appendPolicy(b []byte, c *limiter.Charge, _ *limiter.Decision) []byte {
	p := c.Policy
	quota := uint64(p.Limit)
	window := p.Window
	switch p.Algorithm {
	case limiter.Concurrency:
		return append(appendParameter(b, ";q=", quota), `;qu="concurrent-requests"`...)
	case limiter.TokenBucket, limiter.LeakyBucket:
		k := p.Bucket()
		if k.Step == 0 { // nothing is admitted
			return appendParameter(b, ";q=", 0)
		}
		quota = k.Full / k.Step
		window = k.Duration(k.Full)
	case limiter.FixedWindow, limiter.SlidingWindow, limiter.SlidingLog:
	}
	return appendParameter(appendParameter(b, ";q=", quota), ";w=", ceilSeconds(window))
}

// appendRemaining appends the parameters r, and t in seconds: the time until the denied hits would
// be admitted, or if none were denied, until r increases to the limit, or by one for a bucket.
func appendRemaining(b []byte, c *limiter.Charge, d *limiter.Decision) []byte {
	b = appendParameter(b, ";r=", d.Remaining)
	reset := d.Reset
	switch p := c.Policy; p.Algorithm {
	case limiter.Concurrency:
		return b
	case limiter.TokenBucket, limiter.LeakyBucket:
		k := p.Bucket()
		if step := k.Duration(k.Step); !d.Over && step > 0 && reset > step {
			reset = (reset-1)%step + 1
		}
	case limiter.FixedWindow, limiter.SlidingWindow, limiter.SlidingLog:
	}
	return appendParameter(b, ";t=", ceilSeconds(reset))
}

func appendParameter(b []byte, name string, v uint64) []byte {
	return strconv.AppendUint(append(b, name...), v, 10)
}
