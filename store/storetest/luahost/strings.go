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

// set is SET, with no options, PX or EXAT.
func set(s *Server, args []string) reply {
	v := &value{kind: stringKind, text: args[2], expires: never}
	if len(args) > 3 {
		n, ok := parseInt(args[len(args)-1])
		switch option := strings.ToUpper(args[3]); {
		case len(args) != 5 || option != "PX" && option != "EXAT":
			return syntaxError
		case !ok:
			return notInteger
		case n <= 0:
			return failure("ERR invalid expire time in 'set' command")
		case option == "PX":
			v.expires = s.now.UnixMilli() + n
		default:
			v.expires = n * 1000
		}
	}
	if s.keys[args[1]] = v; v.expires != never && v.expires <= s.now.UnixMilli() {
		delete(s.keys, args[1])
	}
	return done
}

func incrBy(s *Server, args []string) reply {
	by, ok := parseInt(args[2])
	if !ok {
		return notInteger
	}
	v, wrong := s.read(args[1], stringKind)
	if wrong != nil {
		return wrong
	}
	n := int64(0)
	if s.keys[args[1]] != nil {
		if n, ok = parseInt(v.text); !ok {
			return notInteger
		}
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return failure("ERR increment or decrement would overflow")
	}
	v.text = strconv.FormatInt(n+by, 10)
	s.write(args[1], v)
	return n + by
}
