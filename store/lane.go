package store

import (
	"context"
	"sync"
	"time"
)

const (
	// senders are as many batches as may be under way. What comes meanwhile is the next.
	senders = 2
)

// A lane brings charges to one primary. Callers queue; its senders are all that calls the
// client, which waits for replies without looking at a deadline. Its
// timer watches those who wait. Its prober brings it back when it is away.
type lane struct {
	options *Options
	shard   string
	dial    dialer
	fleet   *fleet

	// Guards what follows. Nothing waits or calls the client while it is held.
	mu      sync.Mutex
	wake    sync.Cond
	client  *client // nil while the lane is away
	fresh   bool    // the lane is not away yet: the first connection is being made
	used    bool    // since wasUsed
	queue   []*ask  // that no sender has taken
	bulk    []*ask  // the same, of large requests
	open    asks    // that are not decided
	sending [senders]time.Time
	heard   time.Time // when the server last answered
	looked  bool      // tick has fired for who has waited long enough, and waits for grace
	timer   *time.Timer
	fires   time.Time // zero if the timer is not set
	closed  bool
	flying  int           // messages that senders have under way
	landed  sync.Cond     // none is
	lost    chan lost     // to the prober
	owes    chan struct{} // has an element if something is to be charged
}

// clock tells how long callers and servers take, for which the machine's time is right.
func clock() time.Time { return time.Now() } //nolint:forbidigo // as above

// A lost client is one that failed.
type lost struct {
	client *client
	why    *failure
}

func newLane(f *fleet, shard string, dial dialer) *lane {
	l := &lane{options: f.options, shard: shard, dial: dial, fleet: f, lost: make(chan lost, 1), owes: make(chan struct{}, 1)}
	l.wake.L, l.landed.L = &l.mu, &l.mu
	l.timer = time.AfterFunc(time.Hour, l.tick)
	l.timer.Stop()
	return l
}

// run brings asks to the server until ctx ends, and returns when all that it started has ended.
func (l *lane) run(ctx context.Context) {
	var all sync.WaitGroup
	for n := range senders {
		all.Go(func() { l.send(n) })
	}
	l.probe(ctx)
	l.close()
	all.Wait()
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
	return l.client.address
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

// close ends the lane's senders and timer. Who still waits gets the fallback.
func (l *lane) close() {
	l.mu.Lock()
	c := l.client
	l.closed = true
	waiting := l.emptyLocked()
	l.wake.Broadcast()
	l.mu.Unlock()
	l.fallBack(waiting)
	if c != nil {
		c.close()
	}
}
