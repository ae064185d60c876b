package answer

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// appendMetadata appends dynamic_metadata, field 6 of a RateLimitResponse: what
// envoyproxy/ratelimit has there and the decisions, each if it is switched on, and the leases.
func (s *Service) appendMetadata(b []byte, x *Exchange, rules *serving) []byte {
	return message(b, 6, func(b []byte) []byte {
		if s.settings.DynamicMetadata {
			b = appendRequest(b, x, rules)
		}
		if s.settings.DecisionMetadata {
			b = member(b, "sluice", func(b []byte) []byte { return appendDecisions(b, x, rules) })
		}
		if x.plan.Leases {
			b = appendLeases(b, x)
		}
		return b
	})
}

// appendLeases appends each lease under its name. Envoy brings it back as the hits of a descriptor.
func appendLeases(b []byte, x *Exchange) []byte {
	for at, name := range x.plan.NamedLeases() {
		x.metric = append(x.metric[:0], name.Limit...)
		if name.Nth > 1 {
			x.metric = strconv.AppendInt(append(x.metric, '.'), int64(name.Nth), 10)
		}
		b = memberNumber(b, x.metric, float64(x.plan.Batch.Lease(at)))
	}
	return b
}

// appendRequest appends the fields domain, descriptors, hitsAddend and metadata.
func appendRequest(b []byte, x *Exchange, rules *serving) []byte {
	req := &x.decoder.req
	b = memberText(b, "domain", utf8Text(req.Domain))
	b = member(b, "descriptors", func(b []byte) []byte {
		return appendList(b, len(req.Descriptors), func(b []byte, i int) []byte {
			return message(b, 5, func(b []byte) []byte { return appendDescriptor(b, &req.Descriptors[i]) })
		})
	})
	if req.HitsAddend != 0 {
		b = memberNumber(b, "hitsAddend", float64(req.HitsAddend))
	}
	x.passed = x.passed[:0]
	for i := range x.plan.Matches {
		m := &x.plan.Matches[i]
		if m.Count > 0 && m.Rule != nil && x.statuses[i].code == codeOK {
			if o := rules.metadata[m.Rule]; o != nil {
				x.passed = append(x.passed, o)
			}
		}
	}
	if len(x.passed) > 0 {
		b = member(b, "metadata", func(b []byte) []byte { return appendMerged(b, x.passed) })
	}
	return b
}

func appendDescriptor(b []byte, d *descriptors.Descriptor) []byte {
	b = member(b, "entries", func(b []byte) []byte {
		return appendList(b, len(d.Entries), func(b []byte, i int) []byte {
			return message(b, 3, func(b []byte) []byte {
				b = append(append(b, utf8Text(d.Entries[i].Key)...), '=')
				return append(b, utf8Text(d.Entries[i].Value)...)
			})
		})
	})
	if d.HasOverride {
		b = member(b, "limit", func(b []byte) []byte {
			return message(b, 3, func(b []byte) []byte {
				b = append(b, "requests_per_unit:"...)
				b = strconv.AppendUint(b, uint64(d.Override.RequestsPerUnit), 10)
				return appendUnit(append(b, " unit:"...), d.Override.Unit)
			})
		})
	}
	if d.HasHits {
		b = memberNumber(b, "hitsAddend", float64(d.Hits))
	}
	return b
}

// utf8Text returns s with U+FFFD in place of bytes that are not UTF-8. Envoy does not accept a
// reply with such bytes in a string, and would let the request pass.
func utf8Text(s []byte) []byte {
	if utf8.Valid(s) {
		return s
	}
	return bytes.ToValidUTF8(s, []byte("\uFFFD"))
}

// appendUnit appends the name of an envoy.type.v3.RateLimitUnit.
func appendUnit(b []byte, unit int32) []byte {
	if unit == 0 {
		return append(b, "UNKNOWN"...)
	}
	u := rules.Unit(unit)
	if u.Seconds() == 0 {
		return strconv.AppendInt(b, int64(unit), 10)
	}
	for _, c := range []byte(u.String()) {
		b = append(b, c-'a'+'A')
	}
	return b
}

// appendDecisions appends the decisions as a Struct Value. For each descriptor it has the rule and
// limit that gave its status, how much of that limit is used now, the seconds until the same hits
// would pass (0 if they did, -1 if never), and what was charged. A client may refund that much.
func appendDecisions(b []byte, x *Exchange, rules *serving) []byte {
	return message(b, 5, func(b []byte) []byte {
		b = memberText(b, "domain", utf8Text(x.decoder.req.Domain))
		b = memberText(b, "config_hash", rules.set.Hash)
		return member(b, "decisions", func(b []byte) []byte {
			return appendList(b, len(x.plan.Matches), func(b []byte, i int) []byte {
				return message(b, 5, func(b []byte) []byte { return appendDecision(b, x, &x.plan.Matches[i]) })
			})
		})
	})
}

func appendDecision(b []byte, x *Exchange, m *descriptors.Match) []byte {
	switch {
	case m.Override:
		b = memberText(b, "rule", "override")
	case m.Rule != nil:
		x.metric, _, _ = m.Rule.AppendMetricKey(x.metric[:0], nil)
		b = memberText(b, "rule", x.metric)
	}
	if m.Count == 0 {
		return b
	}
	at := x.statusCharge(m)
	d, l := &x.plan.Batch.Decisions[at], x.plan.Limits[at]
	b = member(b, "limit", func(b []byte) []byte {
		return message(b, 3, func(b []byte) []byte {
			b = strconv.AppendUint(b, uint64(l.RequestsPerUnit), 10)
			if !l.HasWindow() {
				return b
			}
			if b = append(b, '/'); l.UnitMultiplier > 1 {
				b = strconv.AppendUint(b, uint64(l.UnitMultiplier), 10)
			}
			return append(b, l.Unit.String()...)
		})
	})
	charge := &x.plan.Batch.Charges[at]
	used, charged := d.Before+d.Charged, float64(d.Charged)
	if charge.Refund {
		used, charged = d.Before-min(d.Before, x.plan.Batch.Stored().Refunded(at)), -charged
	}
	retry := d.RetryAfter.Seconds()
	if d.RetryAfter == limiter.Never {
		retry = -1
	}
	b = memberNumber(b, "used", float64(used))
	b = memberNumber(b, "retry_after", retry)
	return memberNumber(b, "charged", charged)
}
