package store

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/store/redis"
)

// A cluster's node says of a slot that it does not have:
//
//	MOVED     where it is, for good
//	ASK       where it is about to be: this key is there already, or is new
//	TRYAGAIN  some of these keys are there already, and others not yet
//
// Keys that are asked for together make the last one likelier, so asks that were sent elsewhere by
// the last two go alone from then on.

const (
	// maxHops is how often an ask is sent elsewhere, lest nodes that disagree play with it. It waits after
	// TRYAGAIN for as long as its caller does.
	maxHops = 8
	// tryAgainPause is how long after TRYAGAIN an ask is sent once more.
	tryAgainPause = time.Millisecond
)

// A redirection is such an answer. Its port is empty for TRYAGAIN, and its host if it is the one that was asked.
type redirection struct {
	host, port string
	moved      bool
}

// redirected says where to ask instead after err. It reports false if that is no redirection, or l's store no
// cluster, which its URL would say.
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
		colon := strings.LastIndexByte(address, ':') // IPv6 comes without brackets
		if colon < 0 || colon == len(address)-1 {
			return redirection{}, false
		}
		return redirection{address[:colon], address[colon+1:], word == "MOVED"}, true
	}
	return redirection{}, false
}

// target returns the lane that an answer with an address leads to, nil if that makes no sense or there are too many.
func (sh *shard) target(to redirection) *shard {
	address, err := redis.NodeAt(to.host, to.port, sh.name)
	if err != nil {
		return nil
	}
	return sh.backend.shardAt(address)
}

// redirect sends those of all that are not decided where they belong.
func (sh *shard) redirect(all []*request, to redirection) {
	sh.options.observe().Failed(string(redis.Cluster))
	var asks []*request
	sh.mu.Lock()
	for _, req := range all {
		if req.open {
			sh.open.remove(req)
			asks = append(asks, req)
		}
	}
	sh.mu.Unlock()
	for _, req := range all { // the node has decided none
		if !slices.Contains(asks, req) {
			sh.backend.resolve(outcomeUncounted, req)
		}
	}
	target := sh
	if to.port != "" {
		target = sh.target(to)
		sh.backend.requestRefresh()
	}
	var late []*request
	for _, req := range asks {
		req.sent = false
		req.queuedAt = clock() // the other lane is not slow because this one was asked before
		if req.isolated = req.isolated || !to.moved; to.port == "" {
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

// expire sends what a's keys lack, whose slot moved after they were written.
func (sh *shard) expire(req *request) {
	late := newRequest()
	late.call.EncodeExpire(&req.call)
	late.slot = req.slot
	late.send(sh, sh.options.Timeout)
}
