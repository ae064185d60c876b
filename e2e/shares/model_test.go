//go:build more

package shares_test

import (
	"maps"
	"math"
	"slices"
	"strings"
)

const (
	unlimited = -1 // number of a row
	anything  = -1 // number that is not predicted
)

// limit is a limit of a rule. No window ends, and nothing is refilled, during a test.
type limit struct {
	name, algorithm, shared string // shared: name of the shared counter, or ""
	n                       int
	soft, table             bool
}

type rule struct {
	key            string
	choice, shadow bool
	limits         []limit
}

// call is a descriptor of a request. Negative hits are a refund.
type call struct {
	rule  *rule
	value string
	hits  int
}

// reply is the expected or the received answer to a call.
type reply struct {
	over, unknown      bool     // unknown: the code is not predicted
	names              []string // the limits that may be described, nil for any
	remaining, charged int
	later              bool // the hits will be admitted later
}

// answer is the expected or the received answer to a request.
type answer struct {
	replies []reply
	over    bool
	soft    string
}

// domain has rules and the used hits of each counter.
type domain struct {
	name      string
	together  bool // all_or_nothing
	contended bool // several clients charge a counter at the same time
	max       int  // max_counters, or 0
	rules     []*rule
	used      map[string]int
}

// capacity returns the hits that a new counter admits.
func (l limit) capacity(c call) int {
	if n, ok := rows[c.value]; ok && l.table {
		return n
	}
	return l.n
}

func (d *domain) counter(c call, l limit) string {
	if l.shared != "" {
		return l.shared
	}
	return c.rule.key + "=" + c.value + "/" + l.name
}

// lost returns how many hits a counter may lose if others charge a bucket before a charge is undone.
func (d *domain) lost(l limit) int {
	if d.contended && d.together && strings.HasSuffix(l.algorithm, "_bucket") {
		return 1
	}
	return 0
}

// room returns the hits that a limit can admit now.
func (d *domain) room(c call, l limit) int { return l.capacity(c) - d.used[d.counter(c, l)] }

func (d *domain) add(c call, l limit) {
	d.used[d.counter(c, l)] = max(0, d.used[d.counter(c, l)]+c.hits)
}

// denying returns the limits that can deny a call.
func (c call) denying() []limit {
	return slices.DeleteFunc(slices.Clone(c.rule.limits), func(l limit) bool { return l.soft })
}

// answer decides a request and charges it.
func (d *domain) answer(calls []call) answer {
	before := maps.Clone(d.used)
	a := answer{replies: make([]reply, len(calls))}
	over := 0 // number of calls
	othersOver := false
	for _, choices := range []bool{false, true} { // "such choices are decided last, in the order of the request"
		othersOver = a.over
		for i, c := range calls {
			if c.rule.choice == choices {
				if a.replies[i] = d.decide(c); a.replies[i].over {
					over++
					a.over = true
				}
			}
		}
	}
	if d.together && a.over { // "and undone if the request is denied", except refunds
		d.used = before
		for i, c := range calls {
			r := &a.replies[i]
			if c.hits < 0 {
				d.decide(c)
			} else if len(calls) > 1 { // a replica that knows that one is over does not ask the store for the others
				*r = reply{over: r.over, unknown: over > 1 || c.rule.choice && (othersOver || len(calls) > 2), remaining: anything}
			}
		}
	}
	for _, c := range calls { // "Soft limits and candidates are outside the choice and count all hits"
		for _, l := range c.rule.limits {
			if !l.soft {
				continue
			}
			if d.add(c, l); c.hits <= 0 {
				a.soft = "?"
			} else if a.soft == "" && d.room(c, l) < 0 {
				a.soft = l.name
			}
		}
	}
	return a
}

// decide decides a call. Of a choice only one of the limits is charged, otherwise each.
func (d *domain) decide(c call) (r reply) {
	limits := c.denying()
	first := limits[0]
	switch choice := c.rule.choice; {
	case choice && first.capacity(c) == unlimited: // "an unlimited row lifts the whole choice"
		return reply{remaining: anything}
	case choice && c.hits < 0 && first.shared != "":
		return reply{remaining: anything}
	case choice && c.hits < 0: // "Refunds go to the first limit, up to its use, never to a shared counter"
		limits = limits[:1]
	case choice: // "The first with room for all hits of the request is charged, and only that one"
		i := slices.IndexFunc(limits, func(l limit) bool { return d.room(c, l) >= max(1, c.hits) })
		if i < 0 && c.hits == 0 {
			return reply{}
		}
		if i < 0 {
			return d.deny(c, limits)
		}
		limits = limits[i : i+1] // "0 hits charge nothing and describe the first limit with hits left"
	}
	least := math.MaxInt
	for _, l := range limits {
		least = min(least, d.room(c, l)-c.hits)
	}
	if least < 0 {
		return reply{over: true, remaining: anything, later: true}
	}
	for _, l := range limits {
		if d.add(c, l); d.room(c, l) == least {
			r.names = append(r.names, l.name)
		}
	}
	if r.remaining, r.charged = least, c.hits; c.hits < 0 {
		r.names, r.remaining = nil, anything
	}
	return r
}

// deny returns the reply if no limit of a choice has room. It describes one that will have.
func (d *domain) deny(c call, limits []limit) reply {
	r := reply{over: !c.rule.shadow, remaining: anything}
	for _, l := range limits {
		if l.capacity(c) >= c.hits {
			r.later, r.names = true, append(r.names, l.name)
		}
	}
	return r
}
