package answer

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Bounds are the most that one request may hold. No ordinary configuration of Envoy reaches the
// defaults, which stand in the tags, as those of [Limits] do.
type Bounds struct {
	// MessageBytes of the request; see [Limits].MaxMessageBytes.
	MessageBytes int `kong:"-"`
	Descriptors  int `name:"max-descriptors" type:"count" range:"1..2147483647" default:"1000" placeholder:"N" help:"Maximum number of descriptors per request."`
	Entries      int `name:"max-entries" type:"count" range:"1..2147483647" default:"64" placeholder:"N" help:"Maximum number of entries per descriptor."`
	// KeyBytes of each entry. Keys come from Envoy's configuration. Values come from end clients,
	// so they have no bound of their own: Envoy lets a request pass if the answer is an error, so a
	// client that exceeds the bound would pass every limit.
	KeyBytes int `name:"max-key-length" type:"size" range:"1..2147483647" default:"1KiB" placeholder:"SIZE" help:"Maximum length of the key of an entry."`
}

// Check returns which bound the entries of one descriptor exceed, or nil.
func (b *Bounds) Check(entries []descriptors.Entry) error {
	if len(entries) > b.Entries {
		return &boundError{tooManyEntries, b.Entries, len(entries)}
	}
	for i := range entries {
		if n := len(entries[i].Key); n > b.KeyBytes {
			return &boundError{keyTooLong, b.KeyBytes, n}
		}
	}
	return nil
}

// bound is --max-message or one of [Bounds].
type bound byte

const (
	messageTooLarge bound = iota
	tooManyDescriptors
	tooManyEntries
	keyTooLong
)

// counter returns what counts the requests beyond the bound.
func (b bound) counter(m *telemetry.Rejected) prometheus.Counter {
	return [...]prometheus.Counter{m.Message, m.Descriptors, m.Entries, m.KeyLength}[b]
}

// boundError is the error of a request beyond a bound. It tells sizes only, nothing of the
// request's contents.
type boundError struct {
	bound      bound
	max, found int
}

func (e *boundError) Error() string {
	format := [...]string{
		"the request has %d bytes: --max-message allows %d",
		"the request has %d descriptors: --max-descriptors allows %d",
		"a descriptor has %d entries: --max-entries allows %d",
		"a key has %d bytes: --max-key-length allows %d",
	}[e.bound]
	return fmt.Sprintf(format, e.found, e.max)
}
