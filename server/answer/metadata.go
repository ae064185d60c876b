package answer

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// appendMetadata appends dynamic_metadata, field 6 of a RateLimitResponse: the metadata of
// envoyproxy/ratelimit and the decisions, if enabled, soft, and the leases.
func (s *Service) appendMetadata(
	b []byte, x *Exchange, rules *activeRules, denying int, soft *descriptors.Limit,
) []byte {
	return appendMessage(b, 6, func(b []byte) []byte {
		if s.settings.DynamicMetadata {
			b = appendRequestMetadata(b, x)
		}
		if s.settings.DecisionMetadata {
			b = appendMember(b, "sluice", func(b []byte) []byte { return appendDecisions(b, x, rules) })
		}
		if s.settings.DeniedBy && denying >= 0 {
			b = x.appendDeniedBy(b, denying)
		}
		if soft != nil && s.settings.DeniedBy {
			b = appendTextMember(b, "soft", x.softName(soft))
		}
		if x.plan.Leases {
			b = appendLeases(b, x)
		}
		return b
	})
}

// appendDeniedBy appends the name of the limit of match i, which denied x's request, or else its
// rule, for access logs and filters after the rate limit filter. It contains only printable ASCII;
// other bytes of the name become question marks.
func (x *Exchange) appendDeniedBy(b []byte, i int) []byte {
	x.metricKey = x.appendLimitName(x.metricKey[:0], &x.plan.Matches[i], x.statuses[i].charge)
	return appendTextMember(b, "denied_by", rules.AppendSentName(x.metricKey[:0], x.metricKey))
}

// appendLeases appends the number of each lease under the lease's name. Envoy returns it as the
// hits of a descriptor.
func appendLeases(b []byte, x *Exchange) []byte {
	for at, name := range x.plan.NamedLeases() {
		x.metricKey = append(x.metricKey[:0], name.Limit...)
		if name.Nth > 1 {
			x.metricKey = strconv.AppendInt(append(x.metricKey, '.'), int64(name.Nth), 10)
		}
		b = appendNumberMember(b, x.metricKey, float64(x.plan.Batch.Lease(at)))
	}
	return b
}

// appendRequestMetadata appends the fields domain, descriptors, hitsAddend and metadata, which
// envoyproxy/ratelimit also has.
func appendRequestMetadata(b []byte, x *Exchange) []byte {
	req := &x.decoder.req
	b = appendTextMember(b, "domain", utf8Text(req.Domain))
	b = appendMember(b, "descriptors", func(b []byte) []byte {
		return appendList(b, len(req.Descriptors), func(b []byte, i int) []byte {
			return appendMessage(b, 5, func(b []byte) []byte { return appendDescriptor(b, &req.Descriptors[i]) })
		})
	})
	if req.HitsAddend != 0 {
		b = appendNumberMember(b, "hitsAddend", float64(req.HitsAddend))
	}
	var passed map[string]any
	for i := range x.plan.Matches {
		m := &x.plan.Matches[i]
		if m.Rule == nil || m.Count == 0 && len(m.Rule.Limits) > 0 || x.statuses[i].code != codeOK || x.plan.Exempt != nil {
			continue // the rule was not charged, or denied
		}
		switch tree := m.Rule.Metadata(); {
		case tree == nil:
		case passed == nil:
			passed = tree
		default:
			passed, _ = mergeTrees(passed, tree)
		}
	}
	if passed != nil {
		b = appendMember(b, "metadata", func(b []byte) []byte { return appendTree(b, passed) })
	}
	return b
}

func appendDescriptor(b []byte, d *descriptors.Descriptor) []byte {
	b = appendMember(b, "entries", func(b []byte) []byte {
		return appendList(b, len(d.Entries), func(b []byte, i int) []byte {
			return appendMessage(b, 3, func(b []byte) []byte {
				b = append(append(b, utf8Text(d.Entries[i].Key)...), '=')
				return append(b, utf8Text(d.Entries[i].Value)...)
			})
		})
	})
	if d.HasOverride {
		b = appendMember(b, "limit", func(b []byte) []byte {
			return appendMessage(b, 3, func(b []byte) []byte {
				b = append(b, "requests_per_unit:"...)
				b = strconv.AppendUint(b, uint64(d.Override.RequestsPerUnit), 10)
				return appendUnit(append(b, " unit:"...), d.Override.Unit)
			})
		})
	}
	if d.HasHits {
		b = appendNumberMember(b, "hitsAddend", float64(d.Hits))
	}
	return b
}

// utf8Text returns s with invalid UTF-8 replaced by U+FFFD. Envoy rejects a reply with invalid
// UTF-8 in a string, and would admit the request.
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

// appendDecisions appends the decisions as a Struct Value. The decision of a descriptor contains
// the rule, and the name and value of the limit that determined its status, the used hits of the limit, the seconds until the
// same hits would be admitted (0 if they were, -1 for never), and the charged hits, which a client
// may refund.
func appendDecisions(b []byte, x *Exchange, rules *activeRules) []byte {
	return appendMessage(b, 5, func(b []byte) []byte {
		b = appendTextMember(b, "domain", utf8Text(x.decoder.req.Domain))
		b = appendTextMember(b, "config_hash", rules.set.Hash)
		return appendMember(b, "decisions", func(b []byte) []byte {
			return appendList(b, len(x.plan.Matches), func(b []byte, i int) []byte {
				return appendMessage(b, 5, func(b []byte) []byte { return appendDecision(b, x, i) })
			})
		})
	})
}

func appendDecision(b []byte, x *Exchange, i int) []byte {
	m := &x.plan.Matches[i]
	at := x.statuses[i].charge
	switch {
	case m.Override:
		b = appendTextMember(b, "rule", "override")
	case m.Rule != nil:
		x.metricKey, _, _ = m.Rule.AppendMetricKey(x.metricKey[:0], nil)
		b = appendTextMember(b, "rule", x.metricKey)
	}
	if m.Count == 0 {
		return b
	}
	d := &x.plan.Batch.Decisions[at]
	l := x.plan.Limits[at]
	if l.Name != "" {
		b = appendTextMember(b, "name", l.Name)
	}
	b = appendMember(b, "limit", func(b []byte) []byte {
		return appendMessage(b, 3, func(b []byte) []byte {
			b = strconv.AppendUint(b, uint64(l.RequestsPerUnit), 10)
			if !l.HasWindow() {
				return b
			}
			b = append(b, '/')
			if l.UnitMultiplier > 1 {
				b = strconv.AppendUint(b, uint64(l.UnitMultiplier), 10)
			}
			return append(b, l.Unit.String()...)
		})
	})
	charge := &x.plan.Batch.Charges[at]
	used := d.Before + d.Charged
	charged := float64(d.Charged)
	if charge.Refund {
		used = d.Before - min(d.Before, x.plan.Batch.Stored().Refunded(at))
		charged = -charged
	}
	retry := d.RetryAfter.Seconds()
	if d.RetryAfter == limiter.Never {
		retry = -1
	}
	b = appendNumberMember(b, "used", float64(used))
	b = appendNumberMember(b, "retry_after", retry)
	return appendNumberMember(b, "charged", charged)
}
