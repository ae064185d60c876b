package envoyconfig

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// A rule that grants leases needs two policies with the same actions: one sent when a request starts, and one sent at
// the end of its stream, whose hits are the lease, read from the dynamic metadata.

// filterNamespace is the default metadata namespace of the rate limit filter's replies.
const filterNamespace = "envoy.filters.http.ratelimit"

// namespace returns the metadata namespace of the replies to f.
func (f *filter) namespace() string {
	if own := f.config.Field("metadata_namespace").Text; own != "" {
		return own
	}
	return filterNamespace
}

// leasePolicy is a policy that a filter sends on a route to rules that grant leases.
type leasePolicy struct {
	*policy

	own   bool
	names []string // names of the leases that the rules grant
	rules []*descriptors.Rule
	// releases is the name of the lease that the policy releases, "" for none.
	releases string
	// same is equal for equal actions.
	same uint64
}

// hitsKey returns the namespace and the key of the dynamic metadata that contains the hits; empty for other hits.
func (p *policy) hitsKey() (namespace, key string) {
	if p.command == "DYNAMIC_METADATA" {
		namespace, key, _ = strings.Cut(p.argument, ":")
	}
	return namespace, key
}

// readsReply reports whether the hits are a value of the metadata of f's replies, such as a lease.
func (p *policy) readsReply(f *filter) bool {
	namespace, _ := p.hitsKey()
	return namespace == f.namespace()
}

// clientCommands are the format commands whose values the client chooses.
var clientCommands = []string{"REQ", "REQ_WITHOUT_QUERY", "REQUEST_HEADER", "QUERY_PARAM", "QUERY_PARAMS", "PATH"}

// checkLeasesOnce calls checkLeases once for all routes that send the same lists.
func (k *checker) checkLeasesOnce(m *manager, f *filter, domain string, sent []*checkedList) []leasePolicy {
	key := fmt.Sprintf("%p %q %v", f, domain, sent) // the addresses of the lists
	all, ok := k.leaseLists[key]
	if !ok {
		all = k.checkLeases(m, f, domain, sent)
		k.leaseLists[key] = all
	}
	return all
}

// checkLeases checks that the leases which a filter acquires on a route are released, once, and by Envoy only. It
// returns the policies for rules with leases.
func (k *checker) checkLeases(m *manager, f *filter, domain string, sent []*checkedList) []leasePolicy {
	var all []leasePolicy
	found := map[*descriptors.Reach]leasePolicy{}
	for _, c := range sent {
		for i, p := range c.all {
			reach := c.reached[i]
			e, ok := found[reach]
			if !ok {
				for _, r := range reach.Rules {
					if names := leaseNames(r); len(names) > 0 {
						e.names = append(e.names, names...)
						e.rules = append(e.rules, r)
					}
				}
				found[reach] = e
			}
			if len(e.rules) > 0 {
				e.policy = p.policy
				e.own = p.own
				e.same = p.node.Field("actions").Hash()
				all = append(all, e)
			} else {
				k.checkLeaseOfOtherRule(f, domain, p.policy)
			}
		}
	}
	same := map[uint64][]*leasePolicy{}
	ends := map[string]*leasePolicy{}
	starts := map[string]*leasePolicy{}
	for i := range all {
		e := &all[i]
		e.releases = k.checkReleasedLease(f, e)
		same[e.same] = append(same[e.same], e)
		if e.releases != "" {
			ends[e.releases] = cmp.Or(ends[e.releases], e)
		}
		for _, name := range e.names {
			if !e.streamDone {
				starts[name] = cmp.Or(starts[name], e)
			}
		}
	}
	first := map[string]*leasePolicy{} // the first element for the start, by its rules
	for i := range all {
		e := &all[i]
		if e.streamDone {
			k.checkLeaseEnd(e, starts[e.releases])
			continue
		}
		k.checkLeaseStart(f, e, same[e.same], ends)
		reached := fmt.Sprint(e.rules)
		if o := first[reached]; o != nil && !e.readsReply(f) {
			k.report(Leases, rules.Warning, e.node.Pos(), "the element at %v acquires a lease of %s, too; if Envoy sends both, the second lease is returned as %q, which the release of this element must read: prefer separate rules",
				o.node.Pos(), e.rules[0].Path(), e.names[0]+".2")
		}
		first[reached] = cmp.Or(first[reached], e)
	}
	for i := range all {
		k.checkCosts(m, f, &all[i], same[all[i].same])
	}
	return all
}

// limitsOf returns the limits of a rule and its candidates, none of an unlimited rule.
func limitsOf(r *descriptors.Rule) []*descriptors.Limit {
	if r.Unlimited {
		return nil
	}
	return slices.Concat(r.Limits, r.Candidates())
}

// leaseNames returns the names of the limits of r that grant leases.
func leaseNames(r *descriptors.Rule) (names []string) {
	for _, l := range limitsOf(r) {
		if l.Policy.UsesLeases() {
			names = append(names, l.Name)
		}
	}
	return names
}

// reservations returns the limits of r that reserve hits.
func reservations(r *descriptors.Rule) []*descriptors.Limit {
	return slices.DeleteFunc(limitsOf(r), func(l *descriptors.Limit) bool { return l.Policy.Reserve == nil })
}

// hasSettlement reports whether the rule can be charged at the end of a request.
func hasSettlement(r *descriptors.Rule) bool {
	return slices.ContainsFunc(limitsOf(r), (*descriptors.Limit).HasWindow)
}

// checkReleasedLease returns the lease that the policy releases, or "". It reports hits that are not a valid lease.
func (k *checker) checkReleasedLease(f *filter, e *leasePolicy) string {
	hits := e.node.Field("hits_addend")
	format := hits.Field("format")
	fail := func(at *tree.Node, text string, args ...any) { k.report(Leases, rules.Error, at.Pos(), text, args...) }
	want := fmt.Sprintf(`format: "%%DYNAMIC_METADATA(%s:%s)%%"`, f.namespace(), e.names[0])
	onlyPermits := !slices.ContainsFunc(e.rules, hasSettlement)
	namespace, key := e.hitsKey()
	lease := leaseLimit(key, e.names)
	isLease := slices.Contains(e.names, lease)
	switch {
	case slices.Contains(clientCommands, e.command):
		fail(format, "clients control %s: with a number of %d or more a client can release leases of other requests of %s; use %s", rules.Shorten(format.Text), descriptors.FirstLease, e.rules[0].Path(), want)
	case !e.streamDone && (isLease || e.readsReply(f)):
		fail(format, "at the start of a request there is no lease yet, so Envoy sends nothing: add apply_on_stream_done: true to this element, and one without hits_addend for the start")
	case !e.streamDone:
	case isLease && e.readsReply(f):
		return lease
	case e.readsReply(f):
		fail(format, "no limit that this element matches grants a lease %q: %s grants %s%s", rules.Shorten(key),
			e.rules[0].Path(), strings.Join(e.names, ", "), rules.DidYouMean(key, e.names))
	case isLease:
		fail(format, "the lease %q is in the metadata of the filter, %s, not in %s: use %s", key, f.namespace(),
			rules.Shorten(namespace), want)
		return lease
	case onlyPermits && format.Exists():
		fail(format, "%s is not a lease of %s: at the end of a stream it would acquire a permit that is never released; did you mean %s?", rules.Shorten(format.Text), e.rules[0].Path(), want)
	case onlyPermits && hits.Field("number").Uint(1) > 0 && !hits.Field("is_negative_hits").Bool(false):
		fail(e.node, "at the end of a stream this element acquires a permit of %s that is never released: set hits_addend: { %s, is_negative_hits: true }", e.rules[0].Path(), want)
	case strings.Contains(format.Text, "BYTES_"):
		k.report(Leases, rules.Warning, format.Pos(), "%d bytes or more are read as a lease by %s and not charged: use a rule without leases for bytes", descriptors.FirstLease, e.rules[0].Path())
	}
	return ""
}

// secondLeaseSuffix matches the suffix of a limit's second lease in one request.
var secondLeaseSuffix = regexp.MustCompile(`\.[0-9]+$`)

// leaseLimit returns the name of the limit that granted the named lease.
func leaseLimit(name string, limits []string) string {
	if slices.Contains(limits, name) {
		return name
	}
	return secondLeaseSuffix.ReplaceAllString(name, "")
}

// checkLeaseStart checks that leases acquired at the start of a request are released at its end. same are the elements
// with the same actions, and ends the first elements that release a lease.
func (k *checker) checkLeaseStart(f *filter, e *leasePolicy, same []*leasePolicy, ends map[string]*leasePolicy) {
	if e.readsReply(f) {
		return // reported by checkReleasedLease
	}
	hits := &tree.Missing
	if e.own {
		hits = e.node.Field("hits_addend")
	}
	n := hits.Field("number").Uint(1)
	for _, r := range e.rules {
		for _, l := range limitsOf(r) {
			switch {
			case !l.Policy.UsesLeases(), k.checkStartHits(hits, r, l), n == 0 && !l.HasWindow(): // a peek acquires no permit
			case !slices.ContainsFunc(same, func(o *leasePolicy) bool { return o.releases == l.Name }):
				k.reportUnreleased(f, e, l, ends[l.Name])
			case l.HasWindow() &&
				!slices.ContainsFunc(same, func(o *leasePolicy) bool { return o.streamDone && o.releases == "" }):
				k.report(Leases, rules.Warning, e.node.Pos(), "no element reports at the end of the stream the cost of a request for which %s at %v reserves: add one with the same actions, the cost as hits_addend, and apply_on_stream_done: true", r.Path(), l.Pos)
			}
		}
	}
}

// reportUnreleased reports that the lease of l that e acquires is not released. end is an element with other actions that
// releases it, if any.
func (k *checker) reportUnreleased(f *filter, e *leasePolicy, l *descriptors.Limit, end *leasePolicy) {
	if end != nil {
		k.report(Leases, rules.Error, end.node.Pos(), "the actions differ from those of the start at %v, so the lease %q is released on another counter: use the same actions in the same order", e.node.Pos(), l.Name)
		return
	}
	severity := rules.Error
	until := "is never released"
	if l.HasWindow() {
		until = "is never settled"
	}
	if l.Candidate {
		severity = rules.Warning
	}
	k.report(Leases, severity, e.node.Pos(), "the lease of %s at %v %s: add an element with the same actions, "+
		`hits_addend: { format: "%%DYNAMIC_METADATA(%s:%s)%%", is_negative_hits: true }, and apply_on_stream_done: true`, l.Rule.Path(), l.Pos, until, f.namespace(), l.Name)
}

// checkLeaseEnd checks that a policy which releases a lease has a counterpart that acquires it, and is sent whenever the
// counterpart was.
func (k *checker) checkLeaseEnd(e, start *leasePolicy) {
	if e.releases == "" {
		return
	}
	if start == nil {
		k.report(Leases, rules.Error, e.node.Pos(), "no element sent at the start acquires the lease %q that this one releases: add an element with the same actions, without hits_addend and apply_on_stream_done", e.releases)
	}
	for _, a := range e.actions {
		if at := a.node.Field("skip_if_absent"); (a.kind == "metadata" || a.kind == "dynamic_metadata") &&
			at.Bool(false) {
			k.report(Leases, rules.Error, at.Pos(), "metadata may change until the stream ends; without this entry the lease would be released on another counter: remove skip_if_absent, here and at the start")
		}
	}
}

// checkLeaseOfOtherRule reports a policy that releases a lease of a limit that its actions do not match.
func (k *checker) checkLeaseOfOtherRule(f *filter, domain string, p *policy) {
	_, key := p.hitsKey()
	for _, l := range k.set.Limits {
		if p.readsReply(f) && l.Rule.Domain() == domain && l.Policy.UsesLeases() && l.Name == key {
			k.report(Leases, rules.Error, p.node.At("hits_addend", "format").Pos(), "the lease %q belongs to %s at %v, which these actions do not match: use the actions of the start", key, l.Rule.Path(), l.Pos)
		}
	}
}

// checkSharedLeases checks that no two filters of a chain acquire leases of the same name on a route: the later reply
// would overwrite the earlier lease.
func (k *checker) checkSharedLeases(f *filter, elements []leasePolicy, acquired map[string]*filter) {
	for _, e := range elements {
		for _, name := range e.names {
			at := f.namespace() + ":" + name
			if first := acquired[at]; first == nil {
				acquired[at] = f
			} else if first != f {
				k.report(Leases, rules.Error, e.node.Pos(), "the filter at %v acquires a lease %q on this route, too, and the lease of this filter overwrites it, so the first one is never released: give the limits different names, or one filter a metadata_namespace",
					first.node.Pos(), name)
			}
		}
	}
}
