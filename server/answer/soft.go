package answer

import (
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// softLimit returns the first limit, in the order of the files, that is soft and exceeded, or has
// reached its notify_at; nil if there is none. If visible is true, it leaves out hidden limits. It
// returns nil for the call that returns a lease, whose reply reaches no request.
func (x *Exchange) softLimit(visible bool) (first *descriptors.Limit) {
	for at, l := range x.plan.Limits {
		switch {
		case visible && l.Hidden, !l.IsReached(&x.plan.Batch.Charges[at], &x.plan.Batch.Decisions[at]):
		case first == nil, l.Precedes(first):
			first = l
		}
	}
	if first != nil && x.plan.ReturnsLease() {
		return nil
	}
	return first
}

// softName returns the name of l as Envoy receives it, in x's memory.
func (x *Exchange) softName(l *descriptors.Limit) []byte {
	x.metricKey = rules.AppendSoftName(x.metricKey[:0], l.Name)
	return x.metricKey
}

// appendSoftHeaders appends the header with the name of soft to the forwarded request, and to the
// response unless the limit is hidden.
func (s *Service) appendSoftHeaders(b []byte, x *Exchange, soft *descriptors.Limit) []byte {
	header := s.settings.SoftHeader
	if !x.overLimit {
		b = appendTextField(b, fieldRequestHeaders, header, x.softName(soft))
	}
	if soft.Hidden {
		if soft = x.softLimit(true); soft == nil {
			return b
		}
	}
	return appendTextField(b, fieldResponseHeaders, header, x.softName(soft))
}
