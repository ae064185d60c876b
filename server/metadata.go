package server

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

func (o *object) get(name string) (any, bool) {
	i, ok := slices.BinarySearch(o.names, name)
	if !ok {
		return nil, false
	}
	return o.values[i], true
}

// appendMetadata appends dynamic_metadata, field 6 of a RateLimitResponse: what
// envoyproxy/ratelimit has there and the decisions, each if it is switched on.
func (s *Service) appendMetadata(b []byte, c *Call, rules *serving) []byte {
	b = append(b, 6<<3|2)
	start := len(b)
	if s.settings.DynamicMetadata {
		b = s.appendRequest(b, c, rules)
	}
	if s.settings.DecisionMetadata {
		f := len(b) + 1
		b = openField(b, "sluice")
		b = s.appendDecisions(b, c, rules)
		b = closeField(b, f)
	}
	return closeMessage(b, start)
}

// The functions below write google.protobuf.Struct and Value. A Struct's field is a map entry
// (field 1) of a key (1) and a Value (2). A message of unknown length begins with its tag;
// closeMessage ends it.

// openField begins a field of a Struct and its Value. The caller notes len(b)+1 before it, appends
// the Value's bytes, and passes that number to closeField.
func openField[T string | []byte](b []byte, name T) []byte {
	b = append(b, 1<<3|2)
	b = appendString(b, 1, name)
	return append(b, 2<<3|2)
}

// closeField ends the field that began when b had the length start-1.
func closeField(b []byte, start int) []byte {
	// The Value begins after the key: tag, length, name, and the Value's own tag.
	n, width := binary.Uvarint(b[start+1:])
	b = closeMessage(b, start+1+width+int(n)+1)
	return closeMessage(b, start)
}

func appendNumber(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, 2<<3|1), math.Float64bits(v))
}

func appendText[T string | []byte](b []byte, v T) []byte { return appendString(b, 3, v) }

func fieldNumber(b []byte, name string, v float64) []byte {
	f := len(b) + 1
	return closeField(appendNumber(openField(b, name), v), f)
}

func fieldText[T string | []byte](b []byte, name string, v T) []byte {
	f := len(b) + 1
	return closeField(appendText(openField(b, name), v), f)
}

// appendAny appends the inside of a Value.
func appendAny(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return appendText(b, v)
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
		b = append(b, 6<<3|2)
		list := len(b)
		for _, e := range v {
			b = append(b, 1<<3|2)
			at := len(b)
			b = closeMessage(appendAny(b, e), at)
		}
		return closeMessage(b, list)
	default: // nil
		return append(b, 1<<3, 0)
	}
}

// appendMerged appends the union of objects as a Struct Value. The value of a name is that of the
// first object that has it. If that is an object, it is merged with the others of the same name.
func appendMerged(b []byte, objects []*object) []byte {
	b = append(b, 5<<3|2)
	start := len(b)
	for i, o := range objects {
	names:
		for at, name := range o.names {
			for _, earlier := range objects[:i] {
				if _, ok := earlier.get(name); ok {
					continue names
				}
			}
			f := len(b) + 1
			b = openField(b, name)
			if inner, ok := o.values[at].(*object); ok {
				b = appendMerged(b, sameName(inner, name, objects[i+1:]))
			} else {
				b = appendAny(b, o.values[at])
			}
			b = closeField(b, f)
		}
	}
	return closeMessage(b, start)
}

func sameName(first *object, name string, rest []*object) []*object {
	all := []*object{first}
	for _, o := range rest {
		if v, _ := o.get(name); v != nil {
			if inner, ok := v.(*object); ok {
				all = append(all, inner)
			}
		}
	}
	return all
}

// appendRequest appends the fields domain, descriptors, hitsAddend and metadata.
func (s *Service) appendRequest(b []byte, c *Call, rules *serving) []byte {
	req := &c.decoder.req
	b = fieldText(b, "domain", utf8Text(req.Domain))

	f := len(b) + 1
	b = openField(b, "descriptors")
	b = append(b, 6<<3|2)
	list := len(b)
	for i := range req.Descriptors {
		b = append(b, 1<<3|2)
		value := len(b)
		b = append(b, 5<<3|2)
		fields := len(b)
		b = appendDescriptor(b, &req.Descriptors[i])
		b = closeMessage(b, fields)
		b = closeMessage(b, value)
	}
	b = closeMessage(b, list)
	b = closeField(b, f)

	if req.HitsAddend != 0 {
		b = fieldNumber(b, "hitsAddend", float64(req.HitsAddend))
	}

	c.passed = c.passed[:0]
	for i := range c.plan.Matches {
		m := &c.plan.Matches[i]
		if m.Count > 0 && m.Rule != nil && c.statuses[i].code == codeOK {
			if o := rules.metadata[m.Rule]; o != nil {
				c.passed = append(c.passed, o)
			}
		}
	}
	if len(c.passed) > 0 {
		f := len(b) + 1
		b = openField(b, "metadata")
		b = appendMerged(b, c.passed)
		b = closeField(b, f)
	}
	return b
}

func appendDescriptor(b []byte, d *descriptors.Descriptor) []byte {
	f := len(b) + 1
	b = openField(b, "entries")
	b = append(b, 6<<3|2)
	list := len(b)
	for _, e := range d.Entries {
		key, value := utf8Text(e.Key), utf8Text(e.Value)
		n := len(key) + 1 + len(value)
		b = append(b, 1<<3|2) // ListValue.values
		b = appendVarint(b, uint64(1+varintLen(uint64(n))+n))
		b = append(b, 3<<3|2) // Value.string_value
		b = appendVarint(b, uint64(n))
		b = append(b, key...)
		b = append(b, '=')
		b = append(b, value...)
	}
	b = closeMessage(b, list)
	b = closeField(b, f)
	if d.HasOverride {
		f := len(b) + 1
		b = openField(b, "limit")
		b = append(b, 3<<3|2)
		text := len(b)
		b = append(b, "requests_per_unit:"...)
		b = strconv.AppendUint(b, uint64(d.Override.RequestsPerUnit), 10)
		b = append(b, " unit:"...)
		b = appendUnit(b, d.Override.Unit)
		b = closeMessage(b, text)
		b = closeField(b, f)
	}
	if d.HasHits {
		b = fieldNumber(b, "hitsAddend", float64(d.Hits))
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
func (s *Service) appendDecisions(b []byte, c *Call, rules *serving) []byte {
	b = append(b, 5<<3|2)
	start := len(b)
	b = fieldText(b, "domain", utf8Text(c.decoder.req.Domain))
	b = fieldText(b, "config_hash", rules.set.Hash)
	f := len(b) + 1
	b = openField(b, "decisions")
	b = append(b, 6<<3|2)
	list := len(b)
	for i := range c.plan.Matches {
		b = append(b, 1<<3|2)
		value := len(b)
		b = append(b, 5<<3|2)
		fields := len(b)
		b = s.appendDecision(b, c, &c.plan.Matches[i])
		b = closeMessage(b, fields)
		b = closeMessage(b, value)
	}
	b = closeMessage(b, list)
	b = closeField(b, f)
	return closeMessage(b, start)
}

func (s *Service) appendDecision(b []byte, c *Call, m *descriptors.Match) []byte {
	switch {
	case m.Override:
		b = fieldText(b, "rule", "override")
	case m.Rule != nil:
		b = fieldText(b, "rule", m.Rule.Metric.Rule)
	}
	if m.Count == 0 {
		return b
	}
	at := c.statusCharge(m)
	d, l := &c.plan.Batch.Decisions[at], c.plan.Limits[at]
	f := len(b) + 1
	b = openField(b, "limit")
	b = append(b, 3<<3|2)
	text := len(b)
	b = strconv.AppendUint(b, uint64(l.RequestsPerUnit), 10)
	b = append(b, '/')
	if l.UnitMultiplier > 1 {
		b = strconv.AppendUint(b, uint64(l.UnitMultiplier), 10)
	}
	b = append(b, l.Unit.String()...)
	b = closeMessage(b, text)
	b = closeField(b, f)

	charge := &c.plan.Batch.Charges[at]
	used, charged := d.Before+d.Charged, float64(d.Charged)
	if charge.Refund {
		used, charged = d.Before-min(d.Before, d.Charged), -charged
	}
	retry := d.RetryAfter.Seconds()
	if d.RetryAfter == limiter.Never {
		retry = -1
	}
	b = fieldNumber(b, "used", float64(used))
	b = fieldNumber(b, "retry_after", retry)
	return fieldNumber(b, "charged", charged)
}
