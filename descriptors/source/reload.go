package source

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Update is the result of reading a source: rules, or defaults for rules of another source, or an
// error.
type Update struct {
	// Set is nil with an error, or if only defaults were read.
	Set *descriptors.Set
	// Defaults are nil with an error, or if there is no file of them.
	Defaults *rules.Defaults
	// Diagnostics are the warnings about the rules, or the findings that Err summarizes.
	Diagnostics rules.Diagnostics
	// Err is why there are no rules; the active rules stay.
	Err error
	// Accepted, if not nil, is called when a Set that OnLoad rejected becomes active later.
	Accepted func()
}

// ErrUsed means that a Set was active before. Requests may still read it, so it cannot become the
// successor of another Set.
var ErrUsed = errors.New("these rules were active before")

// Reload activates the readings of a source that differ from the last one, and keeps the last good
// one active while others are rejected. Readings with equal keys K are equal. It is not safe for
// concurrent use.
type Reload[K comparable] struct {
	// OnLoad activates an Update or returns why not. It is called for rejected readings, too, to
	// log their error. If it returns [ErrUsed], it is called again with another Set of the same
	// reading. Required.
	OnLoad func(Update) error

	// active is the last reading that was activated, and last the last one of any kind.
	active, last outcome[K]
}

// outcome is a reading and its result.
type outcome[K comparable] struct {
	set    bool // false before the first such reading
	key    K
	update Update
}

func (o *outcome[K]) matches(key K) bool { return o.set && o.key == key }

// LastError returns the error of the last reading.
func (r *Reload[K]) LastError() error { return r.last.update.Err }

// IsNew reports whether a reading differs from the last one.
func (r *Reload[K]) IsNew(key K) bool { return !r.last.matches(key) }

// Apply activates a reading, or returns why not. It calls OnLoad unless the reading equals the last
// one. build makes rules of the reading; it is not called for the active reading, to which sources
// often return.
func (r *Reload[K]) Apply(key K, build func() Update) error {
	switch {
	case r.last.matches(key):
		return r.last.update.Err
	case r.active.matches(key):
		r.last = r.active
	default:
		r.last = outcome[K]{set: true, key: key, update: build()}
	}
	u := &r.last.update
	err := r.OnLoad(*u)
	if errors.Is(err, ErrUsed) {
		*u = build()
		err = r.OnLoad(*u)
	}
	if u.Err == nil && err != nil {
		*u = Update{Diagnostics: u.Diagnostics, Err: err}
	}
	if u.Err == nil {
		r.active = r.last
	}
	return u.Err
}

// Accept records that u, of a reading that OnLoad rejected, is active. It returns whether that is
// the last reading.
func (r *Reload[K]) Accept(key K, u Update) (latest bool) {
	active := outcome[K]{set: true, key: key, update: u}
	if latest = r.last.matches(key); latest {
		r.last = active
	}
	if latest || r.last.update.Err != nil {
		r.active = active
	}
	return latest
}

// Digest returns a hash of a list of texts.
func Digest(texts ...[]byte) [sha256.Size]byte {
	h := sha256.New()
	for _, text := range texts {
		// So that (ab, c) differs from (a, bc).
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		h.Write(text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
