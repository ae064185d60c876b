package envoyconfig

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// charge counts the charges of one counter by a list.
type charge struct {
	key   string
	first *evaluation // the first policy of the list that charges it
	n     int
}

// countCharges counts how often the i-th policy of a list charges its counters together with the policies before it.
func (k *checker) countCharges(c *checkedList, i int) {
	e := c.all[i]
	for _, key := range c.countersOf(i) {
		x := c.byCounter[key]
		if x != nil && mayExclude(x.first, e) {
			key += strconv.FormatUint(e.matchers(), 16) + strings.Join(e.conditions, ", ")
			x = c.byCounter[key]
		}
		if x == nil {
			x = &charge{key: key, first: e}
			c.byCounter[key] = x
		} else {
			k.reportChargedTwice(e, x.first)
		}
		x.n++
		c.charges[i] = append(c.charges[i], x)
	}
}

// countersOf identifies the counters that the i-th policy charges: that of its entries, and those of limits with counter.
func (c *checkedList) countersOf(i int) (all []string) {
	e := c.all[i]
	reached := c.reached[i].Rules
	counts := func(r *descriptors.Rule) bool { return !r.Unlimited && len(leaseNames(r)) == 0 }
	own := e.counter(reached)
	if e.never != "" || !e.hits.charges || !slices.ContainsFunc(reached, counts) || own == "" {
		return nil
	}
	prefix := c.counterPrefix(e)
	all = append(all, prefix+own)
	for _, l := range reached[0].Limits {
		name := l.SharedCounter()
		charges := func(r *descriptors.Rule) bool { return !r.FirstWithRoom() && chargesCounter(r, name) }
		if name != "" && allOf(reached, charges) {
			all = append(all, prefix+name)
		}
	}
	return all
}

// counterPrefix begins the keys of the counters that a policy charges.
func (c *checkedList) counterPrefix(e *evaluation) string {
	prefix := c.limiter.service() + c.domain
	if e.streamDone && e.hits.text != "1 hit" { // a cost, which may add to the hit at the start
		prefix += " cost"
	}
	return prefix
}

// checkOptional reports the policies that charge the counter of another one when an entry with skip_if_absent is absent.
func (k *checker) checkOptional(c *checkedList) {
	for _, e := range c.all {
		for i := range e.entries {
			if !e.entries[i].form.optional || e.never != "" || !e.hits.charges {
				continue
			}
			rest := evaluation{entries: slices.Delete(slices.Clone(e.entries), i, i+1)}
			if x := c.byCounter[c.counterPrefix(e)+rest.counter(nil)]; x != nil && !excludeByMatchers(x.first, e) {
				k.report(ChargedTwice, rules.Warning, e.node.Pos(), "requests without %s charge the counter of %s twice, since the "+
					"element at %v sends the same descriptor: remove skip_if_absent", rules.Shorten(e.entries[i].form.key), x.first.text(), x.first.node.Pos())
			}
		}
	}
}

// service identifies the service that the filter calls.
func (f *filter) service() string {
	service := f.config.At("rate_limit_service", "grpc_service")
	return service.At("envoy_grpc", "cluster_name").Text + " " + service.At("google_grpc", "target_uri").Text + " "
}

func chargesCounter(r *descriptors.Rule, name string) bool {
	return slices.ContainsFunc(r.Limits, func(l *descriptors.Limit) bool { return l.SharedCounter() == name })
}

func allOf[T any](list []T, f func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !f(v) })
}

// counter identifies the counters that the descriptor reaches: equal texts reach the same ones for each request. It is
// empty if that is unknown.
func (e *evaluation) counter(reached []*descriptors.Rule) string {
	var b strings.Builder
	for i := range e.entries {
		s := &e.entries[i]
		if s.form.anyKey {
			return ""
		}
		value := s.identity()
		if len(reached) == 1 && len(reached[0].Levels()) == len(e.entries) && reached[0].SharesValues(i) {
			value = "*"
		}
		fmt.Fprintf(&b, "%q%q", s.form.key, value)
	}
	return b.String()
}

// headerValue matches a format string and an expression with the value of a header.
var headerValue = regexp.MustCompile(`^(?:%REQ\(|expression request\.headers\[['"])([^'"():?]+)(?:\)%|['"]\])$`)

// identity returns a text that is equal for entries with equal values.
func (s *evaluatedEntry) identity() string {
	only := s.origin.only
	found := headerValue.FindStringSubmatch(s.source)
	switch {
	case !s.form.anyValue:
		return "=" + s.form.value
	case only != nil && only.isCopy:
		return only.header + " header"
	case only != nil && only.value.Text != "":
		return "=" + only.value.Text
	case found != nil:
		return strings.ToLower(found[1]) + " header"
	case s.source == "host header":
		return ":authority header"
	}
	return s.source
}

// matchers identifies what requests must match for which Envoy sends the descriptor; 0 if none.
func (e *evaluation) matchers() (sum uint64) {
	for _, a := range e.actions {
		if strings.HasSuffix(a.kind, "_match") {
			sum += a.node.Hash()
		}
	}
	return sum
}

// mayExclude reports whether there may be no request for which Envoy sends both descriptors.
func mayExclude(a, b *evaluation) bool {
	differ := a.counter(nil) != b.counter(nil) // they share the counter of a rule
	return differ && !includes(a.conditions, b.conditions) && !includes(b.conditions, a.conditions) || excludeByMatchers(a, b)
}

func excludeByMatchers(a, b *evaluation) bool {
	return a.matchers() != 0 && b.matchers() != 0 && a.matchers() != b.matchers()
}

// includes reports whether all contains each condition of some.
func includes(all, some []string) bool {
	return allOf(some, func(s string) bool { return slices.Contains(all, s) })
}

func (k *checker) reportChargedTwice(e, first *evaluation) {
	if e.node == first.node && e.limiter != first.limiter {
		k.report(ChargedTwice, rules.Warning,
			e.limiter.node.Pos(), "each request charges its counters twice, since the "+
				"filter at %v sends the same descriptors (such as at %v) to the same domain: remove one filter, or give one "+
				"another stage or domain",
			first.limiter.node.Pos(), e.node.Pos())
		return
	}
	why := "sends the same descriptor: remove one"
	if e.text() != first.text() {
		why = "charges the same counter"
	}
	k.report(ChargedTwice, rules.Warning,
		e.node.Pos(), "each request charges the counter of %s twice, since the element at %v %s", e.text(), first.node.Pos(), why)
}

// sharedCounters returns the counters that two lists of a route charge. It reports them when it is called for the earlier
// list first.
func (k *checker) sharedCounters(a, b *checkedList) []string {
	pair := [2]*checkedList{a, b}
	found, known := k.pairs[pair]
	if !known {
		few := a
		many := b
		if len(b.byCounter) < len(a.byCounter) {
			few = b
			many = a
		}
		for _, key := range slices.Sorted(maps.Keys(few.byCounter)) {
			if x := many.byCounter[key]; x != nil && !mayExclude(x.first, few.byCounter[key].first) {
				found = append(found, key)
				if k.pairs[[2]*checkedList{b, a}] == nil {
					k.reportChargedTwice(b.byCounter[key].first, a.byCounter[key].first)
				}
			}
		}
		k.pairs[pair] = found
	}
	return found
}

// chargesOf returns how often a request charges a counter of the i-th policy, together with the charges of other lists.
func (c *checkedList) chargesOf(i int, others map[string]int) (most int) {
	if e := c.all[i]; e.never != "" || !e.hits.charges {
		return 0
	}
	most = 1
	for _, x := range c.charges[i] {
		most = max(most, x.n+others[x.key])
	}
	return most
}
