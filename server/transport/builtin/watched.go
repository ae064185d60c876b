package builtin

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// watched is what the watch of all connections goes by. It takes no connection's turn, so that a
// client that does not read cannot stop it. All are times of the clock.
type watched struct {
	begun, age time.Duration // age is 0 for none

	heardAt   atomic.Int64 // something came
	calledAt  atomic.Int64 // a call began, or was open
	open      atomic.Int64 // how many are
	partialAt atomic.Int64 // the beginning of a frame came whose end has not, or 0
	blockAt   atomic.Int64 // likewise of a header block
	writing   atomic.Int64 // a write began that has not ended, or 0

	toldAt atomic.Int64 // it was told to drain, or 0

	ready atomic.Bool // the client's SETTINGS have come
	waits atomic.Bool // the connection waits for stores, or has not fed all that came since

	last     uint32        // the newest stream at the end of the last turn
	pingedAt time.Duration // the watch's own: 0 if an answer has come, or none was asked for
}

func (w *watched) begin(now, age time.Duration) {
	w.begun = now
	if age > 0 {
		// A tenth more or less, so that connections that began together do not end together.
		w.age = age + time.Duration((rand.Float64()-0.5)*0.2*float64(age)) //nolint:gosec // not for secrets
	}
	w.heardAt.Store(int64(now))
	w.calledAt.Store(int64(now))
}

func (w *watched) heard(now time.Duration) { w.heardAt.Store(int64(now)) }

// calls is called at the end of each turn.
func (w *watched) calls(now time.Duration, last uint32, open int) {
	if last != w.last || open > 0 || w.open.Load() > 0 {
		w.calledAt.Store(int64(now))
	}
	w.last = last
	w.open.Store(int64(open))
}

// partial is called when all that came was fed: the connection does not wait for stores. begun says that the beginning of a frame is left, and
// another that it is not the one that was left before.
func (w *watched) partial(begun, another bool) {
	switch {
	case !begun:
		w.partialAt.Store(0)
	case another || w.partialAt.Load() == 0:
		w.partialAt.Store(w.heardAt.Load())
	}
	if w.waits.Load() {
		w.waits.Store(false)
	}
}

// block is called at the end of each turn, with when the header block began that has not ended.
func (w *watched) block(since time.Duration, unfinished bool) {
	if !unfinished {
		since = 0
	}
	w.blockAt.Store(int64(since))
}

// How long a client may take.
const (
	mostFrameTime = 10 * time.Second // to send a frame, or a header block
	mostWriteTime = 5 * time.Second  // to take what a turn has written
)

// watchEvery returns how often connections are looked at: each second, or as often as the shortest
// time of a flag says.
func watchEvery(l *transport.Limits) time.Duration {
	every := time.Second
	for _, d := range [...]time.Duration{l.KeepaliveTimeout, l.MaxConnectionIdle, l.MaxConnectionAge, l.MaxConnectionAgeGrace} {
		if d > 0 {
			every = min(every, d)
		}
	}
	return max(every, 10*time.Millisecond)
}

// look returns what the next turn is to do; or over, if the connection is to be closed and that is nobody's
// fault; or why it is to be closed for what its client did, or did not do in time.
func (w *watched) look(now time.Duration, limits *transport.Limits) (todo orders, over bool, why error) {
	since := func(at *atomic.Int64) time.Duration { return now - time.Duration(at.Load()) }
	silent := since(&w.heardAt)
	aged := w.age > 0 && now-w.begun >= w.age
	told := w.toldAt.Load() != 0
	// Since it was told, not since its age: a process that was stopped for a while, or got no
	// processor, would cut calls whose client never heard that the connection ends.
	over = aged && told && limits.MaxConnectionAgeGrace > 0 && since(&w.toldAt) >= limits.MaxConnectionAgeGrace
	switch {
	case w.writing.Load() != 0 && since(&w.writing) >= mostWriteTime:
		return 0, false, errUnread
	case w.waits.Load(): // nothing is read, so the client may have sent what it has to
		if aged && !told {
			todo = orderAge
		}
		return todo, over, nil
	case w.partialAt.Load() != 0 && since(&w.partialAt) >= mostFrameTime,
		w.blockAt.Load() != 0 && since(&w.blockAt) >= mostFrameTime:
		return 0, false, errFrame
	case w.pingedAt != 0 && silent >= now-w.pingedAt && now-w.pingedAt >= limits.KeepaliveTimeout:
		return 0, false, errSilent
	case over:
		return 0, true, nil
	}
	if w.pingedAt != 0 && silent < now-w.pingedAt {
		w.pingedAt = 0
	}
	if w.pingedAt == 0 && w.ready.Load() && silent >= limits.KeepaliveTime {
		w.pingedAt = now
		todo |= orderPing
	}
	idle := w.open.Load() == 0 && since(&w.calledAt) >= limits.MaxConnectionIdle
	switch {
	case told:
	case aged:
		todo |= orderAge
	case idle:
		todo |= orderIdle
	}
	if w.open.Load() > 0 || told {
		todo |= orderOverdue
	}
	return todo, false, nil
}
