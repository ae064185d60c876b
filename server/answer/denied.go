package answer

import (
	"encoding/base64"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// fieldRawBody is RateLimitResponse.raw_body.
const fieldRawBody = 5

// The waits after which clients are told not to retry. The clients of OpenAI and Anthropic stop at
// Retry-After above 120 seconds by themselves; those of gRPC do not bound the pushback.
const (
	longestRetry    = 120 * time.Second
	longestPushback = 60 * time.Second
)

// deniedResponse returns the response to a denied request that match i describes, or nil if
// nothing is added to the denial. The reply to a call that returns a lease has none, because no
// client receives it.
func (s *Service) deniedResponse(x *Exchange, active *activeRules, i int) *rules.DeniedResponse {
	if i < 0 || x.plan.ReturnsLease() {
		return nil
	}
	d := s.denied
	if active.set.HasDeniedResponses() {
		if own := active.set.DeniedResponse(&x.plan, i); own != nil {
			d = own
		}
	}
	switch {
	case !d.IsNone():
		return d
	case s.settings.GRPCDenials:
		return rules.DeniedPreset("none")
	default:
		return nil
	}
}

// appendDenied appends the body and the headers of a denial, without Retry-After. If the denying
// limit is hidden, texts that describe it are left out.
func (s *Service) appendDenied(b []byte, x *Exchange, d *rules.DeniedResponse, all *summary) []byte {
	limit := x.plan.Limits[all.response]
	wait := all.wait
	name := x.appendLimitName(x.metricKey[:0], &x.plan.Matches[all.denying], all.response)
	x.metricKey = name
	v := rules.DenialValues{
		Name: name, Domain: x.decoder.req.Domain,
		Limit: uint64(limit.RequestsPerUnit), RetryAfter: ceilSeconds(wait),
		Reset: ceilSeconds(x.plan.Batch.Decisions[all.response].Reset), Denying: x,
	}
	if limit.HasWindow() {
		v.Window = uint64(max(0, limit.Unit.Seconds())) * uint64(limit.UnitMultiplier)
	}
	body := x.body[:0]
	texts := d
	if all.hides && d.DescribesLimit() {
		texts = rules.DeniedPreset("none")
	}
	text := texts.Body
	if all.never && texts.Never != nil {
		text = texts.Never
	}
	if text != nil {
		body = text.Append(body, &v)
		b = appendString(b, fieldRawBody, body)
	}
	if texts.ContentType != "" {
		b = appendTextHeader(b, "content-type", texts.ContentType)
	}
	n := len(body) // what follows is scratch
	for i := range texts.Headers {
		body = texts.Headers[i].Value.Append(body[:n], &v)
		b = appendTextHeader(b, texts.Headers[i].Name, body[n:])
	}
	millis := uint64(max(1, (wait+time.Millisecond-1)/time.Millisecond))
	if d.RetryMillis {
		if !all.hopeless {
			b = appendHeader(b, fieldResponseHeaders, "retry-after-ms", millis)
		}
		if all.never || wait > longestRetry {
			b = appendTextHeader(b, "x-should-retry", "false")
		}
	}
	if d.GRPC || s.settings.GRPCDenials {
		b = appendHeader(b, fieldResponseHeaders, "grpc-status", grpcResourceExhausted)
		if all.never || wait > longestPushback {
			b = appendTextHeader(b, "grpc-retry-pushback-ms", "-1")
		} else {
			b = appendHeader(b, fieldResponseHeaders, "grpc-retry-pushback-ms", millis)
		}
		if !all.never && encodedBytes(body[:n]) <= maxDetailedMessage {
			body = appendRetryInfo(body[:n], body[:n], wait)
			m := len(body)
			body = base64.RawStdEncoding.AppendEncode(body, body[n:m])
			b = appendTextHeader(b, "grpc-status-details-bin", body[m:])
		}
	}
	x.body = body
	return b
}

// grpcResourceExhausted is the status code RESOURCE_EXHAUSTED of gRPC.
const grpcResourceExhausted = 8

// maxDetailedMessage bounds the encoded bytes of a message that grpc-status-details-bin repeats.
// Clients of grpcio discard more than 8 KB of trailers, the pushback included.
const maxDetailedMessage = 2048

// encodedBytes returns the length of a message in the header grpc-message.
func encodedBytes(message []byte) (n int) {
	for _, c := range message {
		if n++; c < ' ' || c > '~' || c == '%' {
			n += 2
		}
	}
	return n
}

// appendRetryInfo appends a google.rpc.Status with a google.rpc.RetryInfo. The clients of gRPC
// require that its code and message are those of the reply.
func appendRetryInfo(dst, message []byte, wait time.Duration) []byte {
	dst = append(dst, 1<<3, grpcResourceExhausted) // code
	dst = appendString(dst, 2, message)
	return appendMessage(dst, 3, func(dst []byte) []byte { // details, an Any
		dst = appendString(dst, 1, "type.googleapis.com/google.rpc.RetryInfo")
		return appendMessage(dst, 2, func(dst []byte) []byte {
			return appendMessage(dst, 1, func(dst []byte) []byte { // retry_delay
				dst = appendVarint(append(dst, 1<<3), uint64(max(0, wait/time.Second)))
				return appendVarint(append(dst, 2<<3), uint64(max(0, wait%time.Second)))
			})
		})
	})
}

// appendLimitName appends to the empty dst the name of the limit of charge at, or else that of its
// rule, with the label of the limit in a list.
func (x *Exchange) appendLimitName(dst []byte, m *descriptors.Match, at int) []byte {
	l := x.plan.Limits[at]
	if l.Name != "" {
		return append(dst, l.Name...)
	}
	return appendLabel(appendRuleKey(dst, m), l)
}

// NextDenying implements [rules.DenyingLimits]. Positions are those of charges.
func (x *Exchange) NextDenying(from int) (name []byte, next int, ok bool) {
	for i := range x.plan.Matches {
		m := &x.plan.Matches[i]
		for at := max(from, m.First); at < m.First+m.Count; at++ {
			if !x.plan.Limits[at].Hidden && x.denies(at) {
				x.lookupKey = x.appendLimitName(x.lookupKey[:0], m, at)
				return x.lookupKey, at + 1, true
			}
		}
	}
	return nil, 0, false
}

// appendTextHeader appends a response header. The name and value are valid.
func appendTextHeader[T string | []byte](b []byte, name string, value T) []byte {
	return appendTextField(b, fieldResponseHeaders, name, value)
}

// appendTextField appends a header to field, one of the fields of headers.
func appendTextField[T string | []byte](b []byte, field byte, name string, value T) []byte {
	return appendMessage(b, field, func(b []byte) []byte {
		return appendString(appendString(b, 1, name), 2, value)
	})
}
