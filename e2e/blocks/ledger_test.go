package blocks_test

import (
	"fmt"
	"sync"
	"time"
)

// windows is a range of consecutive windows, both included, as numbers since the Unix epoch.
type windows struct{ first, last int64 }

// clockError bounds the error of a replica's estimate of the store's clock: half of its fastest round
// trip so far (store/offset.go). A replica uses a connection only after a round trip of at most
// --store-timeout. With the long timeout of patient, only a machine that is too busy to do one round
// trip in storeTimeout exceeds it: with 30 runnable processes on two cores, errors were up to 21 ms.
const clockError = storeTimeout / 2

// ledger counts the hits of one counter. A request that was sent and answered within one window
// belongs to it. Any other belongs to one of the windows between its start and its end. Safe for
// concurrent use.
type ledger struct {
	length time.Duration

	mu       sync.Mutex
	admitted map[windows]int
	denied   map[windows]int
	possible map[windows]int // admitted, with all windows that replicas may have counted them in
}

func newLedger(length time.Duration) *ledger {
	return &ledger{length: length, admitted: map[windows]int{}, denied: map[windows]int{}, possible: map[windows]int{}}
}

// window returns the number of the window that contains t.
func (l *ledger) window(t time.Time) int64 { return t.UnixNano() / int64(l.length) }

// record counts an answered request.
func (l *ledger) record(start, end time.Time, hits int, admitted bool) {
	at := windows{l.window(start), l.window(end)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if admitted {
		l.admitted[at] += hits
		l.possible[windows{l.window(start.Add(-clockError)), l.window(end.Add(clockError))}] += hits
	} else {
		l.denied[at] += hits
	}
}

// exceeded returns a description of a range of windows in which more hits were admitted than the
// bounds of its windows allow together, or "". If there is no such range, the ambiguous requests can
// be assigned so that no window exceeds its bound (Hall's theorem, for intervals).
func (l *ledger) exceeded(bound func(window int64) int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.rangeLocked()
	for first := all.first; first <= all.last; first++ {
		from := map[int64]int{} // hits admitted no earlier than first, by the last possible window
		for at, hits := range l.possible {
			if at.first >= first {
				from[at.last] += hits
			}
		}
		admitted, allowed := 0, 0
		for last := first; last <= all.last; last++ {
			admitted += from[last]
			allowed += bound(last)
			if admitted > allowed {
				return fmt.Sprintf("%d hits were admitted in the windows %d to %d of %v, which allow %d", admitted, first, last, l.length, allowed)
			}
		}
	}
	return ""
}

// all returns all windows with requests.
func (l *ledger) all() windows {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rangeLocked()
}

// rangeLocked returns all windows with requests.
func (l *ledger) rangeLocked() windows {
	all := windows{0, -1}
	for _, m := range []map[windows]int{l.possible, l.denied} {
		for at := range m {
			if all.last < 0 {
				all = at
			}
			all = windows{min(all.first, at.first), max(all.last, at.last)}
		}
	}
	return all
}

// certain returns the hits of the requests that certainly belong to a window.
func (l *ledger) certain(window int64) (admitted, denied int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	only := windows{window, window}
	return l.admitted[only], l.denied[only]
}

// total returns the hits of all requests.
func (l *ledger) total() (admitted, denied int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, hits := range l.admitted {
		admitted += hits
	}
	for _, hits := range l.denied {
		denied += hits
	}
	return admitted, denied
}
