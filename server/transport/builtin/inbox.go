package builtin

import (
	"sync"
)

// inbox is what others want to be done in a connection's next turn. Its lock is never held over I/O.
type inbox struct {
	sync.Mutex
	finished []finisher
	orders   orders
	flushing bool   // a flusher runs, which will look again
	flush    func() // is the flusher
}

// finisher is something that another goroutine has done for a call. In the next turn it goes out, or it is
// dropped, as the connection ends.
type finisher interface {
	sendLocked()
	dropLocked()
}

// orders are what the watch and a drain want to be done.
type orders byte

const (
	orderStop orders = 1 << iota // drain, because the server does
	orderIdle                    // drain
	orderAge                     // drain
	orderPing
	orderOverdue
	orderRetire // drain, because the listener is full
)

// drainReasons is what a client is told, in grpc-go's words.
var drainReasons = [...]struct {
	order orders
	told  string
}{{orderStop, "graceful_stop"}, {orderAge, "max_age"}, {orderIdle, "max_idle"}, {orderRetire, "too_many_connections"}}

// post puts something into the inbox. Whoever finds it empty starts the flusher.
func (i *inbox) post(put func()) {
	i.Lock()
	defer i.Unlock()
	put()
	if !i.flushing {
		i.flushing = true
		go i.flush()
	}
}

// take takes out what is in the inbox.
func (i *inbox) take() ([]finisher, orders) {
	i.Lock()
	defer i.Unlock()
	finished, todo := i.finished, i.orders
	i.finished, i.orders = nil, 0
	return finished, todo
}

// flushed reports whether the inbox is empty, which ends the flusher.
func (i *inbox) flushed() bool {
	i.Lock()
	defer i.Unlock()
	if i.finished == nil && i.orders == 0 {
		i.flushing = false
	}
	return !i.flushing
}
