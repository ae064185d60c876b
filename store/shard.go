package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
)

const (
	// senders are as many batches as may be under way. What comes meanwhile is the next.
	senders = 2
	// replyReserve is what of a call's budget is kept for its reply: the fallback's decision, the write,
	// and Envoy's reading. TestFaultTable and the command in docs/store.md measure what it takes.
	replyReserve = 3 * time.Millisecond
	// timerGrace is how much longer the timer waits when somebody has waited long enough. Where
	// this process had no CPU, the timer fires before the reply is read that has long been there.
	timerGrace = 500 * time.Microsecond
)

// A dialer connects to the server of a lane.
type dialer func(ctx context.Context) (*redis.Conn, error)

// A lane brings charges to one primary. Callers queue; its senders are all that calls the
// client, which waits for replies without looking at a deadline. Its
// timer watches those who wait. Its prober brings it back when it is away.
type shard struct {
	options *Options
	name    string
	dial    dialer
	backend *backend
	offset  atomic.Int64 // the server's time less ours, in nanoseconds, or unknown
	offsets offsetRange  // by the replies so far

	slowness          slowness    // of the server
	replaced          atomic.Bool // the lane has ended because other primaries have its slots
	loggedUnavailable bool        // the log says that the lane is away. It is the prober's

	// Guards what follows. Nothing waits or calls the client while it is held.
	mu           sync.Mutex
	wake         sync.Cond
	conn         *redis.Conn // nil while the lane is away
	connecting   bool        // the lane is not away yet: the first connection is being made
	used         bool        // since wasUsed
	queue        []*request  // that no sender has taken
	bulk         []*request  // the same, of large requests
	open         requestList // that are not decided
	sendingSince [senders]time.Time
	lastReply    time.Time // when the server last answered
	inGrace      bool      // tick has fired for who has waited long enough, and waits for grace
	timer        *time.Timer
	timerAt      time.Time // zero if the timer is not set
	closed       bool
	inFlight     int            // messages that senders have under way
	idle         sync.Cond      // none is
	pausing      sync.WaitGroup // asks after TRYAGAIN
	lost         chan lostConn  // to the prober
	syncNow      chan struct{}  // has an element if something is to be charged

	// The prober's.
	movingSlots map[uint16]bool        // slots that moved when their debts were to be charged
	retrySync   *time.Timer            // until those are charged once more
	otherConns  map[*shard]*redis.Conn // connections to the nodes of other lanes once this lane has ended
}

// clock tells how long callers and servers take, for which the machine's time is right.
func clock() time.Time { return time.Now() } //nolint:forbidigo // as above

// A lost client is one that failed.
type lostConn struct {
	client *redis.Conn
	why    *redis.Error
}

func newShard(f *backend, name string, dial dialer) *shard {
	sh := &shard{options: f.options, name: name, dial: dial, backend: f, lost: make(chan lostConn, 1), syncNow: make(chan struct{}, 1)}
	sh.offset.Store(unknown)
	sh.movingSlots, sh.retrySync, sh.otherConns = map[uint16]bool{}, time.NewTimer(time.Hour), map[*shard]*redis.Conn{}
	sh.retrySync.Stop()
	sh.wake.L, sh.idle.L = &sh.mu, &sh.mu
	sh.timer = time.AfterFunc(time.Hour, sh.checkDeadlines)
	sh.timer.Stop()
	return sh
}

// enqueue queues a. It reports false if the lane is away.
func (sh *shard) enqueue(req *request) bool {
	sh.mu.Lock()
	if sh.conn == nil && !sh.connecting || sh.closed {
		sh.mu.Unlock()
		return false
	}
	sh.used = true
	sh.open.push(req)
	if req.bulk {
		sh.bulk = append(sh.bulk, req)
	} else {
		sh.queue = append(sh.queue, req)
	}
	if sh.timerAt.IsZero() || req.deadline.Before(sh.timerAt) {
		sh.setTimerLocked(req.deadline)
	}
	sh.wake.Signal()
	sh.mu.Unlock()
	return true
}

func (sh *shard) setTimerLocked(at time.Time) {
	sh.timerAt = at
	sh.timer.Reset(at.Sub(clock()))
}

// address returns where the lane's connection leads, nothing while it is away.
func (sh *shard) address() string {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.conn == nil {
		return ""
	}
	return sh.conn.Address
}

// connection returns the lane's connection for debts that follow their slot, nil while it is away. The lane is used, so that one
// to a node without slots stays.
func (sh *shard) connection() *redis.Conn {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.used = true
	return sh.conn
}

// isUp reports whether the lane is not away.
func (sh *shard) isUp() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.conn != nil
}

// accepts reports whether put would take an ask.
func (sh *shard) accepts() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.conn != nil || sh.connecting
}

// resetUsed reports whether anybody asked since it was called last.
func (sh *shard) resetUsed() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	was := sh.used
	sh.used = false
	return was
}

// maxWait returns how long a call waits for the store that has so much left of its deadline.
func (o *Options) maxWait(budget time.Duration) time.Duration {
	if budget == 0 { // it has none
		return o.Timeout
	}
	return min(o.Timeout, max(budget-replyReserve, budget/2))
}

// checkDeadlines is called when somebody has waited long enough.
func (sh *shard) checkDeadlines() {
	now := clock()
	sh.mu.Lock()
	sh.timerAt = time.Time{}
	due, away := sh.nextDeadlineLocked()
	switch {
	case due.IsZero(): // nobody waits
		sh.inGrace = false
		sh.mu.Unlock()
		return
	case due.After(now):
		sh.inGrace = false
		sh.setTimerLocked(due)
		sh.mu.Unlock()
		return
	case !sh.inGrace:
		sh.inGrace = true
		sh.setTimerLocked(now.Add(timerGrace))
		sh.mu.Unlock()
		return
	}
	sh.inGrace = false
	if !away.IsZero() && !away.After(now) {
		c := sh.conn
		sh.mu.Unlock()
		sh.markUnavailable(c, &redis.Error{Kind: redis.Timeout, Err: fmt.Errorf("no answer within %v", sh.options.Timeout)})
		return
	}
	late := sh.removeLateLocked(now)
	if due, _ = sh.nextDeadlineLocked(); !due.IsZero() {
		sh.setTimerLocked(due)
	}
	sh.mu.Unlock()
	sh.fallBack(late)
}

// nextDeadlineLocked returns when the next of those who wait has waited long enough, zero if nobody waits; and when
// the lane is away unless the server says something: it has said nothing for the timeout then, though
// something waits for it. One call's deadline says nothing of the store.
func (sh *shard) nextDeadlineLocked() (due, away time.Time) {
	oldest := time.Time{}
	for _, since := range sh.sendingSince {
		if !since.IsZero() && (oldest.IsZero() || since.Before(oldest)) {
			oldest = since
		}
	}
	if len(sh.queue) > 0 && (oldest.IsZero() || sh.queue[0].queuedAt.Before(oldest)) {
		oldest = sh.queue[0].queuedAt
	}
	if !oldest.IsZero() && (sh.conn != nil || sh.connecting) {
		if sh.lastReply.After(oldest) {
			oldest = sh.lastReply
		}
		away = oldest.Add(sh.options.Timeout)
		due = away
	}
	for req := sh.open.first; req != nil; req = req.next {
		if due.IsZero() || req.deadline.Before(due) {
			due = req.deadline
		}
	}
	return due, away
}

// removeLateLocked takes those from the lane who have waited long enough. What no sender has taken is not sent
// any more.
func (sh *shard) removeLateLocked(now time.Time) (late []*request) {
	for req := sh.open.first; req != nil; {
		following := req.next
		if !req.deadline.After(now) {
			sh.open.remove(req)
			late = append(late, req)
		}
		req = following
	}
	isLate := func(req *request) bool { return !req.open }
	sh.queue, sh.bulk = slices.DeleteFunc(sh.queue, isLate), slices.DeleteFunc(sh.bulk, isLate)
	return late
}

// markUnavailable makes the lane go away if it still uses c, or is fresh and c is nil: all who wait get the fallback at once, and
// those who come later too.
func (sh *shard) markUnavailable(c *redis.Conn, why *redis.Error) {
	sh.mu.Lock()
	if sh.conn != c || sh.closed || c == nil && !sh.connecting {
		sh.mu.Unlock()
		return
	}
	waiting := sh.drainLocked()
	sh.mu.Unlock()
	if c != nil {
		sh.lost <- lostConn{c, why} // there is room: only the prober gives the lane a client
	}
	sh.fallBack(waiting)
}

// drainLocked takes the client and all who wait from the lane, and returns the latter.
func (sh *shard) drainLocked() (waiting []*request) {
	sh.conn, sh.connecting = nil, false
	for req := sh.open.first; req != nil; req = sh.open.first {
		sh.open.remove(req)
		waiting = append(waiting, req)
	}
	clear(sh.queue)
	clear(sh.bulk)
	sh.queue, sh.bulk = sh.queue[:0], sh.bulk[:0]
	sh.sendingSince = [senders]time.Time{}
	sh.timer.Stop()
	sh.timerAt = time.Time{}
	return waiting
}

// disconnectUnlessAt makes the lane go away if it is at another server than the one at address.
func (sh *shard) disconnectUnlessAt(address string) {
	sh.mu.Lock()
	c := sh.conn
	sh.mu.Unlock()
	if c != nil && c.Address != address {
		sh.markUnavailable(c, &redis.Error{Kind: redis.ReadOnly, Err: fmt.Errorf("the primary is no longer at %s but at %s", c.Address, address)})
	}
}

func (sh *shard) fallBack(waiting []*request) {
	for _, req := range waiting {
		switch {
		case req.batch == nil: // nobody waits
		case req.noFallback:
			sh.options.answer(req.waiter, ErrUnavailable)
		default:
			now, _ := sh.timeBy(req.now, req.slotByStart)
			err := sh.backend.withLocalLeases(now, req.batch, req.call.LeaseName, func() error { return sh.options.fallBack(now, req.batch) })
			sh.options.guard(func() { sh.backend.recordRequest(now, req, err == nil) })
			sh.options.answer(req.waiter, err)
		}
	}
}
