package rlqs

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-ratelimit/sluice/rlqs/division"
)

// Blanket rules, as numbered in envoy.type.v3.RateLimitStrategy.
const (
	allowAll = 0
	denyAll  = 1
)

// maxActionBytes is the most that [appendAction] appends in addition to the bucket's ID.
const maxActionBytes = 64

// varintTag1 is the tag of field 1 of type varint.
const varintTag1 = 1<<3 | byte(protowire.VarintType)

func bytesTag(number byte) byte { return number<<3 | byte(protowire.BytesType) }

// setSize stores the length of b[from:] in the byte before it.
func setSize(b []byte, from int) { b[from-1] = byte(len(b) - from) } //nolint:gosec // less than 128

// appendAction appends an element of RateLimitQuotaResponse.bucket_action. It reserves the bytes of
// each length and fills them in afterwards: two bytes for the element, since an ID is little longer
// than maxIDBytes, and one for each message in it except the ID.
func appendAction(b []byte, a *division.Action) []byte {
	b = append(b, bytesTag(1), 0, 0)
	element := len(b)
	b = append(b, bytesTag(1))
	b = protowire.AppendString(b, a.ID) // an encoded BucketId, see appendID
	if a.Kind == division.Abandon {
		b = append(b, bytesTag(3), 0)
	} else {
		b = append(b, bytesTag(2), 0)
		assignment := len(b)
		b = appendSeconds(b, 2, a.TTL)
		b = append(b, bytesTag(3), 0)
		strategy := len(b)
		b = appendStrategy(b, a)
		setSize(b, strategy)
		setSize(b, assignment)
	}
	n := len(b) - element
	b[element-2], b[element-1] = byte(n)|0x80, byte(n>>7) //nolint:gosec // less than 1<<14
	return b
}

func appendStrategy(b []byte, a *division.Action) []byte {
	switch a.Kind {
	case division.AssignAllowAll:
		return append(b, varintTag1, allowAll) // encoded although it is 0, since it is a member of a oneof
	case division.Assign:
	default:
		return append(b, varintTag1, denyAll)
	}
	b = append(b, bytesTag(3), 0)
	bucket := len(b)
	b = append(b, varintTag1)
	b = protowire.AppendVarint(b, uint64(a.MaxTokens))
	b = append(b, bytesTag(2), 0)
	perFill := len(b)
	b = append(b, varintTag1)
	b = protowire.AppendVarint(b, uint64(a.Rate))
	setSize(b, perFill)
	b = appendSeconds(b, 3, division.Fill)
	setSize(b, bucket)
	return b
}

// appendSeconds appends a Duration field of whole seconds.
func appendSeconds(b []byte, number byte, d time.Duration) []byte {
	b = append(b, bytesTag(number), 0)
	at := len(b)
	b = append(b, varintTag1)
	b = protowire.AppendVarint(b, uint64(d/time.Second)) //nolint:gosec // not negative
	setSize(b, at)
	return b
}
