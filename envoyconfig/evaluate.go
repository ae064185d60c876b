package envoyconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// evaluation is the static evaluation of a policy as one filter sends it: everything that does not depend on the
// request. Check, the statement and Calls use the same one.
type evaluation struct {
	filterPolicy

	// limiter is the filter, nil if it is unknown.
	limiter *filter
	entries []evaluatedEntry
	// never is the reason why Envoy never sends the descriptor; empty if it may send it.
	never string
	// conditions are the requests for which Envoy sends the descriptor, such as "with the header x-user"; none if it is
	// sent for all.
	conditions []string
	// disabled is the reason why the runtime disables the policy, or why that is unknown.
	disabled string
	hits     evaluatedHits
	// limit describes the metadata from which the policy's limit is read.
	limit metadataOrigin
	// faults are the problems of the policy.
	faults []fault
}

// evaluatedEntry describes the entries that an action makes.
type evaluatedEntry struct {
	form entryForm
	// source describes the value, such as <x-user header>, unless it is constant.
	source string
	// condition describes the requests with the entry; empty if all have it.
	condition string
	// never is the reason why no request has the entry.
	never string
	// origin describes the metadata that the action reads.
	origin metadataOrigin
}

// metadataOrigin describes who sets a value of the dynamic metadata: by is a description, or whyUnset the reason why no
// filter does.
type metadataOrigin struct {
	by, whyUnset string
	// only is the write of the value if only one sets it; nil if that is unknown.
	only *keyWrite
}

// fault is a problem of a policy.
type fault struct {
	code     Code
	severity rules.Severity
	at       *tree.Node
	text     string
}

// listKey identifies the evaluation of a list. values are the metadata and the match of the route if actions depend on it.
type listKey struct {
	limiter *filter
	list    *policyList
	own     bool
	values  uint64
}

// evaluateList returns the evaluation of the policies that a filter sends on a route. It is computed once for all
// routes on which it is equal.
func (m *manager) evaluateList(f *filter, l *policyList, own bool, h *virtualHost, r *route) []*evaluation {
	key := listKey{limiter: f, list: l, own: own}
	if l.readsRoute {
		key.values = r.node.Field("metadata").Hash() ^ r.node.Field("match").Hash()
	}
	if found, ok := m.evaluations.Load(key); ok {
		all, _ := found.([]*evaluation)
		return all
	}
	all := make([]*evaluation, len(l.policies))
	for i, p := range l.policies {
		all[i] = m.evaluate(f, filterPolicy{p, own}, h, r)
	}
	m.evaluations.Store(key, all)
	return all
}

// evaluate evaluates a policy of a route or of its virtual host. f is nil if the filter is unknown.
func (m *manager) evaluate(f *filter, p filterPolicy, h *virtualHost, r *route) *evaluation {
	e := &evaluation{filterPolicy: p, limiter: f, entries: make([]evaluatedEntry, len(p.actions))}
	if key := p.node.Field("disable_key"); key.Text != "" {
		why, never := m.runtime.disabled(elementEnabled(key.Text))
		e.disabled = why
		if never {
			e.fail(NoEffect, rules.Warning, key, "%s, so the descriptor is never sent", why)
			e.never = why
		} else if why != "" {
			e.conditions = append(e.conditions, strings.TrimPrefix(why, UnknownPrefix))
		}
	}
	for i, a := range p.actions {
		e.entries[i] = m.evaluateAction(f, p, a, h, r)
		e.addEntry(a, &e.entries[i])
		m.checkValue(e, i)
	}
	e.findContradictions()
	mayBePresent := func(s evaluatedEntry) bool { return s.never == "" || !s.form.anyValue }
	if e.never == "" && len(e.entries) > 0 && !slices.ContainsFunc(e.entries, mayBePresent) {
		e.never = e.entries[0].never // Envoy does not send an empty descriptor
	}
	e.hits = m.evaluateHits(e)
	if key := p.node.At("limit", "dynamic_metadata", "metadata_key"); key.Exists() {
		if e.limit = m.originOf(f, key, p.streamDone, false); e.limit.whyUnset != "" {
			e.fail(NoEffect, rules.Warning, key, "the limit is never sent: %s", e.limit.whyUnset)
		}
	}
	return e
}

// limitText describes the limit that the policy sends; empty if it sends none.
func (e *evaluation) limitText() string {
	o, isConstant := e.constantLimit()
	switch limit := e.node.Field("limit"); {
	case !limit.Exists() || e.limit.whyUnset != "", isConstant && o.Unit == 0:
		return ""
	case isConstant:
		return fmt.Sprintf(", with the limit %d/%v", o.RequestsPerUnit, rules.Unit(o.Unit))
	case limit.Field("dynamic_metadata").Exists():
		return ", with the limit in the metadata " +
			rules.Shorten(metadataName(limit.At("dynamic_metadata", "metadata_key")))
	default:
		return ", with the limit at " + limit.Pos().String()
	}
}

func (e *evaluation) fail(code Code, severity rules.Severity, at *tree.Node, format string, args ...any) {
	e.faults = append(e.faults, fault{code, severity, at, fmt.Sprintf(format, args...)})
}

// neverSend records that Envoy never sends the descriptor.
func (e *evaluation) neverSend(at *tree.Node, why string) {
	e.fail(NoEffect, rules.Error, at, "the descriptor is never sent: %s", why)
	if e.never == "" {
		e.never = why
	}
}

// addEntry combines an entry with the others: the descriptor is sent if it has all entries that are not optional.
func (e *evaluation) addEntry(a *action, entry *evaluatedEntry) {
	hasDefault := a.node.Field("default_value").Exists() && strings.HasSuffix(a.kind, "metadata")
	switch {
	case entry.never != "" && (entry.form.optional || hasDefault):
		e.fail(NoEffect, rules.Warning, a.node, "the entry never has a value from the %s: %s", a.sourceNoun(),
			entry.never)
	case entry.never != "":
		e.neverSend(a.node, entry.never)
	case entry.condition != "" && !entry.form.optional && !hasDefault &&
		!slices.Contains(e.conditions, entry.condition):
		e.conditions = append(e.conditions, entry.condition)
	}
}

// withHeader is the condition of a descriptor that needs a header.
func withHeader(name string) string { return "with the header " + rules.Shorten(name) }

func (a *action) sourceNoun() string {
	switch a.kind {
	case "request_headers":
		return "header"
	case "query_parameters":
		return "query"
	default:
		return "metadata"
	}
}

// forms returns the known parts of the entries. known is false if the key of an entry is unknown.
func (e *evaluation) forms() (forms []descriptors.Form, known bool) {
	known = true
	for i := range e.entries {
		s := e.entries[i].form
		forms = append(forms, descriptors.Form{
			Key: s.key, Value: s.value, AnyKey: s.anyKey, AnyValue: s.anyValue, Optional: s.optional,
		})
		known = known && !s.anyKey
	}
	return forms, known
}

// text formats the entries: user=<x-user header>, path=/search.
func (e *evaluation) text() string {
	texts := make([]string, len(e.entries))
	for i := range e.entries {
		s := &e.entries[i]
		key := rules.Shorten(s.form.key)
		value := rules.Shorten(s.form.value)
		if s.form.anyKey {
			key = "?"
		}
		if s.form.anyValue {
			value = "<" + rules.Shorten(s.source) + ">"
		}
		texts[i] = key + "=" + value
		if s.form.optional {
			texts[i] = "[" + texts[i] + "]"
		}
	}
	return strings.Join(texts, ", ")
}
