package answer

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// object is a rule's metadata with its fields sorted, so that equal requests get equal bytes.
type object struct {
	names  []string
	values []any // *object, []any, string, float64, bool, nil
}

func newObject(m map[string]any) *object {
	o := &object{}
	for name := range m {
		o.names = append(o.names, name)
	}
	slices.Sort(o.names)
	for _, name := range o.names {
		o.values = append(o.values, sorted(m[name]))
	}
	return o
}

func sorted(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return newObject(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = sorted(v[i])
		}
		return list
	default:
		return v
	}
}

func (o *object) has(name string) bool {
	_, ok := slices.BinarySearch(o.names, name)
	return ok
}

// appendMetadata appends dynamic_metadata, field 6 of a RateLimitResponse: what
// envoyproxy/ratelimit has there and the decisions, each if it is switched on.
func (s *Service) appendMetadata(b []byte, x *Exchange, rules *serving) []byte {
	return message(b, 6, func(b []byte) []byte {
		if s.settings.DynamicMetadata {
			b = appendRequest(b, x, rules)
		}
		if s.settings.DecisionMetadata {
			b = member(b, "sluice", func(b []byte) []byte { return appendDecisions(b, x, rules) })
		}
		return b
	})
}

// The functions below write google.protobuf.Struct and Value. A Struct's field is a map entry
// (field 1) of a key (1) and a Value (2), a list is a message of Values (1). The fields of a Value
// are null (1), number (2), string (3), bool (4), Struct (5) and list (6).

// member appends a field of a Struct. value appends the inside of its Value.
func member(b []byte, name string, value func([]byte) []byte) []byte {
	return message(b, 1, func(b []byte) []byte { return message(appendString(b, 1, name), 2, value) })
}

func memberNumber(b []byte, name string, v float64) []byte {
	return member(b, name, func(b []byte) []byte { return appendNumber(b, v) })
}

func memberText[T string | []byte](b []byte, name string, v T) []byte {
	return member(b, name, func(b []byte) []byte { return appendString(b, 3, v) })
}

func appendNumber(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, 2<<3|1), math.Float64bits(v))
}

// appendList appends a list of n Values. element appends the inside of one.
func appendList(b []byte, n int, element func(b []byte, i int) []byte) []byte {
	return message(b, 6, func(b []byte) []byte {
		for i := range n {
			b = message(b, 1, func(b []byte) []byte { return element(b, i) })
		}
		return b
	})
}

// appendAny appends the inside of a Value.
func appendAny(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return appendString(b, 3, v)
	case float64:
		return appendNumber(b, v)
	case bool:
		if v {
			return append(b, 4<<3, 1)
		}
		return append(b, 4<<3, 0)
	case *object:
		return appendMerged(b, []*object{v})
	case []any:
		return appendList(b, len(v), func(b []byte, i int) []byte { return appendAny(b, v[i]) })
	default: // nil
		return append(b, 1<<3, 0)
	}
}

// appendMerged appends the union of objects as a Struct Value. The value of a name is that of the
// first object that has it. If that is an object, it is merged with the others of the same name.
func appendMerged(b []byte, objects []*object) []byte {
	return message(b, 5, func(b []byte) []byte {
		for i, o := range objects {
			for at, name := range o.names {
				if slices.ContainsFunc(objects[:i], func(earlier *object) bool { return earlier.has(name) }) {
					continue
				}
				b = member(b, name, func(b []byte) []byte {
					if inner, ok := o.values[at].(*object); ok {
						return appendMerged(b, sameName(inner, name, objects[i+1:]))
					}
					return appendAny(b, o.values[at])
				})
			}
		}
		return b
	})
}

func sameName(first *object, name string, rest []*object) []*object {
	all := []*object{first}
	for _, o := range rest {
		if i, ok := slices.BinarySearch(o.names, name); ok {
			if inner, ok := o.values[i].(*object); ok {
				all = append(all, inner)
			}
		}
	}
	return all
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
			b = append(strconv.AppendUint(b, uint64(l.RequestsPerUnit), 10), '/')
			if l.UnitMultiplier > 1 {
				b = strconv.AppendUint(b, uint64(l.UnitMultiplier), 10)
			}
			return append(b, l.Unit.String()...)
		})
	})
	charge := &x.plan.Batch.Charges[at]
	used, charged := d.Before+d.Charged, float64(d.Charged)
	if charge.Refund {
		used, charged = d.Before-min(d.Before, d.Charged), -charged
	}
	retry := d.RetryAfter.Seconds()
	if d.RetryAfter == limiter.Never {
		retry = -1
	}
	b = memberNumber(b, "used", float64(used))
	b = memberNumber(b, "retry_after", retry)
	return memberNumber(b, "charged", charged)
}
