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
	// reserve is what of a call's budget is kept for its reply: the fallback's decision, the write,
	// and Envoy's reading. TestFaultTable and the command in docs/store.md measure what it takes.
	reserve = 3 * time.Millisecond
	// grace is how much longer the timer waits when somebody has waited long enough. Where
	// this process had no CPU, the timer fires before the reply is read that has long been there.
	grace = 500 * time.Microsecond
)

// A dialer connects to the server of a lane.
type dialer func(ctx context.Context) (*redis.Conn, error)

// A lane brings charges to one primary. Callers queue; its senders are all that calls the
// client, which waits for replies without looking at a deadline. Its
// timer watches those who wait. Its prober brings it back when it is away.
type lane struct {
	options *Options
	shard   string
	dial    dialer
	fleet   *fleet
	offset  atomic.Int64 // the server's time less ours, in nanoseconds, or unknown
	offsets offsetRange  // by the replies so far

	slowness   slowness    // of the server
	replaced   atomic.Bool // the lane has ended because other primaries have its slots
	loggedAway bool        // the log says that the lane is away. It is the prober's

	// Guards what follows. Nothing waits or calls the client while it is held.
	mu      sync.Mutex
	wake    sync.Cond
	client  *redis.Conn // nil while the lane is away
	fresh   bool        // the lane is not away yet: the first connection is being made
	used    bool        // since wasUsed
	queue   []*ask      // that no sender has taken
	bulk    []*ask      // the same, of large requests
	open    asks        // that are not decided
	sending [senders]time.Time
	heard   time.Time // when the server last answered
	looked  bool      // tick has fired for who has waited long enough, and waits for grace
	timer   *time.Timer
	fires   time.Time // zero if the timer is not set
	closed  bool
	flying  int            // messages that senders have under way
	landed  sync.Cond      // none is
	pausing sync.WaitGroup // asks after TRYAGAIN
	lost    chan lost      // to the prober
	owes    chan struct{}  // has an element if something is to be charged

	// The prober's.
	moving map[uint16]bool       // slots that moved when their debts were to be charged
	again  *time.Timer           // until those are charged once more
	others map[*lane]*redis.Conn // connections to the nodes of other lanes once this lane has ended
}

// clock tells how long callers and servers take, for which the machine's time is right.
func clock() time.Time { return time.Now() } //nolint:forbidigo // as above

// A lost client is one that failed.
type lost struct {
	client *redis.Conn
	why    *redis.Error
}

func newLane(f *fleet, shard string, dial dialer) *lane {
	l := &lane{options: f.options, shard: shard, dial: dial, fleet: f, lost: make(chan lost, 1), owes: make(chan struct{}, 1)}
	l.offset.Store(unknown)
	l.moving, l.again, l.others = map[uint16]bool{}, time.NewTimer(time.Hour), map[*lane]*redis.Conn{}
	l.again.Stop()
	l.wake.L, l.landed.L = &l.mu, &l.mu
	l.timer = time.AfterFunc(time.Hour, l.tick)
	l.timer.Stop()
	return l
}

// put queues a. It reports false if the lane is away.
func (l *lane) put(a *ask) bool {
	l.mu.Lock()
	if l.client == nil && !l.fresh || l.closed {
		l.mu.Unlock()
		return false
	}
	l.used = true
	l.open.push(a)
	if a.bulk {
		l.bulk = append(l.bulk, a)
	} else {
		l.queue = append(l.queue, a)
	}
	if l.fires.IsZero() || a.until.Before(l.fires) {
		l.setTimerLocked(a.until)
	}
	l.wake.Signal()
	l.mu.Unlock()
	return true
}

func (l *lane) setTimerLocked(at time.Time) {
	l.fires = at
	l.timer.Reset(at.Sub(clock()))
}

// address returns where the lane's connection leads, nothing while it is away.
func (l *lane) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		return ""
	}
	return l.client.Address
}

// connection returns the lane's connection for debts that follow their slot, nil while it is away. The lane is used, so that one
// to a node without slots stays.
func (l *lane) connection() *redis.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = true
	return l.client
}

// up reports whether the lane is not away.
func (l *lane) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client != nil
}

// takes reports whether put would take an ask.
func (l *lane) takes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client != nil || l.fresh
}

// wasUsed reports whether anybody asked since it was called last.
func (l *lane) wasUsed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.used
	l.used = false
	return was
}

// wait returns how long a call waits for the store that has so much left of its deadline.
func (o *Options) wait(budget time.Duration) time.Duration {
	if budget == 0 { // it has none
		return o.Timeout
	}
	return min(o.Timeout, max(budget-reserve, budget/2))
}

// tick is called when somebody has waited long enough.
func (l *lane) tick() {
	now := clock()
	l.mu.Lock()
	l.fires = time.Time{}
	due, away := l.dueLocked()
	switch {
	case due.IsZero(): // nobody waits
		l.looked = false
		l.mu.Unlock()
		return
	case due.After(now):
		l.looked = false
		l.setTimerLocked(due)
		l.mu.Unlock()
		return
	case !l.looked:
		l.looked = true
		l.setTimerLocked(now.Add(grace))
		l.mu.Unlock()
		return
	}
	l.looked = false
	if !away.IsZero() && !away.After(now) {
		c := l.client
		l.mu.Unlock()
		l.fail(c, &redis.Error{Kind: redis.Timeout, Err: fmt.Errorf("no answer within %v", l.options.Timeout)})
		return
	}
	late := l.lateLocked(now)
	if due, _ = l.dueLocked(); !due.IsZero() {
		l.setTimerLocked(due)
	}
	l.mu.Unlock()
	l.fallBack(late)
}

// dueLocked returns when the next of those who wait has waited long enough, zero if nobody waits; and when
// the lane is away unless the server says something: it has said nothing for the timeout then, though
// something waits for it. One call's deadline says nothing of the store.
func (l *lane) dueLocked() (due, away time.Time) {
	oldest := time.Time{}
	for _, since := range l.sending {
		if !since.IsZero() && (oldest.IsZero() || since.Before(oldest)) {
			oldest = since
		}
	}
	if len(l.queue) > 0 && (oldest.IsZero() || l.queue[0].since.Before(oldest)) {
		oldest = l.queue[0].since
	}
	if !oldest.IsZero() && (l.client != nil || l.fresh) {
		if l.heard.After(oldest) {
			oldest = l.heard
		}
		away = oldest.Add(l.options.Timeout)
		due = away
	}
	for a := l.open.first; a != nil; a = a.next {
		if due.IsZero() || a.until.Before(due) {
			due = a.until
		}
	}
	return due, away
}

// lateLocked takes those from the lane who have waited long enough. What no sender has taken is not sent
// any more.
func (l *lane) lateLocked(now time.Time) (late []*ask) {
	for a := l.open.first; a != nil; {
		following := a.next
		if !a.until.After(now) {
			l.open.remove(a)
			late = append(late, a)
		}
		a = following
	}
	isLate := func(a *ask) bool { return !a.isOpen }
	l.queue, l.bulk = slices.DeleteFunc(l.queue, isLate), slices.DeleteFunc(l.bulk, isLate)
	return late
}

// fail makes the lane go away if it still uses c, or is fresh and c is nil: all who wait get the fallback at once, and
// those who come later too.
func (l *lane) fail(c *redis.Conn, why *redis.Error) {
	l.mu.Lock()
	if l.client != c || l.closed || c == nil && !l.fresh {
		l.mu.Unlock()
		return
	}
	waiting := l.emptyLocked()
	l.mu.Unlock()
	if c != nil {
		l.lost <- lost{c, why} // there is room: only the prober gives the lane a client
	}
	l.fallBack(waiting)
}

// emptyLocked takes the client and all who wait from the lane, and returns the latter.
func (l *lane) emptyLocked() (waiting []*ask) {
	l.client, l.fresh = nil, false
	for a := l.open.first; a != nil; a = l.open.first {
		l.open.remove(a)
		waiting = append(waiting, a)
	}
	clear(l.queue)
	clear(l.bulk)
	l.queue, l.bulk = l.queue[:0], l.bulk[:0]
	l.sending = [senders]time.Time{}
	l.timer.Stop()
	l.fires = time.Time{}
	return waiting
}

// leave makes the lane go away if it is at another server than the one at address.
func (l *lane) leave(address string) {
	l.mu.Lock()
	c := l.client
	l.mu.Unlock()
	if c != nil && c.Address != address {
		l.fail(c, &redis.Error{Kind: redis.ReadOnly, Err: fmt.Errorf("the primary is no longer at %s but at %s", c.Address, address)})
	}
}

func (l *lane) fallBack(waiting []*ask) {
	for _, a := range waiting {
		switch {
		case a.batch == nil: // nobody waits
		case a.strict:
			l.options.answer(a.waiter, ErrAway)
		default:
			now, _ := l.timeBy(a.now, a.startSays)
			err := l.fleet.leased(now, a.batch, a.call.LeaseName, func() error { return l.options.fallBack(now, a.batch) })
			l.options.guard(func() { l.fleet.owesAsk(now, a, err == nil) })
			l.options.answer(a.waiter, err)
		}
	}
}
