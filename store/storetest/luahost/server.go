package luahost

import (
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// The roles of a server, as INFO reports them.
const (
	Primary = "master"
	Replica = "slave"
)

// A Server is a server without keys. Its methods may be called concurrently, but not by the
// function of [Server.OnCommand]. [NewServer] returns one.
type Server struct {
	turn chan struct{} // full while a command runs or a method uses the fields below

	offset       time.Duration // of the server's clock
	role         string
	dataID       string // of INFO
	failure      string // error of all commands, "" for none
	writeFailure string // error of commands that write, "" for none
	counts       map[string]int
	onCommand    func(name string, args [][]byte, reply []byte)
	node         *node // nil outside a cluster

	keys    map[string]*value
	scripts map[string]*lua.FunctionProto // known scripts, by hash
	machine *machine

	// The running command.
	client *client
	now    time.Time // of the server's clock
}

// NewServer returns a primary without keys.
func NewServer() *Server {
	s := &Server{
		turn: make(chan struct{}, 1), role: Primary, dataID: rand.Text(), counts: map[string]int{}, keys: map[string]*value{}, scripts: map[string]*lua.FunctionProto{},
	}
	s.machine = newMachine(s)
	return s
}

// locked calls do while no command runs.
func (s *Server) locked(do func()) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	do()
}

// SetOffset sets by how much the server's clock is ahead of [time.Now]. Keys expire by the server's
// clock.
func (s *Server) SetOffset(offset time.Duration) { s.locked(func() { s.offset = offset }) }

// SetRole sets the role: [Primary] or [Replica], which denies writes.
func (s *Server) SetRole(role string) { s.locked(func() { s.role = role }) }

// SetError makes all commands fail with an error, such as "LOADING server is loading". "" ends
// that.
func (s *Server) SetError(text string) { s.locked(func() { s.failure = text }) }

// SetWriteError makes commands that write fail with an error, also in scripts. An error that begins
// with OOM is not returned for commands that need no memory. "" ends that.
func (s *Server) SetWriteError(text string) { s.locked(func() { s.writeFailure = text }) }

// OnCommand makes the server call a function after each command of a connection, with the name in
// upper case, the other arguments, and the reply as it is sent. The next command waits for the
// function. The arguments may be kept.
func (s *Server) OnCommand(do func(name string, args [][]byte, reply []byte)) {
	s.locked(func() { s.onCommand = do })
}

// Commands returns how often each command was run by connections and [Server.Do], by its name in
// upper case. Commands of scripts are not counted.
func (s *Server) Commands() (counts map[string]int) {
	s.locked(func() { counts = maps.Clone(s.counts) })
	return counts
}

// Do runs a command without a connection and returns the reply as it would be sent.
func (s *Server) Do(args ...string) string {
	return string(s.execute(&client{}, args, nil))
}

// Keys returns the names of all keys, sorted.
func (s *Server) Keys() (names []string) {
	s.locked(func() {
		s.now = s.clock()
		for name, v := range s.keys {
			if !s.isExpired(v) {
				names = append(names, name)
			}
		}
	})
	slices.Sort(names)
	return names
}

// SetDataID sets the identity of the data that INFO reports. "" hides it.
func (s *Server) SetDataID(id string) { s.locked(func() { s.dataID = id }) }

// FlushAll deletes all keys, as a failover to a new server does.
func (s *Server) FlushAll() {
	s.locked(func() {
		clear(s.keys)
		s.dataID = rand.Text()
	})
}

// A Snapshot is a copy of all keys of a server.
type Snapshot struct {
	keys map[string]*value
}

// Snapshot copies all keys. The copy is not changed later.
func (s *Server) Snapshot() (all *Snapshot) {
	s.locked(func() { all = &Snapshot{copyKeys(s.keys)} })
	return all
}

// Restore replaces all keys by those of a snapshot, of this or another server. They expire as they
// would have in the other. The snapshot can be used again.
func (s *Server) Restore(all *Snapshot) {
	s.locked(func() {
		s.keys = copyKeys(all.keys)
		s.dataID = rand.Text()
	})
}

func copyKeys(all map[string]*value) map[string]*value {
	copies := make(map[string]*value, len(all))
	for name, v := range all {
		copies[name] = v.clone()
	}
	return copies
}

// clock returns the time of the server's clock.
func (s *Server) clock() time.Time {
	return time.Now().Add(s.offset) //nolint:forbidigo // the clock of a bubble
}

// execute runs a command of a connection and appends the reply to out.
func (s *Server) execute(c *client, args []string, out []byte) []byte {
	s.locked(func() {
		s.client = c
		s.now = s.clock()
		name := strings.ToUpper(args[0])
		start := len(out)
		out = appendReply(out, s.respond(name, args))
		s.counts[name]++
		if s.onCommand != nil {
			rest := make([][]byte, len(args)-1)
			for i, arg := range args[1:] {
				rest[i] = []byte(arg)
			}
			s.onCommand(name, rest, out[start:])
		}
	})
	return out
}

// respond returns the reply to a command of a connection.
func (s *Server) respond(name string, args []string) reply {
	c := s.client
	do, err := s.find(name, args)
	switch {
	case err != nil:
		return err
	case s.failure != "":
		return failure(s.failure)
	}
	asking := c.asking
	c.asking = false
	if err := s.redirect(do.keysOf(args), asking); err != nil {
		return err
	}
	if err := s.denied(do); err != nil {
		return err
	}
	return do.run(s, args)
}

// find returns a command with the given name, or the error for its arguments.
func (s *Server) find(name string, args []string) (*command, reply) {
	do := commands[name]
	switch {
	case do == nil:
		return nil, failure("ERR unknown command '" + args[0] + "'")
	case do.arity > 0 && len(args) != do.arity, len(args) < -do.arity:
		return nil, failure("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
	}
	return do, nil
}

func cut(text string, most int) string { return text[:min(len(text), most)] }

// denied returns the error of a command that writes, or nil.
func (s *Server) denied(do *command) reply {
	switch {
	case do.kind == reads:
		return nil
	case s.role == Replica:
		return failure("READONLY You can't write against a read only replica.")
	case s.writeFailure != "" && (do.kind == writes || !strings.HasPrefix(s.writeFailure, "OOM")):
		return failure(s.writeFailure)
	}
	return nil
}
