package store

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
)

// A Kind says why a batch failed. There is a closed set of them, for metrics.
type Kind string

// The kinds.
const (
	Timeout    Kind = "timeout"    // no answer in time
	Connection Kind = "connection" // lost, refused or not to be had
	Busy       Kind = "busy"       // another script runs: BUSY
	Loading    Kind = "loading"    // the server reads its data: LOADING
	Memory     Kind = "memory"     // no memory is left: OOM
	Disk       Kind = "disk"       // writes are off, since snapshots fail: MISCONF
	Replicas   Kind = "replicas"   // too few replicas: NOREPLICAS, or their primary is gone: MASTERDOWN
	ReadOnly   Kind = "readonly"   // a replica answered: READONLY
	Cluster    Kind = "cluster"    // slots are elsewhere or nowhere: MOVED, ASK, TRYAGAIN, CLUSTERDOWN, CROSSSLOT
	Refused    Kind = "refused"    // credentials or rights: NOAUTH, WRONGPASS, NOPERM
	Script     Kind = "script"     // the script failed, or there are none; a key of another type
	Reply      Kind = "reply"      // what came is no reply of the script
)

// Kinds are all of them.
var Kinds = []Kind{
	Timeout, Connection, Busy, Loading, Memory, Disk, Replicas, ReadOnly, Cluster, Refused, Script, Reply,
}

// A failure is why a lane went away.
type failure struct {
	kind Kind
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// A serverError is the text of an error that a server has answered. Its first word says which.
type serverError string

func (e serverError) Error() string { return string(e) }

// words are the first words of servers' errors.
var words = map[string]Kind{
	"BUSY": Busy, "LOADING": Loading, "OOM": Memory, "MISCONF": Disk, "NOREPLICAS": Replicas, "MASTERDOWN": Replicas,
	"READONLY": ReadOnly, "MOVED": Cluster, "ASK": Cluster, "TRYAGAIN": Cluster, "CLUSTERDOWN": Cluster, "CROSSSLOT": Cluster,
	"NOAUTH": Refused, "WRONGPASS": Refused, "NOPERM": Refused, "NOPROTO": Script, "ERR": Script, "WRONGTYPE": Script,
}

// phrases are in errors whose word is ERR alone, behind it or what wraps it.
var phrases = []struct {
	text string
	kind Kind
}{
	{"AUTH <password> called without any password", Refused}, // a password for a server that has none
	{"The user executing the script can't ", Refused},        // Redis 6.2 and 7.0: a command in a script
	{"ACL failure in script", Refused},                       // Redis 7.2 and later, Valkey
}

// kindOf says what kind of failure an error is.
func kindOf(err error) Kind {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.kind
	}
	if said, ok := errors.AsType[serverError](err); ok {
		return said.kind()
	}
	switch {
	case errors.Is(err, errReply):
		return Reply
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	default:
		return Connection
	}
}

func (e serverError) kind() Kind {
	text := string(e)
	// Redis 6.2 wraps the error of a command in a script: its word comes after the last " -".
	if i := strings.LastIndex(text, " -"); i >= 0 {
		if word, _, _ := strings.Cut(text[i+2:], " "); words[word] != "" {
			return words[word]
		}
	}
	for _, p := range phrases {
		if strings.Contains(text, p.text) {
			return p.kind
		}
	}
	word, _, _ := strings.Cut(text, " ")
	return cmp.Or(words[word], Script)
}

// remedy is what an operator can do about a kind of failure, empty if only wait.
func (k Kind) remedy() string {
	switch k {
	case Refused:
		return "check the user, the password and the rights of the store's user: see docs/store.md"
	case Script:
		return "the store must run Lua scripts and be Redis 6.2, Valkey 7.2 or later, and no other program may write sluice's keys"
	case Memory:
		return "the store's memory is full: raise maxmemory, or set maxmemory-policy volatile-ttl"
	case Disk:
		return "the store cannot save its data and takes no writes: see its log"
	case ReadOnly:
		return "the address leads to a replica: use the primary's, or Sentinel"
	default:
		return ""
	}
}
