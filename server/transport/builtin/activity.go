package builtin

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// activity holds a connection's timestamps, which the monitor reads without locking connection.mu,
// so a client that does not read cannot block it. Times are times of the clock; 0 means none.
type activity struct {
	startedAt, maxAge time.Duration // maxAge is 0 if unlimited

	receivedAt        atomic.Int64 // the client's last bytes
	lastCallAt        atomic.Int64 // the last time at which a call began or was open
	openCalls         atomic.Int64 // number of open calls
	incompleteFrameAt atomic.Int64 // beginning of an incomplete frame
	headerBlockAt     atomic.Int64 // beginning of an incomplete header block
	writeStartedAt    atomic.Int64 // beginning of a write that is not done

	drainAt atomic.Int64 // when a GOAWAY was requested or sent

	gotSettings   atomic.Bool // the client's SETTINGS were received
	waitsForStore atomic.Bool // the connection waits for a store, or has input that is not fed yet

	lastStream uint32        // newest stream at the end of the last batch
	pingedAt   time.Duration // when the unanswered PING was requested; used by the monitor only
}

func (a *activity) start(now, age time.Duration) {
	a.startedAt = now
	if age > 0 {
		// A tenth more or less, so that connections that began together do not end together.
		a.maxAge = age + time.Duration((rand.Float64()-0.5)*0.2*float64(age)) //nolint:gosec // not for secrets
	}
	a.receivedAt.Store(int64(now))
	a.lastCallAt.Store(int64(now))
}

func (a *activity) noteReceived(now time.Duration) { a.receivedAt.Store(int64(now)) }

// noteCalls records the newest stream and the number of open calls at the end of a batch.
func (a *activity) noteCalls(now time.Duration, last uint32, open int) {
	if last != a.lastStream || open > 0 || a.openCalls.Load() > 0 {
		a.lastCallAt.Store(int64(now))
	}
	a.lastStream = last
	a.openCalls.Store(int64(open))
}

// noteIncompleteFrame is called when all input was fed. The connection then no longer waits for a
// store. incomplete is true if the input ended inside a frame, and changed if it is a different
// frame than before.
func (a *activity) noteIncompleteFrame(incomplete, changed bool) {
	switch {
	case !incomplete:
		a.incompleteFrameAt.Store(0)
	case changed || a.incompleteFrameAt.Load() == 0:
		a.incompleteFrameAt.Store(a.receivedAt.Load())
	}
	if a.waitsForStore.Load() {
		a.waitsForStore.Store(false)
	}
}

// noteHeaderBlock records, at the end of a batch, when an incomplete header block began.
func (a *activity) noteHeaderBlock(start time.Duration, incomplete bool) {
	if !incomplete {
		start = 0
	}
	a.headerBlockAt.Store(int64(start))
}

// Time limits of clients.
const (
	maxFrameTime = 10 * time.Second // to send a frame or a header block
	maxWriteTime = 5 * time.Second  // to read the output of a batch
)

// monitorInterval returns how often connections are checked: once a second, or as often as the
// shortest configured time.
func monitorInterval(l *transport.Limits) time.Duration {
	every := time.Second
	for _, d := range [...]time.Duration{
		l.KeepaliveTimeout, l.MaxConnectionIdle, l.MaxConnectionAge, l.MaxConnectionAgeGrace,
	} {
		if d > 0 {
			every = min(every, d)
		}
	}
	return max(every, 10*time.Millisecond)
}

// check returns the commands for the next batch, or expired if the connection reached its age, or
// an error that names the client's violation.
func (a *activity) check(now time.Duration, limits *transport.Limits) (cmds commands, expired bool, err error) {
	since := func(at *atomic.Int64) time.Duration { return now - time.Duration(at.Load()) }
	silent := since(&a.receivedAt)
	aged := a.maxAge > 0 && now-a.startedAt >= a.maxAge
	draining := a.drainAt.Load() != 0
	// The grace period starts with the GOAWAY, not at the age. After a suspension of the process it
	// would otherwise have passed before the client receives the GOAWAY.
	expired = aged && draining && limits.MaxConnectionAgeGrace > 0 && since(&a.drainAt) >= limits.MaxConnectionAgeGrace
	switch {
	case a.writeStartedAt.Load() != 0 && since(&a.writeStartedAt) >= maxWriteTime:
		return 0, false, errWriteTimeout
	case a.waitsForStore.Load(): // nothing is read, so the client is not to blame
		if aged && !draining {
			cmds = commandDrainAge
		}
		return cmds, expired, nil
	case a.incompleteFrameAt.Load() != 0 && since(&a.incompleteFrameAt) >= maxFrameTime,
		a.headerBlockAt.Load() != 0 && since(&a.headerBlockAt) >= maxFrameTime:
		return 0, false, errFrameTimeout
	case a.pingedAt != 0 && silent >= now-a.pingedAt && now-a.pingedAt >= limits.KeepaliveTimeout:
		return 0, false, errKeepaliveTimeout
	case expired:
		return 0, true, nil
	}
	if a.pingedAt != 0 && silent < now-a.pingedAt {
		a.pingedAt = 0
	}
	if a.pingedAt == 0 && a.gotSettings.Load() && silent >= limits.KeepaliveTime {
		a.pingedAt = now
		cmds |= commandPing
	}
	idle := a.openCalls.Load() == 0 && since(&a.lastCallAt) >= limits.MaxConnectionIdle
	switch {
	case draining:
	case aged:
		cmds |= commandDrainAge
	case idle:
		cmds |= commandDrainIdle
	}
	if a.openCalls.Load() > 0 || draining {
		cmds |= commandResetOverdue
	}
	return cmds, false, nil
}
