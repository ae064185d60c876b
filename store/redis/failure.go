package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// An Error is why a lane went away.
type Error struct {
	Kind Kind
	Err  error
}

// Error returns the text.
func (f *Error) Error() string { return f.Err.Error() }

// Unwrap returns the error without its kind.
func (f *Error) Unwrap() error { return f.Err }

// NewError is err, with its kind.
func NewError(err error) *Error { return &Error{KindOf(err), err} }

// Joined is several errors, of the first one's kind.
func Joined(errs []error) *Error { return &Error{KindOf(errs[0]), errors.Join(errs...)} }

// BadReply is why what came is no reply, in the words of [fmt.Errorf].
func BadReply(format string, args ...any) error { return &Error{Reply, fmt.Errorf(format, args...)} }

// A ServerError is the text of an error that a server has answered. Its first word says which.
type ServerError string

// Error returns the text.
func (e ServerError) Error() string { return string(e) }

// wordKinds are what the first words of servers' errors mean.
var wordKinds = map[string]Kind{
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

// KindOf says what kind of failure an error is.
func KindOf(err error) Kind {
	if f, ok := errors.AsType[*Error](err); ok {
		return f.Kind
	}
	if said, ok := errors.AsType[ServerError](err); ok {
		return said.kind()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	default:
		return Connection
	}
}

// kind says what kind of failure e is.
func (e ServerError) kind() Kind {
	text := string(e)
	// Redis 6.2 wraps the error of a command in a script: its word comes after the last " -".
	if i := strings.LastIndex(text, " -"); i >= 0 {
		if word, _, _ := strings.Cut(text[i+2:], " "); wordKinds[word] != "" {
			return wordKinds[word]
		}
	}
	for _, p := range phrases {
		if strings.Contains(text, p.text) {
			return p.kind
		}
	}
	word, _, _ := strings.Cut(text, " ")
	return cmp.Or(wordKinds[word], Script)
}

// Remedy is what an operator can do about a kind of failure, empty if only wait.
func (k Kind) Remedy() string {
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

// ErrPanicked is the answer to a request in which something panicked that the fallback could not
// answer either.
var ErrPanicked = &Error{Reply, errors.New("internal error")}
