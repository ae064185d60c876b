package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Bounds are the most that one request may hold. Zero fields mean the defaults,
// which no ordinary configuration of Envoy reaches.
type Bounds struct {
	// Descriptors of the request. 0 means 1000.
	Descriptors int
	// Entries of each descriptor. 0 means 64.
	Entries int
	// KeyBytes and ValueBytes are of each entry. 0 means 1 KiB and 60 KiB: keys come
	// from a configuration, values from headers and paths, and Envoy takes 60 KiB of
	// those by default. Who could send more than the bound would be let through
	// where Envoy takes an error for a pass.
	KeyBytes, ValueBytes int
}

func (b *Bounds) setDefaults() {
	if b.Descriptors == 0 {
		b.Descriptors = 1000
	}
	if b.Entries == 0 {
		b.Entries = 64
	}
	if b.KeyBytes == 0 {
		b.KeyBytes = 1 << 10
	}
	if b.ValueBytes == 0 {
		b.ValueBytes = 60 << 10
	}
}

// check returns what is too much about one descriptor, or nil.
func (b *Bounds) check(entries []descriptors.Entry) error {
	if len(entries) > b.Entries {
		return &boundError{tooManyEntries, b.Entries, len(entries)}
	}
	for i := range entries {
		if err := b.checkEntry(&entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkEntry returns what is too long about an entry, or nil.
func (b *Bounds) checkEntry(e *descriptors.Entry) *boundError {
	switch {
	case len(e.Key) > b.KeyBytes:
		return &boundError{keyTooLong, b.KeyBytes, len(e.Key)}
	case len(e.Value) > b.ValueBytes:
		return &boundError{valueTooLong, b.ValueBytes, len(e.Value)}
	default:
		return nil
	}
}

// bound is one of [Bounds].
type bound byte

const (
	tooManyDescriptors bound = iota
	tooManyEntries
	keyTooLong
	valueTooLong
)

// counter returns what counts the requests beyond the bound.
func (b bound) counter(m *telemetry.Rejected) prometheus.Counter {
	return [...]prometheus.Counter{m.Descriptors, m.Entries, m.KeyLength, m.ValueLength}[b]
}

// boundError is the error of a request beyond one of its [Bounds]. It says nothing
// of what the request holds but how much.
type boundError struct {
	bound      bound
	max, found int
}

func (e *boundError) Error() string {
	format := [...]string{
		"the request has %d descriptors: --max-descriptors allows %d",
		"a descriptor has %d entries: --max-entries allows %d",
		"a key has %d bytes: --max-key-length allows %d",
		"a value has %d bytes: --max-value-length allows %d",
	}[e.bound]
	return fmt.Sprintf(format, e.found, e.max)
}
