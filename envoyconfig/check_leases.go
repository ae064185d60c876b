package envoyconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// A rule that gives leases wants two elements of rate_limits with the same actions: one that Envoy sends when a
// request begins, and one for the end of its stream, whose hits are the lease out of the dynamic metadata.

// filterNamespace is where Envoy puts the metadata of the replies to a filter that does not say where.
const filterNamespace = "envoy.filters.http.ratelimit"

// namespace is where Envoy puts the metadata of the replies to f.
func (f *filter) namespace() string {
	if own := f.config.Field("metadata_namespace").Text; own != "" {
		return own
	}
	return filterNamespace
}

// leasePolicy is an element of rate_limits that a filter sends on a route to rules that give leases.
type leasePolicy struct {
	*policy
	own   bool
	names []string // of the leases
	rules []*descriptors.Rule
	// releases is which of names it brings back, "" for none.
	releases string
}

// command is a format string of one command with its argument.
var command = regexp.MustCompile(`^%([A-Z_]+)\((.*)\)%$`)

// commandOf returns the command that makes an element's hits, and its argument.
func commandOf(p *policy) (name, argument string) {
	if m := command.FindStringSubmatch(p.node.At("hits_addend", "format").Text); m != nil {
		return m[1], m[2]
	}
	return "", ""
}

// leaseKey returns the last part of the dynamic metadata that an element's hits are: the name of a lease, or not.
func leaseKey(p *policy) string {
	name, argument := commandOf(p)
	if name != "DYNAMIC_METADATA" {
		return ""
	}
	return secondLeaseSuffix.ReplaceAllString(argument[strings.LastIndexByte(argument, ':')+1:], "")
}

// isLease reports whether an element's hits come from the metadata of a rate limit filter.
func isLease(p *policy) bool {
	name, argument := commandOf(p)
	return name == "DYNAMIC_METADATA" && strings.HasPrefix(argument, filterNamespace+":")
}

// clientCommands are the commands whose values the client chooses.
var clientCommands = []string{"REQ", "REQ_WITHOUT_QUERY", "REQUEST_HEADER", "QUERY_PARAM", "QUERY_PARAMS", "PATH"}

// checkLeases holds that what a filter has requests hold on a route is given back, once and by Envoy alone. It returns the
// elements that rules with leases are for.
func (k *checker) checkLeases(f *filter, domain string, candidates []candidate) []leasePolicy {
	var all []leasePolicy
	for _, p := range candidates {
		reach := k.reachOf[sentPolicy{domain, p.node}]
		if reach == nil {
			continue
		}
		e := leasePolicy{policy: p.policy, own: p.own}
		for _, r := range reach.Rules {
			if names := leaseNames(r); len(names) > 0 {
				e.names, e.rules = append(e.names, names...), append(e.rules, r)
			}
		}
		if len(e.rules) > 0 {
			all = append(all, e)
		} else {
			k.checkForeignLease(f, domain, p)
		}
	}
	for i := range all {
		all[i].releases = k.checkReleasedLease(f, &all[i])
	}
	for i := range all {
		if e := &all[i]; e.streamDone {
			k.checkEnd(e, all)
		} else {
			k.checkStart(f, e, all)
		}
	}
	return all
}

// leaseNames returns the names of the limits of r that give leases.
func leaseNames(r *descriptors.Rule) (names []string) {
	for _, l := range slices.Concat(r.Limits, r.Candidates()) {
		if !r.Unlimited && l.Policy.UsesLeases() {
			names = append(names, l.Name)
		}
	}
	return names
}

// hasSettlement reports whether what a request costs can be charged to a rule at its end.
func hasSettlement(r *descriptors.Rule) bool {
	return slices.ContainsFunc(slices.Concat(r.Limits, r.Candidates()), (*descriptors.Limit).HasWindow)
}

// checkReleasedLease returns the lease that an element's hits are. It looks for what they must not be.
func (k *checker) checkReleasedLease(f *filter, e *leasePolicy) string {
	hits := e.node.Field("hits_addend")
	format := hits.Field("format")
	fail := func(at *tree.Node, text string, args ...any) { k.report(Leases, rules.Error, at.Pos(), text, args...) }
	name, argument := commandOf(e.policy)
	want := fmt.Sprintf(`format: "%%DYNAMIC_METADATA(%s:%s)%%"`, f.namespace(), e.names[0])
	onlyPlaces := !slices.ContainsFunc(e.rules, hasSettlement)
	switch namespace, key, _ := strings.Cut(argument, ":"); {
	case slices.Contains(clientCommands, name):
		fail(format, "clients choose %s: with a number from %d on one can free what requests of others hold by %s; read %s", rules.Shorten(format.Text), descriptors.FirstLease, e.rules[0].Path(), want)
	case name == "DYNAMIC_METADATA" && !e.streamDone && (namespace == f.namespace() || slices.Contains(e.names, key)):
		fail(format, "at the start of a request there is no lease yet, so that Envoy sends nothing: add apply_on_stream_done: true to this element, and one without hits_addend for the start")
	case !e.streamDone:
	case name == "DYNAMIC_METADATA" && namespace == f.namespace() && slices.Contains(e.names, leaseLimit(key, e.names)):
		return leaseLimit(key, e.names)
	case name == "DYNAMIC_METADATA" && namespace == f.namespace():
		fail(format, "no limit that this element comes to has a lease %q: %s has %s%s", rules.Shorten(key), e.rules[0].Path(), strings.Join(e.names, ", "), rules.DidYouMean(rules.Nearest(key, e.names)))
	case name == "DYNAMIC_METADATA" && slices.Contains(e.names, leaseLimit(key, e.names)):
		fail(format, "the lease %q is in the metadata of the filter, %s, not in %s: read %s", key, f.namespace(), rules.Shorten(namespace), want)
		return leaseLimit(key, e.names)
	case onlyPlaces && format.Exists():
		fail(format, "%s is no lease of %s: at the end of a stream it would take a place that nobody gives back; did you mean %s?", rules.Shorten(format.Text), e.rules[0].Path(), want)
	case onlyPlaces && hits.Field("number").Uint(1) > 0 && !hits.Field("is_negative_hits").Bool(false):
		fail(e.node, "at the end of a stream this takes a place of %s that nobody gives back: set hits_addend: { %s, is_negative_hits: true }", e.rules[0].Path(), want)
	case strings.Contains(format.Text, "BYTES_"):
		k.report(Leases, rules.Warning, format.Pos(), "%d bytes and more are taken for a lease by %s, and not charged: give bytes a rule without leases", descriptors.FirstLease, e.rules[0].Path())
	}
	return ""
}

// secondLeaseSuffix is the end of the name of a second lease of a limit in one request.
var secondLeaseSuffix = regexp.MustCompile(`\.[0-9]+$`)

// leaseLimit returns the name of the limit whose lease has the name.
func leaseLimit(name string, of []string) string {
	if slices.Contains(of, name) {
		return name
	}
	return secondLeaseSuffix.ReplaceAllString(name, "")
}

// checkStart holds that what a request takes at its start is brought back at its end.
func (k *checker) checkStart(f *filter, e *leasePolicy, all []leasePolicy) {
	if name, argument := commandOf(e.policy); name == "DYNAMIC_METADATA" && strings.HasPrefix(argument, f.namespace()+":") {
		return // Envoy sends nothing, and brings has said so
	}
	hits := &tree.Missing
	if e.own {
		hits = e.node.Field("hits_addend")
	}
	n := hits.Field("number").Uint(1)
	for _, r := range e.rules {
		for _, l := range slices.Concat(r.Limits, r.Candidates()) {
			switch {
			case !l.Policy.UsesLeases(), n == 0 && !l.HasWindow(): // a look takes no place
			case n > 1 && l.HasWindow():
				k.report(Leases, rules.Error, hits.Pos(), "%d hits are taken for a cost by %s at %v, which reserves for requests of 1 hit or 0: leave out hits_addend at the start", n, r.Path(), l.Pos)
			case !slices.ContainsFunc(all, func(o leasePolicy) bool { return o.releases == l.Name && sameActions(o.policy, e.policy) }):
				k.reportUnreleased(f, e, l, all)
			case l.HasWindow() && !slices.ContainsFunc(all, func(o leasePolicy) bool { return o.streamDone && o.releases == "" && sameActions(o.policy, e.policy) }):
				k.report(Leases, rules.Warning, e.node.Pos(), "no element says at the end of the stream what a request that %s at %v reserves for has cost: add one with the same actions, the cost as hits_addend, and apply_on_stream_done: true", r.Path(), l.Pos)
			}
		}
	}
	for i := range all {
		if o := &all[i]; o.policy == e.policy {
			break
		} else if !o.streamDone && slices.Equal(o.rules, e.rules) {
			k.report(Leases, rules.Warning, e.node.Pos(), "the element at %v takes a lease of %s, too; where Envoy sends both, the second is told as %q, which the end of this one must read: better give them rules of their own",
				o.node.Pos(), e.rules[0].Path(), e.names[0]+".2")
		}
	}
}

// reportUnreleased reports that a lease of l which e takes is not brought back.
func (k *checker) reportUnreleased(f *filter, e *leasePolicy, l *descriptors.Limit, all []leasePolicy) {
	if i := slices.IndexFunc(all, func(o leasePolicy) bool { return o.releases == l.Name }); i >= 0 {
		k.report(Leases, rules.Error, all[i].node.Pos(), "the actions differ from those of the start at %v, so that the lease %q comes to another counter: write the same, in the same order", e.node.Pos(), l.Name)
		return
	}
	severity, until := rules.Error, "is never given back"
	if l.HasWindow() {
		until = "is never settled"
	}
	if l.Candidate {
		severity = rules.Warning
	}
	k.report(Leases, severity, e.node.Pos(), "what a request holds by %s at %v %s: add an element with the same actions, "+
		`hits_addend: { format: "%%DYNAMIC_METADATA(%s:%s)%%", is_negative_hits: true }, and apply_on_stream_done: true`, l.Rule.Path(), l.Pos, until, f.namespace(), l.Name)
}

// checkEnd holds that an element which brings a lease back has one that takes it, and that it is always sent if that was.
func (k *checker) checkEnd(e *leasePolicy, all []leasePolicy) {
	if e.releases == "" {
		return
	}
	starts := func(o leasePolicy) bool { return !o.streamDone && slices.Contains(o.names, e.releases) }
	if !slices.ContainsFunc(all, starts) {
		k.report(Leases, rules.Error, e.node.Pos(), "nothing that Envoy sends at the start takes the lease %q which this gives back: add an element with the same actions, without hits_addend and apply_on_stream_done", e.releases)
	}
	for _, a := range e.actions {
		if at := a.node.Field("skip_if_absent"); (a.kind == "metadata" || a.kind == "dynamic_metadata") && at.Bool(false) {
			k.report(Leases, rules.Error, at.Pos(), "metadata may change until the stream ends; without this entry the lease would be given back to another counter: leave out skip_if_absent, here and at the start")
		}
	}
}

// checkForeignLease looks at an element that brings a lease of limits that it does not come to.
func (k *checker) checkForeignLease(f *filter, domain string, p candidate) {
	format := p.node.At("hits_addend", "format")
	name, argument := commandOf(p.policy)
	if name != "DYNAMIC_METADATA" {
		return
	}
	namespace, key, _ := strings.Cut(argument, ":")
	for _, l := range k.set.Limits {
		if namespace == f.namespace() && l.Rule.Domain() == domain && l.Policy.UsesLeases() && l.Name == key {
			k.report(Leases, rules.Error, format.Pos(), "the lease %q is of %s at %v, which these actions do not come to: write those of the start", key, l.Rule.Path(), l.Pos)
		}
	}
}

// checkSharedLeases holds that no two filters of a chain get leases under one name on a route: the later reply overwrites the
// lease of the earlier one.
func (k *checker) checkSharedLeases(f *filter, elements []leasePolicy, taken map[string]*filter) {
	for _, e := range elements {
		for _, name := range e.names {
			at := f.namespace() + ":" + name
			if first := taken[at]; first == nil {
				taken[at] = f
			} else if first != f {
				k.report(Leases, rules.Error, e.node.Pos(), "the filter at %v gets a lease %q on this route, too, and this one's overwrites it, so that it is never given back: give the limits different names, or one filter a metadata_namespace",
					first.node.Pos(), name)
			}
		}
	}
}

// sameActions reports whether two elements make the same descriptors.
func sameActions(a, b *policy) bool {
	return equalNodes(a.node.Field("actions"), b.node.Field("actions"))
}

// equalNodes reports whether two values are equal, wherever they stand. Fields are in any order.
func equalNodes(a, b *tree.Node) bool {
	if a.Kind != b.Kind || a.Text != b.Text || len(a.Nodes) != len(b.Nodes) {
		return false
	}
	for i := range a.Nodes {
		other := &b.Nodes[i]
		if a.Kind == tree.Object {
			other = b.Field(tree.SnakeCase(a.Nodes[i].Name))
		}
		if !equalNodes(&a.Nodes[i], other) {
			return false
		}
	}
	return true
}
