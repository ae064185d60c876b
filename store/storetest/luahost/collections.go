package luahost

import (
	"maps"
	"slices"
)

// Commands on lists and hashes.

func llen(v *value, _ []string) reply {
	return int64(len(v.list))
}

func lindex(s *Server, args []string) reply {
	v, wrong := s.read(args[1], listKind)
	if wrong != nil || len(v.list) == 0 {
		return wrong
	}
	i, ok := parseInt(args[2])
	if !ok {
		return notInteger
	}
	if i < 0 {
		i += int64(len(v.list))
	}
	if i < 0 || i >= int64(len(v.list)) {
		return nil
	}
	return v.list[i]
}

func lrange(s *Server, args []string) reply {
	v, lo, hi, wrong := s.readInterval(args, listKind)
	if wrong != nil {
		return wrong
	}
	return texts(v.list[lo:hi])
}

func ltrim(s *Server, args []string) reply {
	v, lo, hi, wrong := s.readInterval(args, listKind)
	if wrong != nil {
		return wrong
	}
	v.list = v.list[lo:hi]
	s.write(args[1], v)
	return done
}

// readInterval reads a list or a sorted set, and the interval of elements that args[2] and args[3]
// are.
func (s *Server) readInterval(args []string, k kind) (v *value, lo, hi int, wrong reply) {
	from, ok := parseInt(args[2])
	to, ok2 := parseInt(args[3])
	if !ok || !ok2 {
		return nil, 0, 0, notInteger
	}
	if v, wrong = s.read(args[1], k); wrong != nil {
		return nil, 0, 0, wrong
	}
	lo, hi = interval(from, to, len(v.list)+len(v.sorted.members))
	return v, lo, hi, nil
}

func rpush(v *value, args []string) reply {
	v.list = append(v.list, args[2:]...)
	return int64(len(v.list))
}

func hget(v *value, args []string) reply {
	if field, ok := v.hash[args[2]]; ok {
		return field
	}
	return nil
}

func hgetAll(v *value, _ []string) reply {
	all := make([]reply, 0, 2*len(v.hash))
	for _, name := range slices.Sorted(maps.Keys(v.hash)) {
		all = append(all, name, v.hash[name])
	}
	return all
}

func hlen(v *value, _ []string) reply {
	return int64(len(v.hash))
}

func hexists(v *value, args []string) reply {
	_, ok := v.hash[args[2]]
	return number(ok)
}

func hset(s *Server, args []string) reply {
	if len(args)%2 != 0 {
		return failure("ERR wrong number of arguments for 'hset' command")
	}
	v, wrong := s.read(args[1], hashKind)
	if wrong != nil {
		return wrong
	}
	if v.hash == nil {
		v.hash = map[string]string{}
	}
	before := len(v.hash)
	for i := 2; i < len(args); i += 2 {
		v.hash[args[i]] = args[i+1]
	}
	s.write(args[1], v)
	return int64(len(v.hash) - before)
}

func hdel(v *value, args []string) reply {
	before := len(v.hash)
	for _, name := range args[2:] {
		delete(v.hash, name)
	}
	removed := before - len(v.hash)
	return int64(removed)
}
