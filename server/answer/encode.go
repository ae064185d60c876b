package answer

import (
	"math/bits"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// Codes of envoy.service.ratelimit.v3.RateLimitResponse.Code.
const (
	codeOK        = 1
	codeOverLimit = 2
)

// descriptorStatus is one RateLimitResponse.DescriptorStatus.
type descriptorStatus struct {
	code      uint8
	remaining uint32
	charge    int // index of the charge that determines the status, if there are charges
	// limit is nil if no limit applies. Then resetSeconds is not encoded.
	limit *descriptors.Limit
	// resetSeconds is duration_until_reset, at least 1 if limit is set.
	resetSeconds uint64
}

// hidden reports whether clients must not receive the limit. Then only the code and the time until
// the reset are encoded: Envoy needs it for Retry-After, and derives no other header from it alone.
func (s *descriptorStatus) hidden() bool { return s.limit != nil && s.limit.Hidden }

// appendVarint appends v. It is small enough to be inlined.
func appendVarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func varintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// appendStatus appends a status as field 2 (statuses) of a RateLimitResponse.
func appendStatus(b []byte, s *descriptorStatus) []byte {
	if s.hidden() {
		b = append(b, 2<<3|2, byte(2+3+varintLen(s.resetSeconds)), 1<<3, s.code)
		b = append(b, 4<<3|2, byte(1+varintLen(s.resetSeconds)), 1<<3)
		return appendVarint(b, s.resetSeconds)
	}
	if s.limit == nil {
		if s.remaining == 0 {
			return append(b, 2<<3|2, 2, 1<<3, s.code)
		}
		b = append(b, 2<<3|2, byte(3+varintLen(uint64(s.remaining))), 1<<3, s.code, 3<<3)
		return appendVarint(b, uint64(s.remaining))
	}
	limitLen := rateLimitLen(s.limit)
	durationLen := 1 + varintLen(s.resetSeconds)
	n := 2 + 1 + varintLen(uint64(limitLen)) + limitLen + 2 + durationLen
	if s.remaining != 0 {
		n += 1 + varintLen(uint64(s.remaining))
	}
	b = append(b, 2<<3|2)
	b = appendVarint(b, uint64(n))
	b = append(b, 1<<3, s.code) // code
	b = append(b, 2<<3|2)       // current_limit
	b = appendVarint(b, uint64(limitLen))
	b = appendRateLimit(b, s.limit)
	if s.remaining != 0 {
		b = append(b, 3<<3) // limit_remaining
		b = appendVarint(b, uint64(s.remaining))
	}
	b = append(b, 4<<3|2, byte(durationLen), 1<<3) // duration_until_reset.seconds
	return appendVarint(b, s.resetSeconds)
}

// rateLimitLen returns the number of bytes that appendRateLimit appends.
func rateLimitLen(l *descriptors.Limit) int {
	n := 0
	if l.RequestsPerUnit != 0 {
		n += 1 + varintLen(uint64(l.RequestsPerUnit))
	}
	if l.HasWindow() {
		n += 1 + varintLen(uint64(l.Unit))
	}
	if l.Name != "" {
		n += 1 + varintLen(uint64(len(l.Name))) + len(l.Name)
	}
	if l.UnitMultiplier > 1 && l.HasWindow() {
		n += 3 + varintLen(uint64(l.UnitMultiplier))
	}
	return n
}

// appendRateLimit appends the fields of a RateLimitResponse.RateLimit.
func appendRateLimit(b []byte, l *descriptors.Limit) []byte {
	if l.RequestsPerUnit != 0 {
		b = append(b, 1<<3) // requests_per_unit
		b = appendVarint(b, uint64(l.RequestsPerUnit))
	}
	if l.HasWindow() {
		b = append(b, 2<<3, byte(l.Unit)) // unit, 1..7
	}
	if l.Name != "" {
		b = appendString(b, 3, l.Name)
	}
	if l.UnitMultiplier > 1 && l.HasWindow() { // unit_multiplier, a UInt32Value
		b = append(b, 4<<3|2, byte(1+varintLen(uint64(l.UnitMultiplier))), 1<<3)
		b = appendVarint(b, uint64(l.UnitMultiplier))
	}
	return b
}

// appendString appends a length-delimited field, whose number must be below 16.
func appendString[T string | []byte](b []byte, num byte, s T) []byte {
	b = append(b, num<<3|2)
	b = appendVarint(b, uint64(len(s)))
	return append(b, s...)
}

// Fields of a RateLimitResponse of type repeated config.core.v3.HeaderValue.
const (
	fieldResponseHeaders = 3 // response_headers_to_add
	fieldRequestHeaders  = 4 // request_headers_to_add
)

// appendHeaders appends the headers that describe s, which must have a limit, to one of these
// fields.
func (s *descriptorStatus) appendHeaders(b []byte, field byte, names *Headers) []byte {
	for _, header := range [...]struct {
		name  string
		value uint64
	}{
		{names.Limit, uint64(s.limit.RequestsPerUnit)},
		{names.Remaining, uint64(s.remaining)},
		{names.Reset, s.resetSeconds},
	} {
		if header.name != "" {
			b = appendHeader(b, field, header.name, header.value)
		}
	}
	return b
}

// appendHeader appends a header to one of these fields.
func appendHeader(b []byte, field byte, name string, value uint64) []byte {
	var digits [20]byte
	i := len(digits)
	for {
		i--
		digits[i] = byte('0' + value%10)
		if value /= 10; value == 0 {
			break
		}
	}
	text := digits[i:]
	n := 1 + varintLen(uint64(len(name))) + len(name) + 2 + len(text)
	b = append(b, field<<3|2)
	b = appendVarint(b, uint64(n))
	b = appendString(b, 1, name)
	return appendString(b, 2, text)
}

// appendMessage appends a message as a field, whose number must be below 16. inside appends the
// content, which is then moved if its length needs more than one byte.
func appendMessage(b []byte, num byte, inside func([]byte) []byte) []byte {
	b = append(b, num<<3|2, 0)
	start := len(b)
	b = inside(b)
	n := len(b) - start
	if more := varintLen(uint64(n)) - 1; more > 0 {
		b = append(b, b[len(b)-more:]...)
		copy(b[start+more:], b[start:start+n])
	}
	appendVarint(b[start-1:start-1], uint64(n))
	return b
}
