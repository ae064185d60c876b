package answer

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Bounds limit the size of a request. They are constants, the defaults in the tags, which only tests
// change; no ordinary configuration of Envoy reaches them.
type Bounds struct {
	// MessageBytes is the maximum size of the request; see transport.Limits.MaxMessageBytes.
	MessageBytes int `kong:"-"`
	Descriptors  int `name:"max-descriptors" hidden:"" type:"count" default:"1000" placeholder:"N" help:"Maximum number of descriptors per request."`
	Entries      int `name:"max-entries" hidden:"" type:"count" default:"64" placeholder:"N" help:"Maximum number of entries per descriptor."`
	// KeyBytes is the maximum length of a key. Values have no bound of their own. They come from
	// end clients, and Envoy admits a request if the rate limit service returns an error, so an end
	// client could evade every limit by exceeding the bound.
	KeyBytes int `name:"max-key-length" hidden:"" type:"size" default:"1KiB" placeholder:"SIZE" help:"Maximum length of the key of an entry."`
}

// Check returns an error if the entries of a descriptor exceed a bound.
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

// bound identifies --max-message or a field of [Bounds].
type bound byte

const (
	messageTooLarge bound = iota
	tooManyDescriptors
	tooManyEntries
	keyTooLong
)

// counter returns the counter of requests that exceed the bound.
func (b bound) counter(m *telemetry.Rejected) prometheus.Counter {
	return [...]prometheus.Counter{m.Message, m.Descriptors, m.Entries, m.KeyLength}[b]
}

// boundError is the error of a request that exceeds a bound. It contains sizes only, nothing that
// the client sent.
type boundError struct {
	bound      bound
	max, found int
}

func (e *boundError) Error() string {
	format := [...]string{
		"the request has %d bytes: --max-message allows %d",
		"the request has %d descriptors: at most %d are allowed",
		"a descriptor has %d entries: at most %d are allowed",
		"a key has %d bytes: at most %d are allowed",
	}[e.bound]
	return fmt.Sprintf(format, e.found, e.max)
}
