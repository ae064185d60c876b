package rlqs

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-ratelimit/sluice/quota"
)

// Blanket rules by their numbers in envoy.type.v3.RateLimitStrategy.
const (
	allowAll = 0
	denyAll  = 1
)

// mostAction is how many bytes [appendAction] appends at most, beside the bucket's id.
const mostAction = 64

// number1 is the tag of field 1 that is a number.
const number1 = 1<<3 | byte(protowire.VarintType)

// sized is the tag of a field with a size of its own.
func sized(number byte) byte { return number<<3 | byte(protowire.BytesType) }

// size fills in the size of what was appended from a place on, in the byte before it.
func size(b []byte, from int) { b[from-1] = byte(len(b) - from) } //nolint:gosec // less than 128

// appendAction appends an element of RateLimitQuotaResponse.bucket_action. It leaves room for sizes, and fills them in when
// what they are of is there: two bytes for the element, since an id has a little more than mostID, and one for all within
// it but the id.
func appendAction(b []byte, a *quota.Action) []byte {
	b = append(b, sized(1), 0, 0)
	element := len(b)
	b = append(b, sized(1))
	b = protowire.AppendString(b, a.ID) // is a BucketId, see appendID
	if a.Kind == quota.Abandon {
		b = append(b, sized(3), 0)
	} else {
		b = append(b, sized(2), 0)
		assignment := len(b)
		b = appendSeconds(b, 2, a.TTL)
		b = append(b, sized(3), 0)
		strategy := len(b)
		b = appendStrategy(b, a)
		size(b, strategy)
		size(b, assignment)
	}
	n := len(b) - element
	b[element-2], b[element-1] = byte(n)|0x80, byte(n>>7) //nolint:gosec // less than 1<<14
	return b
}

// appendStrategy appends a RateLimitStrategy.
func appendStrategy(b []byte, a *quota.Action) []byte {
	switch a.Kind {
	case quota.AssignAll:
		return append(b, number1, allowAll) // 0 too, since it is one of several
	case quota.Assign:
	default:
		return append(b, number1, denyAll)
	}
	b = append(b, sized(3), 0)
	bucket := len(b)
	b = append(b, number1)
	b = protowire.AppendVarint(b, uint64(a.MaxTokens))
	b = append(b, sized(2), 0)
	perFill := len(b)
	b = append(b, number1)
	b = protowire.AppendVarint(b, uint64(a.Rate))
	size(b, perFill)
	b = appendSeconds(b, 3, quota.Fill)
	size(b, bucket)
	return b
}

// appendSeconds appends a field that is a Duration of whole seconds.
func appendSeconds(b []byte, number byte, d time.Duration) []byte {
	b = append(b, sized(number), 0)
	at := len(b)
	b = append(b, number1)
	b = protowire.AppendVarint(b, uint64(d/time.Second)) //nolint:gosec // not negative
	size(b, at)
	return b
}
