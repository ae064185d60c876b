package luahost

import (
	"encoding/binary"
	"math"

	lua "github.com/yuin/gopher-lua"
)

// The library struct, with the formats < d and I.

// eachField calls do for each field of a format: its letter and its size.
func eachField(l *lua.LState, format string, do func(letter byte, size int)) {
	for i := 0; i < len(format); i++ {
		switch letter := format[i]; letter {
		case '<':
		case 'd':
			do(letter, 8)
		case 'I':
			size := 4
			if i+1 < len(format) && format[i+1] >= '1' && format[i+1] <= '8' {
				i++
				size = int(format[i] - '0')
			}
			do(letter, size)
		default:
			l.RaiseError("invalid format option '%c'", letter)
		}
	}
}

// pack is struct.pack.
func pack(l *lua.LState) int {
	var out []byte
	arg := 2
	eachField(l, l.CheckString(1), func(letter byte, size int) {
		n := float64(l.CheckNumber(arg))
		bits := uint64(0)
		arg++
		switch {
		case letter == 'd':
			bits = math.Float64bits(n)
		case n < 0:
			bits = uint64(truncate(n)) //nolint:gosec // its two's complement
		case n < math.MaxUint64:
			bits = uint64(n)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], bits)
		out = append(out, b[:size]...)
	})
	l.Push(lua.LString(out))
	return 1
}

// unpack is struct.unpack. Its last result is the position after the fields.
func unpack(l *lua.LState) int {
	data := l.CheckString(2)
	pos := l.OptInt(3, 1) - 1
	count := 0
	if pos < 0 {
		l.RaiseError("offset must be 1 or greater")
	}
	eachField(l, l.CheckString(1), func(letter byte, size int) {
		if pos > len(data)-size {
			l.RaiseError("data string too short")
		}
		var b [8]byte
		copy(b[:size], data[pos:pos+size])
		bits := binary.LittleEndian.Uint64(b[:])
		if letter == 'd' {
			l.Push(lua.LNumber(math.Float64frombits(bits)))
		} else {
			l.Push(lua.LNumber(bits))
		}
		pos += size
		count++
	})
	l.Push(lua.LNumber(pos + 1))
	return count + 1
}
