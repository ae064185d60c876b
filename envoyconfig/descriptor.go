package envoyconfig

import (
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Descriptor is the result of a policy for a request.
type Descriptor struct {
	// Pos is the position of the policy.
	Pos     rules.Pos
	Entries []Entry
	// NotSent is the reason why no descriptor is sent, and Unknown the reason why that cannot be determined. Both are
	// empty if the descriptor is sent.
	NotSent, Unknown string
	// StreamDone is true if the descriptor is sent at the end of the stream, in a separate call.
	StreamDone bool
	// Lease is true if the hits are a lease, read from the metadata that the reply to the first call sets.
	Lease bool
	// HasHits is true if the descriptor has a number of hits. HitsUnknown is the reason why the number is unknown.
	HasHits     bool
	Hits        uint64
	HitsUnknown string
	Refund      bool
	// HasOverride is true if the descriptor carries the limit Override, configured at OverridePos. OverrideUnknown is
	// the reason why that is unknown.
	HasOverride     bool
	Override        descriptors.Override
	OverridePos     rules.Pos
	OverrideUnknown string

	// keys are the keys of all actions.
	keys []string
}

// Entry is an entry of a descriptor.
type Entry struct{ Key, Value string }

// String formats the descriptor as (key, value)(key, value). Values are "-" if it is not sent, and "?" if they are
// unknown.
func (d *Descriptor) String() string {
	entries := d.Entries
	if d.NotSent != "" || d.Unknown != "" {
		value := "-"
		if d.Unknown != "" {
			value = "?"
		}
		entries = nil
		for _, key := range d.keys {
			entries = append(entries, Entry{key, value})
		}
	}
	var b strings.Builder
	for _, e := range entries {
		b.WriteString("(" + e.Key + ", " + e.Value + ")")
	}
	return b.String()
}

// descriptor computes the descriptor for a request.
func (e *evaluation) descriptor(x *exchange) Descriptor {
	d := Descriptor{Pos: e.node.Pos(), StreamDone: e.streamDone, Lease: e.streamDone && e.readsReply(e.limiter)}
	for _, a := range e.actions {
		d.keys = append(d.keys, a.form.key)
	}
	if unknown, ok := strings.CutPrefix(e.disabled, UnknownPrefix); ok {
		d.Unknown = unknown
	} else if e.disabled != "" {
		d.NotSent = e.disabled
		return d
	}
	for i, a := range e.actions {
		x.origin = e.entries[i].origin
		result := a.entry(x)
		switch {
		case result.unknown != "" && d.Unknown == "":
			d.Unknown = result.unknown
		case result.absent != "":
			// One absent entry suppresses the descriptor.
			d.NotSent = result.absent
			d.Unknown = ""
			d.Entries = nil
			return d
		case result.present && a.form.key != "":
			d.Entries = append(d.Entries, Entry{a.form.key, result.value})
		}
	}
	d.Override, d.HasOverride, d.OverrideUnknown = e.override(x)
	d.OverridePos = e.node.Field("limit").Pos()
	if hits := e.node.Field("hits_addend"); e.own && hits.Exists() {
		d.HasHits = true
		d.Hits = hits.Field("number").Uint(0)
		d.Refund = hits.Field("is_negative_hits").Bool(false)
		if format := hits.Field("format"); format.Exists() {
			d.HitsUnknown = "hits_addend: the format " + format.Describe()
		}
	}
	return d
}
