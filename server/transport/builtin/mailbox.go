package builtin

import (
	"sync"
)

// mailbox queues completions and commands for a connection's next batch. Its mutex is never locked
// during I/O.
type mailbox struct {
	sync.Mutex
	completions []completion
	commands    commands
	flushing    bool   // a flusher runs, and will check again
	runFlusher  func() // is started for the first entry
}

// completion is the result of work that another goroutine did for a call. The next batch sends it,
// or drops it if the connection ends.
type completion interface {
	sendLocked()
	dropLocked()
}

// commands is a set of actions that the monitor, a drain or the listener request.
type commands byte

const (
	commandDrainStop commands = 1 << iota // GOAWAY: the server stops
	commandDrainIdle                      // GOAWAY: MaxConnectionIdle
	commandDrainAge                       // GOAWAY: MaxConnectionAge
	commandPing
	commandResetOverdue
	commandRetire // GOAWAY: the listener is full
)

// drainReasons has the debug data of GOAWAY, with grpc-go's texts.
var drainReasons = [...]struct {
	command commands
	reason  string
}{
	{commandDrainStop, "graceful_stop"}, {commandDrainAge, "max_age"}, {commandDrainIdle, "max_idle"}, {commandRetire, "too_many_connections"},
}

// post updates the mailbox, and starts the flusher if none runs.
func (m *mailbox) post(update func()) {
	m.Lock()
	defer m.Unlock()
	update()
	if !m.flushing {
		m.flushing = true
		go m.runFlusher()
	}
}

// takeAll empties the mailbox and returns its content.
func (m *mailbox) takeAll() ([]completion, commands) {
	m.Lock()
	defer m.Unlock()
	completions := m.completions
	cmds := m.commands
	m.completions = nil
	m.commands = 0
	return completions, cmds
}

// stopIfEmpty reports whether the mailbox is empty. If so, the flusher must return.
func (m *mailbox) stopIfEmpty() bool {
	m.Lock()
	defer m.Unlock()
	if m.completions == nil && m.commands == 0 {
		m.flushing = false
	}
	return !m.flushing
}
