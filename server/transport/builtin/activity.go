package builtin

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// activity is what the watch of all connections goes by. It takes no connection's turn, so that a
// client that does not read cannot stop it. All are times of the clock.
type activity struct {
	startedAt, maxAge time.Duration // age is 0 for none

	receivedAt        atomic.Int64 // something came
	lastCallAt        atomic.Int64 // a call began, or was open
	openCalls         atomic.Int64 // how many are
	incompleteFrameAt atomic.Int64 // the beginning of a frame came whose end has not, or 0
	headerBlockAt     atomic.Int64 // likewise of a header block
	writeStartedAt    atomic.Int64 // a write began that has not ended, or 0

	drainAt atomic.Int64 // it was told to drain, or 0

	gotSettings   atomic.Bool // the client's SETTINGS have come
	waitsForStore atomic.Bool // the connection waits for stores, or has not fed all that came since

	lastStream uint32        // the newest stream at the end of the last turn
	pingedAt   time.Duration // the watch's own: 0 if an answer has come, or none was asked for
}

func (w *activity) start(now, age time.Duration) {
	w.startedAt = now
	if age > 0 {
		// A tenth more or less, so that connections that began together do not end together.
		w.maxAge = age + time.Duration((rand.Float64()-0.5)*0.2*float64(age)) //nolint:gosec // not for secrets
	}
	w.receivedAt.Store(int64(now))
	w.lastCallAt.Store(int64(now))
}

func (w *activity) noteReceived(now time.Duration) { w.receivedAt.Store(int64(now)) }

// noteCalls is called at the end of each turn.
func (w *activity) noteCalls(now time.Duration, last uint32, open int) {
	if last != w.lastStream || open > 0 || w.openCalls.Load() > 0 {
		w.lastCallAt.Store(int64(now))
	}
	w.lastStream = last
	w.openCalls.Store(int64(open))
}

// noteIncompleteFrame is called when all that came was fed: the connection does not wait for stores. begun says that the beginning of a frame is left, and
// another that it is not the one that was left before.
func (w *activity) noteIncompleteFrame(begun, another bool) {
	switch {
	case !begun:
		w.incompleteFrameAt.Store(0)
	case another || w.incompleteFrameAt.Load() == 0:
		w.incompleteFrameAt.Store(w.receivedAt.Load())
	}
	if w.waitsForStore.Load() {
		w.waitsForStore.Store(false)
	}
}

// noteHeaderBlock is called at the end of each turn, with when the header block began that has not ended.
func (w *activity) noteHeaderBlock(since time.Duration, unfinished bool) {
	if !unfinished {
		since = 0
	}
	w.headerBlockAt.Store(int64(since))
}

// How long a client may take.
const (
	maxFrameTime = 10 * time.Second // to send a frame, or a header block
	maxWriteTime = 5 * time.Second  // to take what a turn has written
)

// monitorInterval returns how often connections are looked at: each second, or as often as the shortest
// time of a flag says.
func monitorInterval(l *transport.Limits) time.Duration {
	every := time.Second
	for _, d := range [...]time.Duration{l.KeepaliveTimeout, l.MaxConnectionIdle, l.MaxConnectionAge, l.MaxConnectionAgeGrace} {
		if d > 0 {
			every = min(every, d)
		}
	}
	return max(every, 10*time.Millisecond)
}

// check returns what the next turn is to do; or over, if the connection is to be closed and that is nobody's
// fault; or why it is to be closed for what its client did, or did not do in time.
func (w *activity) check(now time.Duration, limits *transport.Limits) (todo commands, over bool, why error) {
	since := func(at *atomic.Int64) time.Duration { return now - time.Duration(at.Load()) }
	silent := since(&w.receivedAt)
	aged := w.maxAge > 0 && now-w.startedAt >= w.maxAge
	told := w.drainAt.Load() != 0
	// Since it was told, not since its age: a process that was stopped for a while, or got no
	// processor, would cut calls whose client never heard that the connection ends.
	over = aged && told && limits.MaxConnectionAgeGrace > 0 && since(&w.drainAt) >= limits.MaxConnectionAgeGrace
	switch {
	case w.writeStartedAt.Load() != 0 && since(&w.writeStartedAt) >= maxWriteTime:
		return 0, false, errNotReading
	case w.waitsForStore.Load(): // nothing is read, so the client may have sent what it has to
		if aged && !told {
			todo = commandDrainAge
		}
		return todo, over, nil
	case w.incompleteFrameAt.Load() != 0 && since(&w.incompleteFrameAt) >= maxFrameTime,
		w.headerBlockAt.Load() != 0 && since(&w.headerBlockAt) >= maxFrameTime:
		return 0, false, errIncompleteFrame
	case w.pingedAt != 0 && silent >= now-w.pingedAt && now-w.pingedAt >= limits.KeepaliveTimeout:
		return 0, false, errPingTimeout
	case over:
		return 0, true, nil
	}
	if w.pingedAt != 0 && silent < now-w.pingedAt {
		w.pingedAt = 0
	}
	if w.pingedAt == 0 && w.gotSettings.Load() && silent >= limits.KeepaliveTime {
		w.pingedAt = now
		todo |= commandPing
	}
	idle := w.openCalls.Load() == 0 && since(&w.lastCallAt) >= limits.MaxConnectionIdle
	switch {
	case told:
	case aged:
		todo |= commandDrainAge
	case idle:
		todo |= commandDrainIdle
	}
	if w.openCalls.Load() > 0 || told {
		todo |= commandResetOverdue
	}
	return todo, false, nil
}
