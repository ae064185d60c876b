package luahost

import (
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// openLibraries sets the globals of scripts.
func (m *machine) openLibraries() {
	l := m.state
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	globals := l.G.Global
	for _, name := range []string{"dofile", "loadfile", "print", "require", "module", "newproxy", "collectgarbage"} {
		globals.RawSetString(name, lua.LNil)
	}
	globals.RawSetString("tonumber", l.NewFunction(toNumber))
	globals.RawSetString("pcall", l.NewFunction(protectedCall))
	globals.RawSetString("struct", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{"pack": pack, "unpack": unpack}))
	redis := l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call": m.call, "pcall": m.pcall,
	})
	globals.RawSetString("redis", redis)
	guard := l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"__newindex": func(l *lua.LState) int {
			l.RaiseError("Attempt to modify a readonly table")
			return 0
		},
		"__index": func(l *lua.LState) int {
			l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.Get(2).String())
			return 0
		},
	})
	l.SetMetatable(globals, guard)
}

// protectedCall is pcall. As in Redis it returns the text of an error that is a table.
func protectedCall(l *lua.LState) int {
	l.CheckAny(1)
	if err := l.PCall(l.GetTop()-1, lua.MultRet, nil); err != nil {
		var thrown lua.LValue = lua.LString(err.Error())
		if err, ok := err.(*lua.ApiError); ok { //nolint:errorlint // PCall returns nothing else
			thrown = err.Object
		}
		if t, ok := thrown.(*lua.LTable); ok {
			if text, ok := t.RawGetString("err").(lua.LString); ok {
				thrown = text
			}
		}
		l.Push(lua.LFalse)
		l.Push(thrown)
		return 2
	}
	l.Insert(lua.LTrue, 1)
	return l.GetTop()
}

// toNumber is tonumber, which converts texts as C's strtod does. gopher-lua's does not know
// exponents and integers above 2^63.
func toNumber(l *lua.LState) int {
	switch v := l.CheckAny(1).(type) {
	case lua.LNumber:
		l.Push(v)
	case lua.LString:
		if n, ok := parseNumber(string(v)); ok {
			l.Push(lua.LNumber(n))
		} else {
			l.Push(lua.LNil)
		}
	default:
		l.Push(lua.LNil)
	}
	return 1
}

func parseNumber(text string) (n float64, ok bool) {
	if len(text) > 0 && len(text) < 16 { // exact
		whole := int64(0)
		for i := range len(text) {
			d := text[i] - '0'
			if d > 9 {
				return parseAnyNumber(text)
			}
			whole = whole*10 + int64(d)
		}
		return float64(whole), true
	}
	return parseAnyNumber(text)
}

func parseAnyNumber(text string) (n float64, ok bool) {
	text, _, _ = strings.Cut(text, "\x00")
	text = strings.Trim(text, " \t\n\v\f\r")
	if strings.Contains(text, "_") {
		return 0, false
	}
	if lower := strings.ToLower(text); strings.Contains(lower, "0x") && !strings.Contains(lower, "p") {
		text += "p0"
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil || math.IsInf(n, 0) && strings.ContainsAny(text, "0123456789")
}
