package envoyconfig

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Descriptor is what an element of rate_limits makes of a request.
type Descriptor struct {
	// Pos is the element's place.
	Pos     rules.Pos
	Entries []Entry
	// NotSent says why there is no descriptor, and Unknown why that cannot be known. Both
	// empty say that it is sent.
	NotSent, Unknown string
	// StreamDone says that it is sent at the end of the stream, in a call of its own.
	StreamDone bool
	// Lease says that its hits are a lease, out of the metadata of the reply to the first call.
	Lease bool
	// HasHits says that hits are sent. HitsUnknown says why their number is not known.
	HasHits     bool
	Hits        uint64
	HitsUnknown string
	Refund      bool
	// HasOverride says that the descriptor carries a limit of its own, Override, from the
	// configuration's place OverridePos. OverrideUnknown says why it is not known whether it does.
	HasOverride     bool
	Override        descriptors.Override
	OverridePos     rules.Pos
	OverrideUnknown string

	// keys are those of all actions.
	keys []string
}

// Entry is a key and a value of a descriptor.
type Entry struct{ Key, Value string }

// String returns the descriptor as (key, value)(key, value). Where it is not sent, each
// value is -, and where it is not known, ?.
func (d *Descriptor) String() string {
	var b strings.Builder
	for i, key := range d.keys {
		value := "-"
		switch {
		case d.Unknown != "":
			value = "?"
		case d.NotSent == "":
			if i >= len(d.Entries) {
				return b.String()
			}
			key, value = d.Entries[i].Key, d.Entries[i].Value
		}
		b.WriteString("(" + key + ", " + value + ")")
	}
	return b.String()
}

// descriptor makes the descriptor of a request. Own says that the policy is the filter's
// own, or of its configuration for the route: only there does Envoy send hits.
func (p *policy) descriptor(x *exchange, own bool) Descriptor {
	d := Descriptor{Pos: p.node.Pos(), StreamDone: p.streamDone, Lease: p.streamDone && isLease(p)}
	for _, a := range p.actions {
		d.keys = append(d.keys, a.shape.key)
	}
	if key := p.node.Field("disable_key").Text; key != "" {
		if why, never := x.runtime.disabled(elementEnabled(key)); never {
			d.NotSent = why
			return d
		} else if why != "" {
			d.Unknown = strings.TrimPrefix(why, Unknowable)
		}
	}
	x.streamDone = p.streamDone
	for _, a := range p.actions {
		made := a.entry(x)
		switch {
		case made.unknown != "" && d.Unknown == "":
			d.Unknown = made.unknown
		case made.absent != "":
			// Whatever the others make, there is no descriptor.
			d.NotSent, d.Unknown = made.absent, ""
			d.Entries = nil
			return d
		case made.present && a.shape.key != "":
			d.Entries = append(d.Entries, Entry{a.shape.key, made.value})
		}
	}
	d.Override, d.HasOverride, d.OverrideUnknown = p.override(x)
	d.OverridePos = p.node.Field("limit").Pos()
	if hits := p.node.Field("hits_addend"); own && hits.Exists() {
		d.HasHits, d.Hits = true, hits.Field("number").Uint(0)
		d.Refund = hits.Field("is_negative_hits").Bool(false)
		if format := hits.Field("format"); format.Exists() {
			d.HitsUnknown = "hits_addend: the format " + format.Describe()
		}
	}
	return d
}
