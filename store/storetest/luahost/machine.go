package luahost

import (
	"crypto/sha1" //nolint:gosec // the name that servers give to a script
	"encoding/hex"
	"math"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// A machine runs the scripts of a server.
type machine struct {
	server *Server
	state  *lua.LState
	wrote  bool // the running script has written
}

// Lua's stack must fit the arguments of a command.
const (
	stackSize    = 8 << 10
	maxStackSize = 256 << 10
)

func newMachine(s *Server) *machine {
	m := &machine{server: s, state: lua.NewState(lua.Options{
		SkipOpenLibs: true, RegistrySize: stackSize, RegistryMaxSize: maxStackSize, RegistryGrowStep: stackSize,
	})}
	m.openLibraries()
	return m
}

// The compiled scripts of the process, by hash.
var (
	compiledMu sync.Mutex
	compiled   = map[string]*lua.FunctionProto{}
)

// compile compiles a script and returns its hash.
func compile(text string) (sha string, proto *lua.FunctionProto, err error) {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	sha = hex.EncodeToString(sum[:])
	compiledMu.Lock()
	defer compiledMu.Unlock()
	if proto = compiled[sha]; proto != nil {
		return sha, proto, nil
	}
	chunk, err := parse.Parse(strings.NewReader(text), "user_script")
	if err == nil {
		proto, err = lua.Compile(chunk, "user_script")
	}
	if err == nil {
		compiled[sha] = proto
	}
	return sha, proto, err
}

func eval(s *Server, args []string) reply {
	n, wrong := countKeys(args)
	if wrong != nil {
		return wrong
	}
	sha, wrong := s.load(args[1])
	if wrong != nil {
		return wrong
	}
	return s.machine.run(s.scripts[sha], args[3:3+n], args[3+n:])
}

func evalSHA(s *Server, args []string) reply {
	const unknown = failure("NOSCRIPT No matching script.")
	if len(args[1]) != 2*sha1.Size {
		return unknown
	}
	n, wrong := countKeys(args)
	if wrong != nil {
		return wrong
	}
	proto := s.scripts[strings.ToLower(args[1])]
	if proto == nil {
		return unknown
	}
	return s.machine.run(proto, args[3:3+n], args[3+n:])
}

// countKeys returns the number of keys in the arguments of EVAL.
func countKeys(args []string) (n int64, wrong reply) {
	n, ok := parseInt(args[2])
	switch {
	case !ok:
		return 0, notInteger
	case n > int64(len(args)-3):
		return 0, failure("ERR Number of keys can't be greater than number of args")
	case n < 0:
		return 0, failure("ERR Number of keys can't be negative")
	}
	return n, nil
}

// load compiles a script and remembers it.
func (s *Server) load(text string) (sha string, wrong reply) {
	sha, proto, err := compile(text)
	if err != nil {
		return "", failure("ERR Error compiling script (new function): " + err.Error())
	}
	s.scripts[sha] = proto
	return sha, nil
}

func (m *machine) run(proto *lua.FunctionProto, keys, args []string) reply {
	m.wrote = false
	l := m.state
	globals := l.G.Global
	globals.RawSetString("KEYS", m.list(keys))
	globals.RawSetString("ARGV", m.list(args))
	l.Push(l.NewFunctionFromProto(proto))
	if err := l.PCall(0, 1, nil); err != nil {
		l.SetTop(0)
		return describe(err)
	}
	v := l.Get(-1)
	l.SetTop(0)
	return fromLua(v, 0)
}

func (m *machine) list(all []string) *lua.LTable {
	t := m.state.CreateTable(len(all), 0)
	for i, one := range all {
		t.RawSetInt(i+1, lua.LString(one))
	}
	return t
}

// describe returns the reply to a script that failed.
func describe(err error) reply {
	thrown, ok := err.(*lua.ApiError) //nolint:errorlint // PCall returns nothing else
	if !ok {
		return failure("ERR " + err.Error())
	}
	if t, ok := thrown.Object.(*lua.LTable); ok {
		text := lua.LVAsString(t.RawGetString("err"))
		if line := lua.LVAsString(t.RawGetString("line")); line != "" {
			return failure(text + " script: on " + lua.LVAsString(t.RawGetString("source")) + ":" + line + ".")
		}
		return failure(text + " script: ")
	}
	text := thrown.Object.String()
	parts := strings.SplitN(text, ":", 3)
	if len(parts) < 3 || parts[0] != "user_script" {
		return failure("ERR " + text + " script: ")
	}
	return failure("ERR " + text + " script: on @user_script:" + parts[1] + ".")
}

// call is redis.call: it raises errors.
func (m *machine) call(l *lua.LState) int {
	r := m.command(l)
	if err, ok := r.(failure); ok {
		l.Error(m.raised(err), 1)
	}
	l.Push(m.toLua(r))
	return 1
}

// pcall is redis.pcall: it returns errors.
func (m *machine) pcall(l *lua.LState) int {
	r := m.command(l)
	if err, ok := r.(failure); ok {
		l.Push(m.raised(err))
	} else {
		l.Push(m.toLua(r))
	}
	return 1
}

// raised returns the table of an error, with the position in the script.
func (m *machine) raised(err failure) *lua.LTable {
	t := m.state.CreateTable(0, 4)
	t.RawSetString("err", lua.LString(err))
	if parts := strings.Split(m.state.Where(1), ":"); len(parts) >= 2 {
		t.RawSetString("source", lua.LString("@"+parts[0]))
		t.RawSetString("line", lua.LString(parts[1]))
	}
	return t
}

// command runs the command whose name and arguments are the arguments of a function.
func (m *machine) command(l *lua.LState) reply {
	n := l.GetTop()
	if n == 0 {
		return failure("ERR Please specify at least one argument for this call")
	}
	args := make([]string, n)
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = formatFloat(float64(v))
		default:
			return failure("ERR Command arguments must be strings or integers")
		}
	}
	name := args[0]
	do := commands[name]
	if do == nil {
		do = commands[strings.ToUpper(name)]
	}
	switch {
	case do == nil:
		return failure("ERR Unknown command called from script")
	case do.arity > 0 && n != do.arity, n < -do.arity:
		return failure("ERR Wrong number of args calling command from script")
	case do.keys == numberedKeys:
		return failure("ERR This Valkey command is not allowed from script")
	}
	// A script that has written continues without memory.
	continues := m.wrote && m.server.role == Primary && strings.HasPrefix(m.server.writeFailure, "OOM")
	if err := m.server.denied(do); err != nil && !continues {
		return err
	}
	m.wrote = m.wrote || do.kind != reads
	return do.run(m.server, args)
}

// toLua converts a reply for a script.
func (m *machine) toLua(r reply) lua.LValue {
	switch r := r.(type) {
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case status:
		t := m.state.CreateTable(0, 1)
		t.RawSetString("ok", lua.LString(r))
		return t
	case []reply:
		t := m.state.CreateTable(len(r), 0)
		for i, one := range r {
			t.RawSetInt(i+1, m.toLua(one))
		}
		return t
	}
	return lua.LFalse
}

// maxNesting bounds the nesting of a script's reply.
const maxNesting = 100

// fromLua converts the result of a script to a reply.
func fromLua(v lua.LValue, depth int) reply {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return truncate(float64(v))
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		return fromTable(v, depth)
	}
	return nil
}

func fromTable(t *lua.LTable, depth int) reply {
	if err, ok := t.RawGetString("err").(lua.LString); ok {
		return failure(err)
	}
	if ok, isStatus := t.RawGetString("ok").(lua.LString); isStatus {
		return status(ok)
	}
	if depth == maxNesting {
		return failure("ERR reached lua stack limit")
	}
	all := []reply{}
	for i := 1; ; i++ {
		v := t.RawGetInt(i)
		if v == lua.LNil {
			return all
		}
		all = append(all, fromLua(v, depth+1))
	}
}

// truncate converts a number of Lua to an integer, as C does on most machines.
func truncate(f float64) int64 {
	if f >= math.MinInt64 && f < math.MaxInt64 {
		return int64(f)
	}
	return math.MinInt64
}
