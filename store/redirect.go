package store

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
)

// The errors of a node that does not have a slot:
//
//	MOVED     the slot is at another node
//	ASK       the slot is being migrated: this key is at the other node already, or is new
//	TRYAGAIN  the slot is being migrated: some of these keys are at the other node, others are not
//
// TRYAGAIN is likelier for several keys, so requests that got one of the last two are sent in runs
// of their own.

const (
	// maxHops bounds how often a request is redirected, in case nodes disagree. After TRYAGAIN a
	// request is sent again until its deadline.
	maxHops = 8
	// tryAgainPause is how long after TRYAGAIN a request is sent again.
	tryAgainPause = time.Millisecond
)

// A redirection is the target of MOVED or ASK. The port is empty for TRYAGAIN, and the host if it
// is that of the node that answered.
type redirection struct {
	host, port string
	moved      bool
}

// redirected parses a redirection. It reports false if err is not a redirection, or the store is
// not a cluster, by its URL.
func (sh *shard) redirected(err error) (to redirection, ok bool) {
	if sh.backend.server.Nodes == nil {
		return redirection{}, false
	}
	word, rest, _ := strings.Cut(err.Error(), " ")
	switch word {
	case "TRYAGAIN":
		return redirection{}, true
	case "MOVED", "ASK":
		_, address, _ := strings.Cut(rest, " ")
		colon := strings.LastIndexByte(address, ':') // IPv6 addresses have no brackets
		if colon < 0 || colon == len(address)-1 {
			return redirection{}, false
		}
		return redirection{address[:colon], address[colon+1:], word == "MOVED"}, true
	}
	return redirection{}, false
}

// target returns the shard of a redirection, nil if the address is invalid or there are too many
// shards.
func (sh *shard) target(to redirection) *shard {
	address, err := redis.NodeAt(to.host, to.port, sh.name)
	if err != nil {
		return nil
	}
	return sh.backend.shardAt(address)
}

// redirect sends the undecided requests of all to the target.
func (sh *shard) redirect(all []*request, to redirection) {
	sh.options.observe().Failed(string(redis.Cluster))
	var undecided []*request
	sh.mu.Lock()
	for _, req := range all {
		if req.open {
			sh.open.remove(req)
			undecided = append(undecided, req)
		}
	}
	sh.mu.Unlock()
	for _, req := range all { // the node has not decided them
		if !slices.Contains(undecided, req) {
			sh.backend.resolve(outcomeUncounted, req)
		}
	}
	target := sh
	if to.port != "" {
		target = sh.target(to)
		sh.backend.requestRefresh()
	}
	var late []*request
	for _, req := range undecided {
		req.sent = false
		req.queuedAt = clock() // the time at this shard does not count against the other one
		req.isolated = req.isolated || !to.moved
		if to.port == "" {
			sh.pausing.Add(1)
			time.AfterFunc(sh.backend.store.tryAgainPause, func() {
				defer sh.pausing.Done()
				if !target.enqueue(req) {
					target.fallBack([]*request{req})
				}
			})
			continue
		}
		req.asking = !to.moved
		if req.hops++; req.hops > maxHops || target == nil || !target.enqueue(req) {
			late = append(late, req)
		}
	}
	sh.fallBack(late)
}

// expire sends the missing expiries of keys of req, whose slot moved after they were written.
func (sh *shard) expire(req *request) {
	late := newRequest()
	late.call.EncodeExpire(&req.call)
	late.slot = req.slot
	late.send(sh, sh.options.Timeout)
}
