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

// appendAction appends an element of RateLimitQuotaResponse.bucket_action.
func appendAction(b []byte, a *quota.Action) []byte {
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	return appendSized(b, func(b []byte) []byte {
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendString(b, a.ID) // is a BucketId, see appendID
		if a.Kind == quota.Abandon {
			b = protowire.AppendTag(b, 3, protowire.BytesType)
			return protowire.AppendVarint(b, 0)
		}
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		return appendSized(b, func(b []byte) []byte {
			b = appendSeconds(b, 2, a.TTL)
			b = protowire.AppendTag(b, 3, protowire.BytesType)
			return appendSized(b, func(b []byte) []byte { return appendStrategy(b, a) })
		})
	})
}

// appendStrategy appends a RateLimitStrategy.
func appendStrategy(b []byte, a *quota.Action) []byte {
	switch a.Kind {
	case quota.AssignAll, quota.AssignNone:
		rule := uint64(allowAll)
		if a.Kind == quota.AssignNone {
			rule = denyAll
		}
		b = protowire.AppendTag(b, 1, protowire.VarintType) // 0 too, since it is one of several
		return protowire.AppendVarint(b, rule)
	}
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	return appendSized(b, func(b []byte) []byte {
		b = protowire.AppendTag(b, 1, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(a.MaxTokens))
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = appendSized(b, func(b []byte) []byte {
			b = protowire.AppendTag(b, 1, protowire.VarintType)
			return protowire.AppendVarint(b, uint64(a.Rate))
		})
		return appendSeconds(b, 3, quota.Fill)
	})
}

// appendSeconds appends a field that is a Duration of whole seconds.
func appendSeconds(b []byte, number protowire.Number, d time.Duration) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return appendSized(b, func(b []byte) []byte {
		b = protowire.AppendTag(b, 1, protowire.VarintType)
		return protowire.AppendVarint(b, uint64(d/time.Second)) //nolint:gosec // not negative
	})
}

// appendSized appends what fill appends, behind its size. The size has two bytes at once, so that nothing moves: an id
// of a bucket has a little more than mostID.
func appendSized(b []byte, fill func(b []byte) []byte) []byte {
	at := len(b)
	b = fill(append(b, 0, 0))
	size := len(b) - at - 2
	b[at], b[at+1] = byte(size)|0x80, byte(size>>7) //nolint:gosec // less than 1<<14
	return b
}
