package luahost

import (
	"maps"
	"slices"
)

// A kind is the type of a key, as TYPE reports it.
type kind string

const (
	stringKind kind = "string"
	listKind   kind = "list"
	hashKind   kind = "hash"
	sortedKind kind = "zset"
)

// never is the expiry of a key that does not expire.
const never = -1

// A value is the value of a key. Only the field of its kind is used.
type value struct {
	kind    kind
	expires int64 // milliseconds since 1970, or never

	text   string
	list   []string
	hash   map[string]string
	sorted sortedSet
}

// clone returns a copy that shares no memory that is changed.
func (v *value) clone() *value {
	c := *v
	c.list = slices.Clone(v.list)
	c.hash = maps.Clone(v.hash)
	c.sorted = v.sorted.clone()
	return &c
}

// isEmpty reports whether v is a collection without elements, which does not exist.
func (v *value) isEmpty() bool {
	return v.kind != stringKind && len(v.list) == 0 && len(v.hash) == 0 && len(v.sorted.members) == 0
}

// isExpired reports whether v has expired at the time of the command.
func (s *Server) isExpired(v *value) bool { return v.expires != never && s.now.UnixMilli() > v.expires }

// get returns the value of a key, nil if it does not exist.
func (s *Server) get(key string) *value {
	v := s.keys[key]
	if v == nil || !s.isExpired(v) {
		return v
	}
	if s.role == Primary { // a replica waits for its primary's DEL
		delete(s.keys, key)
	}
	return nil
}

// wrongType is the error of a command on a key of another kind.
const wrongType = failure("WRONGTYPE Operation against a key holding the wrong kind of value")

// read returns the value of a key that has the given kind, an empty one if it does not exist, or an
// error.
func (s *Server) read(key string, k kind) (*value, reply) {
	switch v := s.get(key); {
	case v == nil:
		return &value{kind: k, expires: never}, nil
	case v.kind != k:
		return nil, wrongType
	default:
		return v, nil
	}
}

// write stores a changed value, and deletes the key of an empty one.
func (s *Server) write(key string, v *value) {
	if v.isEmpty() {
		delete(s.keys, key)
	} else {
		s.keys[key] = v
	}
}

// reading returns a command that reads a value of a kind.
func reading(k kind, do func(v *value, args []string) reply) func(*Server, []string) reply {
	return func(s *Server, args []string) reply {
		v, wrong := s.read(args[1], k)
		if wrong != nil {
			return wrong
		}
		return do(v, args)
	}
}

// changing returns a command that changes a value of a kind.
func changing(k kind, do func(v *value, args []string) reply) func(*Server, []string) reply {
	return func(s *Server, args []string) reply {
		v, wrong := s.read(args[1], k)
		if wrong != nil {
			return wrong
		}
		out := do(v, args)
		s.write(args[1], v)
		return out
	}
}

// A sortedSet is a set of members with scores.
type sortedSet struct {
	members []member // sorted by score and name
	scores  map[string]float64
}

type member struct {
	name  string
	score float64
}

func (z *sortedSet) clone() sortedSet {
	return sortedSet{slices.Clone(z.members), maps.Clone(z.scores)}
}

// search returns the index of a member, or where it belongs.
func (z *sortedSet) search(m member) int {
	i, _ := slices.BinarySearchFunc(z.members, m, func(a, b member) int {
		switch {
		case a.score < b.score, a.score == b.score && a.name < b.name:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	return i
}

// put adds a member or changes its score, and reports whether it was added.
func (z *sortedSet) put(name string, score float64) (added bool) {
	added = !z.remove(name)
	if z.scores == nil {
		z.scores = map[string]float64{}
	}
	z.scores[name] = score
	m := member{name, score}
	z.members = slices.Insert(z.members, z.search(m), m)
	return added
}

// remove removes a member and reports whether it was there.
func (z *sortedSet) remove(name string) bool {
	score, ok := z.scores[name]
	if ok {
		i := z.search(member{name, score})
		z.cut(i, i+1)
	}
	return ok
}

// cut removes the members [from, to).
func (z *sortedSet) cut(from, to int) {
	for _, m := range z.members[from:to] {
		delete(z.scores, m.name)
	}
	z.members = slices.Delete(z.members, from, to)
}
