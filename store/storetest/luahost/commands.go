package luahost

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// A command is a command of the server.
type command struct {
	run   func(s *Server, args []string) reply // args begins with the name
	arity int                                  // number of args, or the negative minimum, as in COMMAND
	kind  access
	keys  int // args that are keys: the first, allKeys, numberedKeys or 0
}

// An access is what a command does to keys.
type access int

const (
	reads  access = iota
	frees         // writes, but needs no memory
	writes        // writes and may need memory
)

const (
	allKeys      = -1 // all args are keys
	numberedKeys = -2 // args[2] is the number of keys, which follow
)

// keysOf returns the keys of a command with valid args.
func (c *command) keysOf(args []string) []string {
	switch c.keys {
	case 0:
		return nil
	case allKeys:
		return args[1:]
	case numberedKeys:
		n, ok := parseInt(args[2])
		if !ok || n < 0 || n > int64(len(args)-3) {
			return nil
		}
		return args[3 : 3+n]
	default:
		return args[c.keys : c.keys+1]
	}
}

var commands map[string]*command

func init() { //nolint:gochecknoinits // scripts run commands: the table would depend on itself
	commands = map[string]*command{
		"PING":             {ping, -1, reads, 0},
		"ECHO":             {func(_ *Server, args []string) reply { return args[1] }, 2, reads, 0},
		"AUTH":             {authenticate, -2, reads, 0},
		"SELECT":           {selectDatabase, 2, reads, 0},
		"ROLE":             {role, 1, reads, 0},
		"INFO":             {info, 2, reads, 0},
		"TIME":             {serverTime, 1, reads, 0},
		"FLUSHALL":         {flushAll, 1, writes, 0},
		"KEYS":             {keys, 2, reads, 0},
		"DBSIZE":           {size, 1, reads, 0},
		"ASKING":           {asking, 1, reads, 0},
		"READONLY":         {func(*Server, []string) reply { return done }, 1, reads, 0},
		"CLUSTER":          {clusterCommand, -2, reads, 0},
		"EVAL":             {eval, -3, reads, numberedKeys},
		"EVALSHA":          {evalSHA, -3, reads, numberedKeys},
		"SCRIPT":           {scriptCommand, -2, reads, 0},
		"EXISTS":           {exists, -2, reads, allKeys},
		"TYPE":             {typeOf, 2, reads, 1},
		"DEL":              {del, -2, frees, allKeys},
		"TTL":              {ttl(1000, false), 2, reads, 1},
		"PTTL":             {ttl(1, false), 2, reads, 1},
		"EXPIRETIME":       {ttl(1000, true), 2, reads, 1},
		"PEXPIRETIME":      {ttl(1, true), 2, reads, 1},
		"EXPIRE":           {expire(1000, false), 3, frees, 1},
		"PEXPIRE":          {expire(1, false), 3, frees, 1},
		"EXPIREAT":         {expire(1000, true), 3, frees, 1},
		"PEXPIREAT":        {expire(1, true), 3, frees, 1},
		"PERSIST":          {persist, 2, frees, 1},
		"GET":              {get, 2, reads, 1},
		"GETRANGE":         {getRange, 4, reads, 1},
		"SET":              {set, -3, writes, 1},
		"INCR":             {func(s *Server, args []string) reply { return s.increment(args[1], 1) }, 2, writes, 1},
		"INCRBY":           {incrBy, 3, writes, 1},
		"LLEN":             {reading(listKind, llen), 2, reads, 1},
		"LINDEX":           {lindex, 3, reads, 1},
		"LRANGE":           {lrange, 4, reads, 1},
		"LTRIM":            {ltrim, 4, frees, 1},
		"RPUSH":            {changing(listKind, rpush), -3, writes, 1},
		"HGET":             {reading(hashKind, hget), 3, reads, 1},
		"HGETALL":          {reading(hashKind, hgetAll), 2, reads, 1},
		"HLEN":             {reading(hashKind, hlen), 2, reads, 1},
		"HEXISTS":          {reading(hashKind, hexists), 3, reads, 1},
		"HSET":             {hset, -4, writes, 1},
		"HDEL":             {changing(hashKind, hdel), -3, frees, 1},
		"ZADD":             {zadd, -4, writes, 1},
		"ZCARD":            {reading(sortedKind, zcard), 2, reads, 1},
		"ZSCORE":           {reading(sortedKind, zscore), 3, reads, 1},
		"ZCOUNT":           {zcount, 4, reads, 1},
		"ZRANGE":           {zrange, -4, reads, 1},
		"ZREM":             {changing(sortedKind, zrem), -3, frees, 1},
		"ZREMRANGEBYSCORE": {zremRangeByScore, 4, frees, 1},
		"ZREMRANGEBYRANK":  {zremRangeByRank, 4, frees, 1},
	}
}

const (
	notInteger  = failure("ERR value is not an integer or out of range")
	syntaxError = failure("ERR syntax error")
)

func ping(_ *Server, args []string) reply {
	switch len(args) {
	case 1:
		return status("PONG")
	case 2:
		return args[1]
	}
	return failure("ERR wrong number of arguments for 'ping' command")
}

func authenticate(s *Server, args []string) reply {
	user := "default"
	password := args[len(args)-1]
	switch {
	case len(args) > 3:
		return syntaxError
	case len(args) == 3:
		user = args[1]
	case s.password == "":
		return failure("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	}
	known := user == "default" && s.user == "" || user != "" && user == s.user
	if !known || s.password != "" && password != s.password {
		return failure("WRONGPASS invalid username-password pair or user is disabled.")
	}
	s.client.authenticated = true
	return done
}

func selectDatabase(s *Server, args []string) reply {
	n, ok := parseInt(args[1])
	switch {
	case !ok:
		return notInteger
	case n != int64(int32(n)): //nolint:gosec // whether it is in this range
		return failure("ERR value is out of range, value must between -2147483648 and 2147483647")
	case n < 0 || n >= int64(len(s.databases)):
		return failure("ERR DB index is out of range")
	}
	s.client.database = int(n)
	s.keys = s.databases[n]
	return done
}

func role(s *Server, _ []string) reply {
	if s.role == Replica {
		return []reply{Replica, "127.0.0.1", int64(0), "connected", int64(0)}
	}
	return []reply{s.role, int64(0), []reply{}}
}

// info replies with the fields that identify the data of a server.
func info(s *Server, args []string) reply {
	switch strings.ToLower(args[1]) {
	case "server":
		return "# Server\r\nrun_id:" + s.dataID + "\r\n"
	case "replication":
		return "# Replication\r\nrole:" + s.role + "\r\nmaster_replid:" + s.dataID + "\r\n"
	}
	return ""
}

func serverTime(s *Server, _ []string) reply {
	now := s.now.UnixMicro()
	return []reply{strconv.FormatInt(now/1e6, 10), strconv.FormatInt(now%1e6, 10)}
}

func flushAll(s *Server, _ []string) reply {
	s.flush()
	s.keys = s.databases[s.client.database]
	return done
}

// keys replies sorted names, unlike Redis.
func keys(s *Server, args []string) reply {
	var names []string
	for name, v := range s.keys {
		if !s.isExpired(v) && matchesGlob(args[1], name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return texts(names)
}

// matchesGlob reports whether a name matches a pattern with * and ?.
func matchesGlob(pattern, name string) bool {
	star := -1
	retry := 0
	p := 0
	for n := 0; n < len(name); {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star = p
			retry = n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0: // the last * takes one more byte
			retry++
			p = star + 1
			n = retry
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

func texts(all []string) reply {
	out := make([]reply, len(all))
	for i, one := range all {
		out[i] = one
	}
	return out
}

func size(s *Server, _ []string) reply { return int64(len(s.keys)) }

func asking(s *Server, _ []string) reply {
	if s.node == nil {
		return noCluster
	}
	s.client.asking = true
	return done
}

func exists(s *Server, args []string) reply {
	n := int64(0)
	for _, key := range args[1:] {
		n += number(s.get(key) != nil)
	}
	return n
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

func typeOf(s *Server, args []string) reply {
	if v := s.get(args[1]); v != nil {
		return status(v.kind)
	}
	return status("none")
}

func del(s *Server, args []string) reply {
	n := int64(0)
	for _, key := range args[1:] {
		n += number(s.get(key) != nil)
		delete(s.keys, key)
	}
	return n
}

// ttl returns the commands that reply an expiry, in a unit of some milliseconds.
func ttl(unit int64, absolute bool) func(*Server, []string) reply {
	return func(s *Server, args []string) reply {
		v := s.get(args[1])
		switch {
		case v == nil:
			return int64(-2)
		case v.expires == never:
			return int64(-1)
		case absolute && unit > 1:
			return v.expires/unit + (v.expires%unit+unit/2)/unit
		case absolute:
			return v.expires
		}
		return (max(v.expires-s.now.UnixMilli(), 0) + unit/2) / unit
	}
}

// expire returns the commands that set an expiry, in a unit of some milliseconds.
func expire(unit int64, absolute bool) func(*Server, []string) reply {
	return func(s *Server, args []string) reply {
		n, ok := parseInt(args[2])
		if !ok {
			return notInteger
		}
		at, ok := s.expiry(n, unit, absolute)
		if !ok {
			return failure("ERR invalid expire time in '" + strings.ToLower(args[0]) + "' command")
		}
		v := s.get(args[1])
		if v == nil {
			return int64(0)
		}
		if v.expires = at; at <= s.now.UnixMilli() {
			delete(s.keys, args[1])
		}
		return int64(1)
	}
}

// expiry returns when a key expires in n units of some milliseconds, and reports whether that is in
// the range of times.
func (s *Server) expiry(n, unit int64, absolute bool) (at int64, ok bool) {
	if n > math.MaxInt64/unit || n < math.MinInt64/unit {
		return 0, false
	}
	at = n * unit
	if absolute {
		return at, true
	}
	now := s.now.UnixMilli()
	return at + now, at <= math.MaxInt64-now
}

func persist(s *Server, args []string) reply {
	v := s.get(args[1])
	if v == nil || v.expires == never {
		return int64(0)
	}
	v.expires = never
	return int64(1)
}
