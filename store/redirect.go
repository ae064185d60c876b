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
	// mostHops is how often an ask is sent elsewhere, lest nodes that disagree play with it. It waits after
	// TRYAGAIN for as long as its caller does.
	mostHops = 8
	// pause is how long after TRYAGAIN an ask is sent once more.
	pause = time.Millisecond
)

// A redirection is such an answer. Its port is empty for TRYAGAIN, and its host if it is the one that was asked.
type redirection struct {
	host, port string
	moved      bool
}

// redirected says where to ask instead after err. It reports false if that is no redirection, or l's store no
// cluster, which its URL would say.
func (l *lane) redirected(err error) (to redirection, ok bool) {
	if l.fleet.server.Nodes == nil {
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
func (l *lane) target(to redirection) *lane {
	address, err := redis.NodeAt(to.host, to.port, l.shard)
	if err != nil {
		return nil
	}
	return l.fleet.laneAt(address)
}

// redirect sends those of all that are not decided where they belong.
func (l *lane) redirect(all []*ask, to redirection) {
	l.options.observe().Failed(string(redis.Cluster))
	var asks []*ask
	l.mu.Lock()
	for _, a := range all {
		if a.isOpen {
			l.open.remove(a)
			asks = append(asks, a)
		}
	}
	l.mu.Unlock()
	for _, a := range all { // the node has decided none
		if !slices.Contains(asks, a) {
			l.fleet.settled(uncounted, a)
		}
	}
	target := l
	if to.port != "" {
		target = l.target(to)
		l.fleet.ask()
	}
	var late []*ask
	for _, a := range asks {
		a.sent = false
		a.since = clock() // the other lane is not slow because this one was asked before
		if a.alone = a.alone || !to.moved; to.port == "" {
			l.pausing.Add(1)
			time.AfterFunc(l.fleet.store.pause, func() {
				defer l.pausing.Done()
				if !target.put(a) {
					target.fallBack([]*ask{a})
				}
			})
			continue
		}
		a.asking = !to.moved
		if a.hops++; a.hops > mostHops || target == nil || !target.put(a) {
			late = append(late, a)
		}
	}
	l.fallBack(late)
}

// expire sends what a's keys lack, whose slot moved after they were written.
func (l *lane) expire(a *ask) {
	late := newAsk()
	late.call.Expire(&a.call)
	late.slot = a.slot
	late.send(l, l.options.Timeout)
}
