package luahost

import (
	"math"
	"strconv"
	"strings"
)

// Commands on sorted sets.

func zadd(s *Server, args []string) reply {
	if len(args)%2 != 0 {
		return syntaxError
	}
	scores := make([]float64, 0, len(args)/2)
	for i := 2; i < len(args); i += 2 {
		score, ok := parseFloat(args[i])
		if !ok {
			return failure("ERR value is not a valid float")
		}
		scores = append(scores, score)
	}
	v, wrong := s.read(args[1], sortedKind)
	if wrong != nil {
		return wrong
	}
	added := int64(0)
	for i, score := range scores {
		added += number(v.sorted.put(args[2*i+3], score))
	}
	s.write(args[1], v)
	return added
}

func zcard(v *value, _ []string) reply {
	return int64(len(v.sorted.members))
}

func zscore(v *value, args []string) reply {
	if score, ok := v.sorted.scores[args[2]]; ok {
		return formatFloat(score)
	}
	return nil
}

func zcount(s *Server, args []string) reply {
	_, lo, hi, wrong := s.readScores(args)
	if wrong != nil {
		return wrong
	}
	return int64(hi - lo)
}

func zrange(s *Server, args []string) reply {
	withScores := false
	for _, option := range args[4:] {
		if strings.ToUpper(option) != "WITHSCORES" {
			return syntaxError
		}
		withScores = true
	}
	v, lo, hi, wrong := s.readInterval(args, sortedKind)
	if wrong != nil {
		return wrong
	}
	all := []reply{}
	for _, m := range v.sorted.members[lo:hi] {
		if all = append(all, m.name); withScores {
			all = append(all, formatFloat(m.score))
		}
	}
	return all
}

func zrem(v *value, args []string) reply {
	removed := int64(0)
	for _, name := range args[2:] {
		removed += number(v.sorted.remove(name))
	}
	return removed
}

func zremRangeByScore(s *Server, args []string) reply {
	v, lo, hi, wrong := s.readScores(args)
	if wrong != nil {
		return wrong
	}
	return s.cut(args[1], v, lo, hi)
}

func zremRangeByRank(s *Server, args []string) reply {
	v, lo, hi, wrong := s.readInterval(args, sortedKind)
	if wrong != nil {
		return wrong
	}
	return s.cut(args[1], v, lo, hi)
}

// cut removes the members [lo, hi) of a sorted set.
func (s *Server) cut(key string, v *value, lo, hi int) reply {
	v.sorted.cut(lo, hi)
	s.write(key, v)
	return int64(hi - lo)
}

// readScores reads a sorted set, and the interval of members whose scores are between args[2] and
// args[3].
func (s *Server) readScores(args []string) (v *value, lo, hi int, wrong reply) {
	from, above, ok := parseBound(args[2])
	to, below, ok2 := parseBound(args[3])
	if !ok || !ok2 {
		return nil, 0, 0, failure("ERR min or max is not a float")
	}
	if v, wrong = s.read(args[1], sortedKind); wrong != nil {
		return nil, 0, 0, wrong
	}
	lo = v.sorted.count(from, above)
	hi = v.sorted.count(to, !below)
	return v, lo, max(lo, hi), nil
}

// count returns the number of members whose score is below a bound, or equal to it if orEqual is
// set.
func (z *sortedSet) count(bound float64, orEqual bool) int {
	lo := 0
	hi := len(z.members)
	for lo < hi {
		mid := (lo + hi) / 2
		if score := z.members[mid].score; score < bound || orEqual && score == bound {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// parseBound parses a bound of scores, and whether it is open. An empty one is 0, as C parses it.
func parseBound(text string) (bound float64, open, ok bool) {
	text, open = strings.CutPrefix(text, "(")
	if text, _, _ = strings.Cut(text, "\x00"); text == "" {
		return 0, open, true
	}
	bound, err := strconv.ParseFloat(text, 64)
	return bound, open, isFloat(text, bound) && (err == nil || bound != 0)
}

// parseFloat parses a score. One that is not representable is an error.
func parseFloat(text string) (f float64, ok bool) {
	f, err := strconv.ParseFloat(text, 64)
	mantissa, _, _ := strings.Cut(text, "e")
	return f, err == nil && isFloat(text, f) && (f != 0 || !strings.ContainsAny(mantissa, "123456789"))
}

// isFloat reports whether a text that Go parsed as f is a number for servers.
func isFloat(text string, f float64) bool { return !math.IsNaN(f) && !strings.Contains(text, "_") }
