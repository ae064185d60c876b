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

// sized is the tag of a field with a size of its own, and varint that of a number.
func sized(number byte) byte  { return number<<3 | byte(protowire.BytesType) }
func varint(number byte) byte { return number<<3 | byte(protowire.VarintType) }

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
		b[strategy-1] = byte(len(b) - strategy)
		b[assignment-1] = byte(len(b) - assignment)
	}
	size := len(b) - element
	b[element-2], b[element-1] = byte(size)|0x80, byte(size>>7) //nolint:gosec // less than 1<<14
	return b
}

// appendStrategy appends a RateLimitStrategy.
func appendStrategy(b []byte, a *quota.Action) []byte {
	switch a.Kind {
	case quota.AssignAll:
		return append(b, varint(1), allowAll) // 0 too, since it is one of several
	case quota.Assign:
	default:
		return append(b, varint(1), denyAll)
	}
	b = append(b, sized(3), 0)
	bucket := len(b)
	b = append(b, varint(1))
	b = protowire.AppendVarint(b, uint64(a.MaxTokens))
	b = append(b, sized(2), 0)
	perFill := len(b)
	b = append(b, varint(1))
	b = protowire.AppendVarint(b, uint64(a.Rate))
	b[perFill-1] = byte(len(b) - perFill)
	b = appendSeconds(b, 3, quota.Fill)
	b[bucket-1] = byte(len(b) - bucket)
	return b
}

// appendSeconds appends a field that is a Duration of whole seconds.
func appendSeconds(b []byte, number byte, d time.Duration) []byte {
	b = append(b, sized(number), 0)
	at := len(b)
	b = append(b, varint(1))
	b = protowire.AppendVarint(b, uint64(d/time.Second)) //nolint:gosec // not negative
	b[at-1] = byte(len(b) - at)
	return b
}
