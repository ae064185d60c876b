package source

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// Update is the result of reading a source: rules, or defaults for rules from elsewhere,
// or the error why there are none.
type Update struct {
	// Set is the rules, nil with an error or where only defaults were read.
	Set *descriptors.Set
	// Defaults are nil with an error, or where there is no file of them.
	Defaults *rules.Defaults
	// Diagnostics are the warnings about the rules, or the findings that Err tells of.
	Diagnostics rules.Diagnostics
	// Err says why there are no rules; what is in force stays.
	Err error
	// Accepted is called, if it is not nil, when a Set that OnLoad has rejected becomes active later.
	Accepted func()
}

// ErrUsed says that a Set was active before and was replaced. Requests may still read it, so it cannot become the successor of
// another Set.
var ErrUsed = errors.New("these rules were active before")

// Reload decides which readings of a source are news, and keeps the last good one in force
// while others are rejected. Readings with the same K are the same. One goroutine uses it
// at a time.
type Reload[K comparable] struct {
	// OnLoad activates an Update or returns why not. It is called for rejected readings too, so that it can log their error.
	// If it returns [ErrUsed], it is called again with another Set of the same reading. Required.
	OnLoad func(Update) error

	// inForce is the last reading that was put in force, last the last one of any kind.
	inForce, last outcome[K]
}

// outcome is a reading and its result.
type outcome[K comparable] struct {
	taken  bool // there was such a reading
	key    K
	update Update
}

func (o *outcome[K]) is(key K) bool { return o.taken && o.key == key }

// Verdict returns the error of the last reading that was taken.
func (r *Reload[K]) Verdict() error { return r.last.update.Err }

// News reports whether a reading differs from the last one that was taken.
func (r *Reload[K]) News(key K) bool { return !r.last.is(key) }

// Take puts a reading in force, or returns why not. It calls OnLoad, unless the reading is
// the last one again. Build makes rules of the reading. It is not called for the reading in
// force, to which a source often goes back.
func (r *Reload[K]) Take(key K, build func() Update) error {
	switch {
	case r.last.is(key):
		return r.last.update.Err
	case r.inForce.is(key):
		r.last = r.inForce
	default:
		r.last = outcome[K]{taken: true, key: key, update: build()}
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
		r.inForce = r.last
	}
	return u.Err
}

// Accept notes that u, an update of a reading that OnLoad has rejected, is active. It reports whether that is the last reading.
func (r *Reload[K]) Accept(key K, u Update) (latest bool) {
	active := outcome[K]{taken: true, key: key, update: u}
	if latest = r.last.is(key); latest {
		r.last = active
	}
	if latest || r.last.update.Err != nil {
		r.inForce = active
	}
	return latest
}

// Digest tells one list of texts from another.
func Digest(texts ...[]byte) [sha256.Size]byte {
	h := sha256.New()
	for _, text := range texts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text)))) // so that (ab, c) is not (a, bc)
		h.Write(text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
