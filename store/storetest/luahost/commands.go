package luahost

import (
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
		"PING":             {func(*Server, []string) reply { return status("PONG") }, 1, reads, 0},
		"INFO":             {info, 2, reads, 0},
		"TIME":             {serverTime, 1, reads, 0},
		"DBSIZE":           {size, 1, reads, 0},
		"ASKING":           {asking, 1, reads, 0},
		"CLUSTER":          {clusterCommand, -2, reads, 0},
		"EVAL":             {eval, -3, reads, numberedKeys},
		"EVALSHA":          {evalSHA, -3, reads, numberedKeys},
		"TYPE":             {typeOf, 2, reads, 1},
		"DEL":              {del, -2, frees, allKeys},
		"TTL":              {ttl, 2, reads, 1},
		"PEXPIRETIME":      {expiryTime, 2, reads, 1},
		"EXPIREAT":         {expireAt, 3, frees, 1},
		"GET":              {get, 2, reads, 1},
		"GETRANGE":         {getRange, 4, reads, 1},
		"SET":              {set, -3, writes, 1},
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

// ttl replies how many seconds a key has left.
func ttl(s *Server, args []string) reply {
	v := s.get(args[1])
	switch {
	case v == nil:
		return int64(-2)
	case v.expires == never:
		return int64(-1)
	}
	return (max(v.expires-s.now.UnixMilli(), 0) + 500) / 1000
}

// expiryTime replies when a key expires, in milliseconds.
func expiryTime(s *Server, args []string) reply {
	if v := s.get(args[1]); v != nil {
		return v.expires
	}
	return int64(-2)
}

// expireAt sets when a key expires, in seconds.
func expireAt(s *Server, args []string) reply {
	n, ok := parseInt(args[2])
	if !ok {
		return notInteger
	}
	v := s.get(args[1])
	if v == nil {
		return int64(0)
	}
	if v.expires = n * 1000; v.expires <= s.now.UnixMilli() {
		delete(s.keys, args[1])
	}
	return int64(1)
}
