// Package cpu shares the CPUs among the clients of a server.
//
// Go's scheduler lets goroutines that are ready to run wait behind those that run, and polls the
// network late while many run. A client that causes much work would therefore delay all others. So
// work that can be long needs a token, of which there is one per CPU: batches of connections that
// send without a pause ([Tokens.AcquireCall]), and everything else that a client can cause, as a
// [Task]. Scrapes and pages for operators, which can take seconds, have tokens of their own. The
// usual batch of a connection needs no token and never waits.
package cpu

import (
	"container/list"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is a kind of task.
type Kind byte

// The kinds of tasks.
const (
	Handshake Kind = iota // TLS handshakes
	JSON                  // decoding and encoding of /json
	Scrape                // metrics
	Operator              // the debug listener
	OtherCall             // health and reflection
)

// isLong reports whether a task can have a token for more than some milliseconds: a scrape of 10,000
// rules takes a second.
func (k Kind) isLong() bool { return k == Scrape || k == Operator }

// maxRest is the longest rest of a token. The time of a use also contains that for which the process was
// suspended.
const maxRest = 10 * time.Second

// Source is the origin of tasks. The sources take turns.
type Source struct {
	Kind    Kind
	Address netip.Addr
}

// callsPerTask is how many waiting calls get a token before a waiting task does.
const callsPerTask = 8

// begunPerNew is how many tasks of a source that have begun get a token before a new one does.
const begunPerNew = 8

// Tokens are the tokens of a process. Calls have precedence over tasks, and tasks use at most half
// of the tokens, so that a CPU remains for calls. Long tasks have other tokens, one per four CPUs, so
// that handshakes and health checks, and calls on a single CPU, do not wait until one ends. Such a
// token rests after each use for as long as it was used, at most maxRest: clients that scrape without a
// pause use half of its CPU. Its methods may be called concurrently.
type Tokens struct {
	long  *Tokens // for long tasks
	rests bool    // whether tokens rest after each use

	mu                      sync.Mutex
	size, free              int
	runningTasks, maxTasks  int
	calls                   []chan struct{} // waiting, the first one is next
	sources                 list.List       // of *waitingTasks with tasks, the first one is next
	bySource                map[Source]*waitingTasks
	callsSinceTask, waiting int // waiting is the number of waiting tasks
}

// waitingTasks are the waiting tasks of a source. Those that have begun have had a token before.
type waitingTasks struct {
	source        Source
	begun, new    list.List     // of *Task
	begunSinceNew int           // number of tokens since the last one for a new task
	element       *list.Element // in [Tokens.sources]
}

// NewTokens returns one token per CPU.
func NewTokens() *Tokens { return newTokens(runtime.GOMAXPROCS(0)) }

func newTokens(n int) *Tokens {
	t := newPool(n, max(1, n/2))
	longTasks := max(1, n/4)
	t.long = newPool(longTasks, longTasks)
	t.long.rests = true
	return t
}

func newPool(size, maxTasks int) *Tokens {
	return &Tokens{size: size, free: size, maxTasks: maxTasks, bySource: map[Source]*waitingTasks{}}
}

// AcquireCall waits for a token for a batch of calls.
func (t *Tokens) AcquireCall() {
	t.mu.Lock()
	if t.free > 0 { // then no call waits
		t.free--
		t.mu.Unlock()
		return
	}
	granted := make(chan struct{})
	t.calls = append(t.calls, granted)
	t.mu.Unlock()
	<-granted
}

// ReleaseCall releases a token of [Tokens.AcquireCall].
func (t *Tokens) ReleaseCall() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.grantLocked()
}

// acquireTask waits for a token for a task. It reports whether the task has one.
func (t *Tokens) acquireTask(task *Task) bool {
	t.mu.Lock()
	if task.ended {
		t.mu.Unlock()
		return false
	}
	if t.free > 0 && t.runningTasks < t.maxTasks { // then no task waits
		t.startLocked(task)
		t.mu.Unlock()
		return true
	}
	granted := make(chan struct{})
	task.granted = granted
	w := t.bySource[task.source]
	if w == nil {
		w = &waitingTasks{source: task.source}
		t.bySource[task.source] = w
		w.element = t.sources.PushBack(w)
	}
	if task.begun {
		task.element = w.begun.PushBack(task)
	} else {
		task.element = w.new.PushBack(task)
	}
	t.waiting++
	t.mu.Unlock()
	<-granted
	t.mu.Lock()
	defer t.mu.Unlock()
	return !task.ended
}

// startLocked gives a task a token.
func (t *Tokens) startLocked(task *Task) {
	t.free--
	t.runningTasks++
	task.begun = true
	task.resumed = time.Now() //nolint:forbidigo // the work is measured
	task.running.Store(true)
}

// releaseTask releases the token of a task, after its rest.
func (t *Tokens) releaseTask(task *Task) {
	if !t.rests {
		t.endTask()
		return
	}
	t.mu.Lock()
	used := time.Since(task.resumed)
	t.mu.Unlock()
	time.AfterFunc(min(used, maxRest), t.endTask)
}

func (t *Tokens) endTask() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.runningTasks--
	t.grantLocked()
}

// endWait ends the wait of a task for good.
func (t *Tokens) endWait(task *Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if task.ended = true; task.granted != nil {
		t.notifyLocked(t.bySource[task.source], task)
	}
}

// grantLocked gives free tokens to those who wait.
func (t *Tokens) grantLocked() {
	for t.free > 0 {
		mayRun := t.waiting > 0 && t.runningTasks < t.maxTasks
		switch {
		case mayRun && (len(t.calls) == 0 || t.callsSinceTask >= callsPerTask):
			t.callsSinceTask = 0
			t.startNextLocked()
		case len(t.calls) > 0:
			t.callsSinceTask++
			t.free--
			close(t.calls[0])
			t.calls = t.calls[1:]
		default:
			return
		}
	}
}

// startNextLocked gives a token to the next task of the first source, which becomes the last source.
// Tasks that have begun are first, but one in nine tokens is for new tasks. Otherwise a client that
// sends single bytes, and so never ends a task, would starve its others. New handshakes start with
// the latest: in an overload, the oldest ones have clients that will soon give up.
func (t *Tokens) startNextLocked() {
	w, _ := t.sources.Front().Value.(*waitingTasks)
	t.sources.MoveToBack(w.element)
	next := w.new.Front()
	switch {
	case w.begun.Len() > 0 && (w.new.Len() == 0 || w.begunSinceNew < begunPerNew):
		next = w.begun.Front()
	case w.source.Kind == Handshake:
		next = w.new.Back()
	}
	task, _ := next.Value.(*Task)
	if w.begunSinceNew++; !task.begun {
		w.begunSinceNew = 0
	}
	t.startLocked(task)
	t.notifyLocked(w, task)
}

// notifyLocked ends the wait of a task of w.
func (t *Tokens) notifyLocked(w *waitingTasks, task *Task) {
	t.waiting--
	w.begun.Remove(task.element) // only one of the lists contains it
	w.new.Remove(task.element)
	if w.begun.Len()+w.new.Len() == 0 {
		t.sources.Remove(w.element)
		delete(t.bySource, w.source)
	}
	close(task.granted)
	task.granted = nil
}

// Waiting returns the number of tasks that wait for a token.
func (t *Tokens) Waiting() int { return t.countWaiting() + t.long.countWaiting() }

func (t *Tokens) countWaiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}

// InUse returns the number of tokens in use by calls and by tasks, including those that rest.
func (t *Tokens) InUse() (calls, tasks int) {
	calls, tasks = t.inUse()
	_, long := t.long.inUse()
	return calls, tasks + long
}

func (t *Tokens) inUse() (calls, tasks int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size - t.free - t.runningTasks, t.runningTasks
}

// A Task is work for one request or handshake. It has a token except while it is paused: no task may
// wait for a client, a store, a disk or a lock of another task while it has a token. Its methods may
// be called on nil, which needs no token.
type Task struct {
	tokens  *Tokens
	source  Source
	running atomic.Bool

	// Protected by tokens.mu.
	begun, ended bool
	resumed      time.Time     // when the task got its last token
	granted      chan struct{} // not nil while the task waits for a token
	element      *list.Element // in a list of waitingTasks
}

// NewTask returns a paused task.
func (t *Tokens) NewTask(s Source) *Task {
	if s.Kind.isLong() {
		t = t.long
	}
	return &Task{tokens: t, source: s}
}

// Resume waits for a token, unless the task has one. It reports false if the task has ended.
func (t *Task) Resume() bool {
	return t == nil || t.running.Load() || t.tokens.acquireTask(t)
}

// Pause releases the token, if the task has one.
func (t *Task) Pause() {
	if t == nil || !t.running.Load() {
		return
	}
	if t.tokens.countWaiting() > 0 {
		Yield()
	}
	if t.running.Swap(false) {
		t.tokens.releaseTask(t)
	}
}

// End releases the token for good. It may be called concurrently with all other methods.
func (t *Task) End() {
	t.tokens.endWait(t)
	t.Pause()
}

// Wait calls f, which may wait, while the task is paused.
func (t *Task) Wait(f func()) {
	if t == nil || !t.running.Load() {
		f()
		return
	}
	t.Pause()
	defer t.Resume()
	f()
}

// Yield lets other goroutines run, including those that wait for the network. It has to sleep for
// that: after runtime.Gosched, the goroutine would run again before the scheduler polls the network,
// and a client that floods its connection would delay all others by 10 ms.
func Yield() { time.Sleep(time.Microsecond) }
