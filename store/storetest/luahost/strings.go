package luahost

import (
	"math"
	"strconv"
	"strings"
)

// Commands on strings.

func get(s *Server, args []string) reply {
	v := s.get(args[1])
	switch {
	case v == nil:
		return nil
	case v.kind != stringKind:
		return wrongType
	}
	return v.text
}

func getRange(s *Server, args []string) reply {
	from, ok := parseInt(args[2])
	to, ok2 := parseInt(args[3])
	if !ok || !ok2 {
		return notInteger
	}
	v, wrong := s.read(args[1], stringKind)
	if wrong != nil {
		return wrong
	}
	if to < 0 && (from >= 0 || from <= to) { // an end before the first byte is the first byte
		to = max(to, -int64(len(v.text)))
	}
	lo, hi := interval(from, to, len(v.text))
	return v.text[lo:hi]
}

// interval returns the half-open interval of the elements from to to of a list of some length, as
// in Redis: negative numbers count from the end.
func interval(from, to int64, length int) (lo, hi int) {
	n := int64(length)
	if from < 0 {
		from = max(from+n, 0)
	}
	if to < 0 {
		to += n
	}
	to = min(to, n-1)
	if from > to {
		return 0, 0
	}
	return int(from), int(to) + 1
}

// setOptions are the options of SET.
type setOptions struct {
	expires     int64 // 0 for none
	keep        bool  // the expiry
	new, exists bool  // NX, XX
	get         bool
}

// units are the options with a time: their milliseconds, and whether they are absolute.
var units = map[string]struct {
	unit     int64
	absolute bool
}{"EX": {1000, false}, "PX": {1, false}, "EXAT": {1000, true}, "PXAT": {1, true}}

func (s *Server) parseSet(args []string) (o setOptions, wrong reply) {
	timed := ""
	unit := int64(0)
	absolute := false
	for i := 0; i < len(args); i++ {
		name := strings.ToUpper(args[i])
		u, isTime := units[name]
		switch {
		case name == "NX" && !o.exists:
			o.new = true
		case name == "XX" && !o.new:
			o.exists = true
		case name == "GET":
			o.get = true
		case name == "KEEPTTL" && unit == 0:
			o.keep = true
		case isTime && unit == 0 && !o.keep && i+1 < len(args):
			i++
			timed = args[i]
			unit = u.unit
			absolute = u.absolute
		default:
			return o, syntaxError
		}
	}
	if unit == 0 {
		return o, nil
	}
	n, ok := parseInt(timed)
	if !ok {
		return o, notInteger
	}
	if o.expires, ok = s.expiry(n, unit, absolute); !ok || n <= 0 {
		return o, failure("ERR invalid expire time in 'set' command")
	}
	return o, nil
}

func set(s *Server, args []string) reply {
	o, wrong := s.parseSet(args[3:])
	if wrong != nil {
		return wrong
	}
	old := s.get(args[1])
	out := reply(done)
	if o.get {
		switch out = nil; {
		case old == nil:
		case old.kind != stringKind:
			return wrongType
		default:
			out = old.text
		}
	}
	if o.new && old != nil || o.exists && old == nil {
		if !o.get {
			out = nil
		}
		return out
	}
	v := &value{kind: stringKind, text: args[2], expires: never}
	switch {
	case o.expires != 0:
		v.expires = o.expires
	case o.keep && old != nil:
		v.expires = old.expires
	}
	if s.keys[args[1]] = v; o.expires != 0 && o.expires <= s.now.UnixMilli() {
		delete(s.keys, args[1])
	}
	return out
}

func incrBy(s *Server, args []string) reply {
	n, ok := parseInt(args[2])
	if !ok {
		return notInteger
	}
	return s.increment(args[1], n)
}

func (s *Server) increment(key string, by int64) reply {
	v, wrong := s.read(key, stringKind)
	if wrong != nil {
		return wrong
	}
	n := int64(0)
	if s.keys[key] != nil {
		var ok bool
		if n, ok = parseInt(v.text); !ok {
			return notInteger
		}
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return failure("ERR increment or decrement would overflow")
	}
	v.text = strconv.FormatInt(n+by, 10)
	s.write(key, v)
	return n + by
}
