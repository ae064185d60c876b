package builtin

import (
	"sync"
)

// mailbox is what others want to be done in a connection's next turn. Its lock is never held over I/O.
type mailbox struct {
	sync.Mutex
	completions []completion
	commands    commands
	flushing    bool   // a flusher runs, which will look again
	runFlusher  func() // is the flusher
}

// completion is something that another goroutine has done for a call. In the next turn it goes out, or it is
// dropped, as the connection ends.
type completion interface {
	sendLocked()
	dropLocked()
}

// commands are what the watch and a drain want to be done.
type commands byte

const (
	commandDrainStop commands = 1 << iota // drain, because the server does
	commandDrainIdle                      // drain
	commandDrainAge                       // drain
	commandPing
	commandResetOverdue
	commandRetire // drain, because the listener is full
)

// drainReasons is what a client is told, in grpc-go's words.
var drainReasons = [...]struct {
	order commands
	told  string
}{{commandDrainStop, "graceful_stop"}, {commandDrainAge, "max_age"}, {commandDrainIdle, "max_idle"}, {commandRetire, "too_many_connections"}}

// post puts something into the inbox. Whoever finds it empty starts the flusher.
func (i *mailbox) post(put func()) {
	i.Lock()
	defer i.Unlock()
	put()
	if !i.flushing {
		i.flushing = true
		go i.runFlusher()
	}
}

// takeAll takes out what is in the inbox.
func (i *mailbox) takeAll() ([]completion, commands) {
	i.Lock()
	defer i.Unlock()
	finished, todo := i.completions, i.commands
	i.completions, i.commands = nil, 0
	return finished, todo
}

// stopIfEmpty reports whether the inbox is empty, which ends the flusher.
func (i *mailbox) stopIfEmpty() bool {
	i.Lock()
	defer i.Unlock()
	if i.completions == nil && i.commands == 0 {
		i.flushing = false
	}
	return !i.flushing
}
