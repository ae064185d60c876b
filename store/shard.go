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
	// minInFlight and maxInFlight bound the number of a shard's batches in flight. Requests that
	// arrive meanwhile form the next batch. Between the bounds, there is a batch for each tripPart of
	// a round trip, and tripPart between two: at a distant store, requests do not wait for a round
	// trip of the others.
	minInFlight = 2
	maxInFlight = 32
	tripPart    = 5 * time.Millisecond
	// replyReserve is the part of a request's budget that is reserved for the reply: the fallback's
	// decision, the write, and Envoy's reading. The command in docs/store.md measures it.
	replyReserve = 3 * time.Millisecond
	// timerGrace is how long the timer waits once more at a deadline. If this process had no CPU,
	// the timer may fire before a reply is read that arrived in time.
	timerGrace = 500 * time.Microsecond
)

// A dialer connects to the server of a shard.
type dialer func(ctx context.Context) (*redis.Conn, error)

// A shard sends charges to one primary. Callers queue requests; its senders call the connection,
// which waits for replies without a deadline. Its timer watches the deadlines of waiting requests.
// Its prober reconnects when the shard is unavailable.
type shard struct {
	options *Options
	name    string
	dial    dialer
	backend *backend
	offset  atomic.Int64 // the server's time less the steady clock's, in nanoseconds, or unknown
	offsets offsetRange  // derived from the replies so far

	shortestTrip      atomic.Int64 // shortest round trip of the connection, in nanoseconds
	replaced          atomic.Bool  // the shard has ended because other primaries have its slots
	loggedUnavailable bool         // the log says that the shard is unavailable. Used by the prober alone

	// mu protects the following fields. It is not held while waiting or calling the connection.
	mu           sync.Mutex
	wake         sync.Cond
	conn         *redis.Conn            // nil while the shard is unavailable
	connecting   bool                   // the first connection is being made: requests wait for it
	used         bool                   // the shard was used since resetUsed
	queue        []*request             // requests that no sender has taken
	bulk         []*request             // parts of large requests that no sender has taken
	open         requestList            // requests that are not decided
	sendingSince [maxInFlight]time.Time // per sender: since when it waits for a reply, or zero
	lastBatch    time.Time              // when a sender took the last batch
	pacing       bool                   // a sender waits for the next tripPart
	inGrace      bool                   // checkDeadlines waits for timerGrace
	timer        *time.Timer
	timerAt      time.Time // when the timer fires, zero if it is not set
	closed       bool
	endedAt      time.Time      // when the context of run ended
	inFlight     int            // number of messages in flight
	idle         sync.Cond      // signalled when inFlight becomes 0
	pausing      sync.WaitGroup // requests that wait after TRYAGAIN
	lost         chan lostConn  // read by the prober
	syncNow      chan struct{}  // signals that there are hits to sync; holds one element

	// Used by the prober alone.
	addSenders  func(most int)         // starts senders until there are most
	movingSlots map[uint16]bool        // slots that were moving when their hits were to be synced
	retrySync   *time.Timer            // fires when these are to be synced again
	otherConns  map[*shard]*redis.Conn // connections to nodes of other shards, once this shard has ended
}

// clock reads the machine's time, which measures how long callers and servers take.
func clock() time.Time { return time.Now() } //nolint:forbidigo // as above

// A lostConn is a connection that failed.
type lostConn struct {
	client *redis.Conn
	why    *redis.Error
}

func newShard(f *backend, name string, dial dialer) *shard {
	sh := &shard{
		options: f.options, name: name, dial: dial, backend: f, lost: make(chan lostConn, 1), syncNow: make(chan struct{}, 1),
	}
	sh.offset.Store(unknown)
	sh.movingSlots = map[uint16]bool{}
	sh.retrySync = time.NewTimer(time.Hour)
	sh.otherConns = map[*shard]*redis.Conn{}
	sh.retrySync.Stop()
	sh.wake.L = &sh.mu
	sh.idle.L = &sh.mu
	sh.timer = time.AfterFunc(time.Hour, sh.checkDeadlines)
	sh.timer.Stop()
	return sh
}

// enqueue queues a request. It reports false if the shard is unavailable.
func (sh *shard) enqueue(req *request) bool {
	sh.mu.Lock()
	if sh.conn == nil && !sh.connecting || sh.closed || req.only != nil && req.only != sh.conn {
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
	sh.wakeSenderLocked()
	sh.mu.Unlock()
	return true
}

// wakeSenderLocked wakes a sender for queued requests. Without room for another batch in flight, the
// first sender whose batch is done takes them.
func (sh *shard) wakeSenderLocked() {
	if pause, room := sh.roomLocked(); room && (pause == 0 || !sh.pacing) {
		sh.wake.Signal()
	}
}

// roomLocked reports whether another batch may be in flight, after a pause. The shortest round trip
// counts, because those of a busy server include the time in its queue.
func (sh *shard) roomLocked() (pause time.Duration, room bool) {
	if sh.inFlight < minInFlight {
		return 0, true
	}
	return max(0, tripPart-clock().Sub(sh.lastBatch)), sh.inFlight < sh.mostInFlight()
}

func (sh *shard) mostInFlight() int { return mostInFlight(time.Duration(sh.shortestTrip.Load())) }

// mostInFlight returns the bound of the number of batches in flight, by the shortest round trip.
func mostInFlight(trip time.Duration) int {
	return int(min(maxInFlight, max(minInFlight, trip/tripPart)))
}

// learnTrip records the round trip of a message.
func (sh *shard) learnTrip(trip time.Duration) {
	if int64(trip) < sh.shortestTrip.Load() {
		sh.shortestTrip.Store(int64(trip)) // of concurrent ones, any is short enough
	}
}

func (sh *shard) setTimerLocked(at time.Time) {
	sh.timerAt = at
	sh.timer.Reset(at.Sub(clock()))
}

// setConnLocked sets the connection, and whether the first one is being made.
func (sh *shard) setConnLocked(c *redis.Conn, connecting bool) {
	if bl := sh.backend.store.blocks; bl != nil {
		if bl.down.Store(c == nil); c == nil && sh.conn != nil {
			bl.lost.Store(int64(bl.elapsed() - clock().Sub(sh.conn.LastReplied())))
		}
	}
	sh.conn = c
	sh.connecting = connecting
}

// address returns the address of the shard's connection, "" while it is unavailable.
func (sh *shard) address() string {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.conn == nil {
		return ""
	}
	return sh.conn.Address
}

// connection returns the shard's connection for syncing a moving slot, nil while it is unavailable.
// It counts as a use of the shard, so that a shard without slots is kept.
func (sh *shard) connection() *redis.Conn {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.used = true
	return sh.conn
}

// isUp reports whether the shard is available.
func (sh *shard) isUp() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.conn != nil
}

// accepts reports whether enqueue would accept a request.
func (sh *shard) accepts() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.conn != nil || sh.connecting
}

// resetUsed reports whether the shard was used since the last call.
func (sh *shard) resetUsed() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	was := sh.used
	sh.used = false
	return was
}

// maxWait returns how long a request with the given remaining budget waits for the store.
func (o *Options) maxWait(budget time.Duration) time.Duration {
	if budget == 0 { // no deadline
		return o.Timeout
	}
	return min(o.Timeout, max(budget-replyReserve, budget/2))
}

// checkDeadlines is called by the timer.
func (sh *shard) checkDeadlines() {
	now := clock()
	sh.mu.Lock()
	sh.timerAt = time.Time{}
	due, unavailable := sh.nextDeadlineLocked()
	switch {
	case due.IsZero(): // no request waits
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
	if !unavailable.IsZero() && !unavailable.After(now) {
		c := sh.conn
		sh.mu.Unlock()
		sh.markUnavailable(c,
			&redis.Error{Kind: redis.Timeout, Err: fmt.Errorf("no answer within %v", sh.options.Timeout)})
		return
	}
	late := sh.removeLateLocked(now)
	if due, _ = sh.nextDeadlineLocked(); !due.IsZero() {
		sh.setTimerLocked(due)
	}
	sh.mu.Unlock()
	sh.fallBack(late)
}

// nextDeadlineLocked returns the earliest deadline of the waiting requests, or zero if there are
// none. unavailable is the time at which the shard becomes unavailable if its server sends nothing
// until then: a request has waited, and the server has been silent, for the timeout. A request's
// own shorter deadline does not make the shard unavailable.
func (sh *shard) nextDeadlineLocked() (due, unavailable time.Time) {
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
		if sh.conn != nil && sh.conn.LastReplied().After(oldest) {
			oldest = sh.conn.LastReplied()
		}
		unavailable = oldest.Add(sh.options.Timeout)
		due = unavailable
	}
	for req := sh.open.first; req != nil; req = req.next {
		if due.IsZero() || req.deadline.Before(due) {
			due = req.deadline
		}
	}
	return due, unavailable
}

// removeLateLocked removes and returns the requests whose deadline has passed. Those that are still
// queued are never sent.
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
	sh.queue = slices.DeleteFunc(sh.queue, isLate)
	sh.bulk = slices.DeleteFunc(sh.bulk, isLate)
	return late
}

// markUnavailable makes the shard unavailable if it still uses c, or if c is nil and the first
// connection is being made. The fallback decides all waiting requests.
func (sh *shard) markUnavailable(c *redis.Conn, why *redis.Error) {
	sh.mu.Lock()
	if sh.conn != c || sh.closed || c == nil && !sh.connecting {
		sh.mu.Unlock()
		return
	}
	waiting := sh.drainLocked()
	sh.mu.Unlock()
	if c != nil {
		sh.lost <- lostConn{c, why} // does not block: only the prober sets sh.conn
	}
	sh.fallBack(waiting)
}

// drainLocked removes the connection and all waiting requests, and returns the requests.
func (sh *shard) drainLocked() (waiting []*request) {
	sh.setConnLocked(nil, false)
	for req := sh.open.first; req != nil; req = sh.open.first {
		sh.open.remove(req)
		waiting = append(waiting, req)
	}
	clear(sh.queue)
	clear(sh.bulk)
	sh.queue = sh.queue[:0]
	sh.bulk = sh.bulk[:0]
	sh.sendingSince = [maxInFlight]time.Time{}
	sh.timer.Stop()
	sh.timerAt = time.Time{}
	return waiting
}

// disconnectUnlessAt makes the shard unavailable if it is connected to a server at another address.
func (sh *shard) disconnectUnlessAt(address string) {
	sh.mu.Lock()
	c := sh.conn
	sh.mu.Unlock()
	if c != nil && c.Address != address {
		sh.markUnavailable(c, &redis.Error{
			Kind: redis.ReadOnly, Err: fmt.Errorf("the primary is no longer at %s but at %s", c.Address, address),
		})
	}
}

// fallBack decides requests by the fallback.
func (sh *shard) fallBack(waiting []*request) {
	for _, req := range waiting {
		req.loseOwn()
		switch {
		case req.batch == nil: // no caller waits
		case !req.end.fallsBack():
			sh.options.notify(req.waiter, ErrUnavailable)
		default:
			now, _ := sh.timeBy(req.now, req.slotByStart)
			err := sh.backend.withLocalLeases(now, req.batch, req.call.LeaseName,
				func() error { return sh.backend.store.fallBack(now, req.batch) })
			sh.options.guard(func() { sh.backend.recordRequest(now, req, err == nil) })
			sh.options.notify(req.waiter, err)
		}
	}
}
