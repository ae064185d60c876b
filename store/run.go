package store

import (
	"slices"

	"github.com/sluice-ratelimit/sluice/store/resp"
)

// A run is what one run of the script decides: the asks of a batch, or on a cluster those of one
// slot. Or it is those of a batch that native commands decide.
type run struct {
	asks    []*ask
	charges int
	message message
	reply   reply
	slot    uint16
	native  bool // by commands of the server's own, of all slots
	alone   bool
	asking  bool
	allowed resp.Reply    // to ASKING
	said    []*resp.Reply // to each native command
	unknown bool          // the server lacks the script
	err     error
}

// sort makes f.all the runs of f.asks.
func (f *flight) sort() {
	f.all = f.all[:0]
	for _, a := range f.asks {
		i := -1
		if !a.alone {
			i = slices.IndexFunc(f.all, func(r *run) bool {
				return !r.alone && r.native == a.call.native && (r.native || r.slot == a.slot)
			})
		}
		if i < 0 {
			i = f.more(a)
		}
		r := f.all[i]
		a.err = nil
		r.asks = append(r.asks, a)
		if !r.native {
			r.message.add(&a.call)
		}
		r.charges += len(a.call.charges)
	}
}

// more appends a run of a's kind, and returns its index.
func (f *flight) more(a *ask) int {
	n := len(f.all)
	if n < cap(f.all) && f.all[:n+1][n] != nil {
		f.all = f.all[:n+1]
	} else {
		f.all = append(f.all, &run{})
	}
	r := f.all[n]
	clear(r.asks)
	r.asks, r.charges, r.err = r.asks[:0], 0, nil
	r.slot, r.native, r.alone, r.asking = a.slot, a.call.native, a.alone, a.asking
	r.message.clear(f.options.storeTime())
	return n
}

// read has each ask know what its charges found, or its foreign key.
func (r *run) read() {
	if r.native { // the client has
		return
	}
	for _, a := range r.asks {
		a.found, a.err = r.reply.read(&r.message, &a.call, a.found)
		if a.err != nil && !isForeign(a.err) {
			r.err = &failure{Reply, a.err}
			return
		}
	}
}
