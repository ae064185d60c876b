package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// A Kind classifies failures for metrics. The set of kinds is fixed.
type Kind string

// The kinds.
const (
	Timeout    Kind = "timeout"    // no answer in time
	Connection Kind = "connection" // lost, refused or not established
	Busy       Kind = "busy"       // another script is running: BUSY
	Loading    Kind = "loading"    // the server is loading its data: LOADING
	Memory     Kind = "memory"     // out of memory: OOM
	Disk       Kind = "disk"       // writes are disabled because snapshots fail: MISCONF
	Replicas   Kind = "replicas"   // too few replicas: NOREPLICAS, or their primary is gone: MASTERDOWN
	ReadOnly   Kind = "readonly"   // a replica answered: READONLY
	Cluster    Kind = "cluster"    // slots are elsewhere or nowhere: MOVED, ASK, TRYAGAIN, CLUSTERDOWN, CROSSSLOT
	Mode       Kind = "mode"       // a node of a cluster with the URL of a single server, or the reverse
	Refused    Kind = "refused"    // credentials or permissions: NOAUTH, WRONGPASS, NOPERM
	Script     Kind = "script"     // the script failed, or scripts are not supported; a key of another type
	Reply      Kind = "reply"      // an invalid reply
)

// Kinds are all kinds.
var Kinds = []Kind{
	Timeout, Connection, Busy, Loading, Memory, Disk, Replicas, ReadOnly, Cluster, Mode, Refused, Script, Reply,
}

// An Error is the reason why a shard became unavailable.
type Error struct {
	Kind Kind
	Err  error
}

// Error returns the text.
func (f *Error) Error() string { return f.Err.Error() }

// Unwrap returns the error without its kind.
func (f *Error) Unwrap() error { return f.Err }

// NewError returns err with its kind.
func NewError(err error) *Error { return &Error{KindOf(err), err} }

// Joined joins errors. The result has the first one's kind.
func Joined(errs []error) *Error { return &Error{KindOf(errs[0]), errors.Join(errs...)} }

// BadReply returns an error for an invalid reply, formatted as by [fmt.Errorf].
func BadReply(format string, args ...any) error { return &Error{Reply, fmt.Errorf(format, args...)} }

// A ServerError is the text of a server's error. Its first word is a code.
type ServerError string

// Error returns the text.
func (e ServerError) Error() string { return string(e) }

// wordKinds maps the codes of servers' errors to kinds.
var wordKinds = map[string]Kind{
	"BUSY": Busy, "LOADING": Loading, "OOM": Memory, "MISCONF": Disk, "NOREPLICAS": Replicas, "MASTERDOWN": Replicas,
	"READONLY": ReadOnly, "MOVED": Cluster, "ASK": Cluster, "TRYAGAIN": Cluster, "CLUSTERDOWN": Cluster, "CROSSSLOT": Cluster,
	"NOAUTH": Refused, "WRONGPASS": Refused, "NOPERM": Refused, "NOPROTO": Script, "ERR": Script, "WRONGTYPE": Script,
}

// phrases maps texts of errors whose code is ERR, or that are wrapped in one, to kinds.
var phrases = []struct {
	text string
	kind Kind
}{
	{"AUTH <password> called without any password", Refused}, // a password for a server that has none
	{"The user executing the script can't ", Refused},        // Redis 6.2 and 7.0: a command in a script
	{"ACL failure in script", Refused},                       // Redis 7.2 and later, Valkey
	{"cluster support disabled", Mode},                       // CLUSTER SLOTS at a single server
}

// KindOf returns the kind of an error.
func KindOf(err error) Kind {
	if f, ok := errors.AsType[*Error](err); ok {
		return f.Kind
	}
	if serverErr, ok := errors.AsType[ServerError](err); ok {
		return serverErr.kind()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	default:
		return Connection
	}
}

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

// Remedy returns the action that fixes this kind of failure, or "" if the operator can only wait.
func (k Kind) Remedy() string {
	switch k {
	case Refused:
		return "check the user, the password and the permissions of the store's user: see docs/store.md"
	case Script:
		return "the store must run Lua scripts and be Redis 6.2, Valkey 7.2 or later, and no other program may write sluice's keys"
	case Memory:
		return "the store's memory is full: raise maxmemory, or set maxmemory-policy volatile-ttl"
	case Disk:
		return "the store cannot save its data and accepts no writes: see its log"
	case Mode:
		return "use redis+cluster://host:port (REDIS_TYPE=CLUSTER) for a cluster, and redis://host:port (REDIS_TYPE=SINGLE) for a single server"
	case ReadOnly:
		return "the address is that of a replica: use the primary's, or Sentinel"
	default:
		return ""
	}
}

// ErrPanicked is the error of a request that panicked, also in the fallback.
var ErrPanicked = &Error{Reply, errors.New("internal error")}
