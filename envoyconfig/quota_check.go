package envoyconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

func quote(s string) string { return strconv.Quote(rules.Shorten(s)) }

// quotaTrap is a part of a bucket's settings that does another thing in Envoy 1.40 than it says.
type quotaTrap struct {
	path     string // by its fields
	matches  func(at *tree.Node) bool
	severity rules.Severity
	message  string
}

const (
	noAssignment = "no_assignment_behavior.fallback_rate_limit"
	expired      = "expired_assignment_behavior"
	notKnown     = "Envoy 1.40 does not know this strategy, and lets every request pass: write "
)

var quotaTraps = []quotaTrap{
	{
		noAssignment + ".token_bucket", (*tree.Node).Exists, rules.Error,
		"Envoy 1.40 dies at the second request of a bucket (segmentation fault): write blanket_rule: ALLOW_ALL, or DENY_ALL",
	},
	{noAssignment + ".requests_per_time_unit", (*tree.Node).Exists, rules.Error, notKnown + "blanket_rule: ALLOW_ALL, or DENY_ALL"},
	{expired + ".fallback_rate_limit.requests_per_time_unit", (*tree.Node).Exists, rules.Error, notKnown + "a token_bucket, or blanket_rule"},
	{
		expired + ".fallback_rate_limit.token_bucket.fill_interval", isBelowASecond, rules.Error,
		"of less than a second Envoy 1.40 makes a bucket that lets every request pass: write 1s or more, and as much more tokens_per_fill",
	},
	{
		expired + ".reuse_last_assignment", (*tree.Node).Exists, rules.Error,
		"Envoy 1.40 does not do it: when an assignment has expired, no_assignment_behavior acts at once; write fallback_rate_limit",
	},
	{
		expired, lacksTimeout, rules.Error,
		"without expired_assignment_behavior_timeout of a second or more it never acts, but no_assignment_behavior at once: add expired_assignment_behavior_timeout: 86400s",
	},
	{"reporting_interval", func(at *tree.Node) bool { return seconds(at) != 5*time.Second }, rules.Warning, "Envoy 1.40 reports every 5 s whatever this says: write 5s"},
}

// seconds is a duration of whole and parts of seconds, 0 if there is none.
func seconds(at *tree.Node) time.Duration {
	d, err := time.ParseDuration(at.Text)
	if err != nil {
		return 0
	}
	return d
}

func isBelowASecond(at *tree.Node) bool { return at.Exists() && seconds(at) < time.Second }

func lacksTimeout(at *tree.Node) bool {
	return at.Field("fallback_rate_limit").Exists() && seconds(at.Field("expired_assignment_behavior_timeout")) < time.Second
}

// quotaSource says what an id gets of an input of a tree of matchers. Others are no inputs.
var quotaInputs = map[string]bool{ // whether there is a value before a request is answered
	api.HeaderInput: true, api.QueryInput: true, api.AddressInput: true, api.DirectInput: true,
	"envoy.type.matcher.v3.HttpRequestTrailerMatchInput": false, "envoy.type.matcher.v3.HttpResponseHeaderMatchInput": false,
	"envoy.type.matcher.v3.HttpResponseTrailerMatchInput": false, "envoy.type.matcher.v3.HttpResponseLocalReplyMatchInput": false,
	"envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput": false, "envoy.type.matcher.v3.HttpResponseStatusCodeClassMatchInput": false,
	"xds.type.matcher.v3.HttpAttributesCelMatchInput": false, // it is no text
	networkInput + "DestinationIPInput":               true, networkInput + "DestinationPortInput": true, networkInput + "SourcePortInput": true,
	networkInput + "SourceTypeInput": true, networkInput + "ServerNameInput": true, networkInput + "FilterStateInput": true,
	networkInput + "DynamicMetadataInput": true, networkInput + "NetworkNamespaceInput": true,
	"envoy.extensions.matching.common_inputs.ssl.v3.UriSanInput": true, "envoy.extensions.matching.common_inputs.ssl.v3.DnsSanInput": true,
	"envoy.extensions.matching.common_inputs.ssl.v3.SubjectInput":                   true,
	"envoy.extensions.matching.common_inputs.environment_variable.v3.Config":        true,
	"envoy.extensions.matching.http.dynamic_modules.v3.HttpDynamicModuleMatchInput": false, "envoy.extensions.matching.http.dynamic_modules.v3.DynamicModuleDataInput": true,
}

const networkInput = "envoy.extensions.matching.common_inputs.network.v3."

// checkQuotaFilter looks at a filter of the rate limit quota service.
func (k *checker) checkQuotaFilter(m *manager, f *filter) {
	domain := f.domain()
	k.checkDomain(domain, f.config.Field("domain"))
	k.fragmentDomains[domain] = k.fragmentDomains[domain] || m.fragments
	k.quotaDomains[domain] = true
	k.sentSome[domain] = k.sentSome[domain] || !m.fragments // of parts, the filter of the rate limit service may be elsewhere
	if name := f.config.At("rlqs_server", "envoy_grpc", "cluster_name"); name.Exists() && len(k.config.clusters) > 0 {
		k.findServiceCluster(name)
	}
	for _, field := range []string{"filter_enabled", "filter_enforced"} {
		if at := f.config.Field(field); at.Exists() {
			k.report(Quota, rules.Error, at.Pos(), "%s: Envoy 1.40 does not look at it: the filter acts on all requests, and denies; leave it out. For a trial use shadow_mode in the rules", field)
		}
	}
	all := buckets(f.config.Field("bucket_matchers"), nil)
	for i := range all {
		k.checkBucket(domain, &all[i])
	}
	if len(all) == 0 && f.config.Exists() {
		at := f.config.Field("bucket_matchers")
		if !at.Exists() {
			at = f.node
		}
		k.report(NeverAsked, rules.Error, at.Pos(), "bucket_matchers leads to no bucket, so that every request passes: add an action, for all requests below on_no_match")
	}
}

// checkBucket looks at what leads to a bucket.
func (k *checker) checkBucket(domain string, b *bucket) {
	if !b.isBucket {
		k.report(NeverAsked, rules.Error, b.settings.Pos(), "the action is no %s, so that it leads to no bucket", api.QuotaBucket)
		return
	}
	if b.keepMatching.Exists() {
		k.report(Quota, rules.Error, b.keepMatching.Pos(), "keep_matching: Envoy 1.40 denies by the bucket nevertheless, where it should only report it: leave it out. For a trial use shadow_mode in the rules")
	}
	for _, trap := range quotaTraps {
		if at := b.settings.At(strings.Split(trap.path, ".")...); at.Exists() && trap.matches(at) {
			k.report(Quota, trap.severity, at.Pos(), "%s: %s", trap.path, trap.message)
		}
	}
	entries, wrong, at := b.idEntries()
	if wrong != "" {
		k.report(Unmatched, rules.Error, at.Pos(), "%s", wrong)
	}
	for entry := range b.settings.At("bucket_id_builder", "bucket_id_builder").Fields() {
		k.checkIDEntry(b, entry)
	}
	if wrong == "" && slices.Contains(k.set.Domains(), domain) {
		k.checkBucketRules(domain, idForms(entries), at)
	}
}

// checkIDEntry looks at where an entry of an id gets its value.
func (k *checker) checkIDEntry(b *bucket, entry *tree.Node) {
	input := entry.Field("custom_value")
	typeName, name := inputSource(input)
	has, known := quotaInputs[typeName]
	at := input.Field("typed_config")
	client := map[string]string{api.HeaderInput: "header", api.QueryInput: "query parameter"}[typeName]
	switch {
	case !at.Exists():
	case !known && k.config.release > 40:
		k.report(Unknown, rules.Note, at.Pos(), "custom_value of %s: whether it is an input of requests is not known", quote(typeName))
	case !known:
		k.report(Quota, rules.Error, at.Pos(), "custom_value of %s: it is no input of requests, and Envoy 1.40 dies at the first request: write %s with a header_name, or string_value", quote(typeName), api.HeaderInput)
	case !has:
		k.report(Quota, rules.Error, at.Pos(), "custom_value of %s: it has no text when a request comes, so that every request passes, and Envoy reports none", quote(typeName))
	case client != "" && name == "":
		k.report(Quota, rules.Error, at.Pos(), "custom_value of %s: it names no %s, so that every request passes, and Envoy reports none", quote(typeName), client)
	case client != "" && !b.isGuarded(input):
		k.report(Quota, rules.Warning, at.Pos(), "custom_value of %s: clients choose it. Without it a request passes, and Envoy does not report it; each other value makes a bucket, one that is empty, long or no text "+
			"such that nobody can assign it anything: have a matcher take only values such as safe_regex %s, and give all others one bucket in on_no_match", name, assignable)
	}
}

// checkBucketRules holds that a rule with quota matches ids of a form.
func (k *checker) checkBucketRules(domain string, forms []descriptors.Form, at *tree.Node) {
	reach := k.set.Reach(domain, forms)
	var with, without []*descriptors.Rule
	for _, r := range reach.Rules {
		if r.Divided() == nil {
			without = append(without, r)
			continue
		}
		with = append(with, r)
		k.reachedRules[r] = true
		if _, ok := k.buckets[r]; !ok {
			k.buckets[r] = at
		}
	}
	id := formsText(forms)
	switch {
	case reach.Reason != "":
		more := ""
		if order := reordered(forms, func(other []descriptors.Form) bool {
			reach := k.set.Reach(domain, other)
			return reach.Reason == ""
		}); order != nil {
			more = "; the rules have these entries in the order " + formsText(order) + ": the entry " + quotaOrder + " says the order"
		}
		k.report(Unmatched, rules.Error, at.Pos(), "no rule of domain %s can match a bucket with the id %s, so that it gets no assignment: %s%s", quote(domain), id, reach.Reason, more)
	case len(with) == 0 && len(without) > 0:
		k.report(Unmatched, rules.Error, at.Pos(), "a bucket with the id %s leads to %s at %v, which has no quota, so that it gets no assignment: add quota to its rate_limit, or send it to the rate limit service",
			id, without[0].Path(), without[0].Pos())
	case len(with) == 0:
		k.report(Unmatched, rules.Error, at.Pos(), "a bucket with the id %s leads to no limit, so that it gets no assignment, and does for ever what no_assignment_behavior says: add a rule with quota, or no bucket", id)
	case len(without) > 0:
		k.report(Unmatched, rules.Warning, at.Pos(), "a bucket with the id %s can lead to %s at %v, which has no quota, so that it gets no assignment then: add quota to its rate_limit, or keep its values from this bucket",
			id, without[0].Path(), without[0].Pos())
	}
}

// ruleCall is an element of rate_limits that can lead to a rule with quota, and whether it can lead to others.
type ruleCall struct {
	at     *tree.Node
	others bool
}

// checkQuotaRules holds that a quota filter has a bucket for each rule with quota, and that none of them is asked for, too.
func (k *checker) checkQuotaRules() {
	for _, l := range k.set.Limits {
		r := l.Rule
		if r.Divided() == nil {
			continue
		}
		at, asked := k.buckets[r], k.calledFor[r]
		switch {
		case at != nil && asked.at != nil:
			severity := rules.Error
			if asked.others {
				severity = rules.Warning
			}
			k.report(Quota, severity, asked.at.Pos(), "this asks the rate limit service for %s, which Envoys divide (bucket at %v): each counts by itself, so that together they let pass more than the limit: leave this element out, or the bucket",
				r.Path(), at.Pos())
		case at == nil && ((k.sentSome[r.Domain()] || k.quotaDomains[r.Domain()]) && !k.sentUnknown[r.Domain()]):
			more := ""
			if asked.at != nil {
				more = fmt.Sprintf("; the rate limit service is asked for it, at %v, and counts beside what other Envoys divide", asked.at.Pos())
			}
			k.report(Unsent, rules.Warning, r.Pos(), "%s has quota, but no bucket of a quota filter has an id that it can match%s: sluice envoy snippet --rlqs prints one", r.Path(), more)
		}
	}
}

// checkQuotaOverrides holds that no route has a configuration of its own for a quota filter.
func (k *checker) checkQuotaOverrides() {
	for _, at := range k.config.overrides {
		k.report(Quota, rules.Error, at.Pos(), "the quota filter takes no configuration for a route, and Envoy 1.40 refuses to start with one: remove it; buckets for routes are a matter of bucket_matchers, say by :path. "+
			"To turn the filter off for a route, write %s with disabled: true", api.FilterConfig)
	}
}
