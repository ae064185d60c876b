package envoyconfig

import (
	"fmt"
	"regexp"
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

// quotaTrap is a bucket setting that Envoy 1.40 does not implement as documented.
type quotaTrap struct {
	path     string // field names joined by dots
	matches  func(at *tree.Node) bool
	severity rules.Severity
	message  string
}

const (
	noAssignment      = "no_assignment_behavior.fallback_rate_limit"
	expiredAssignment = "expired_assignment_behavior"
	notImplemented    = "Envoy 1.40 does not implement this strategy and allows every request: use "
)

var quotaTraps = []quotaTrap{
	{
		noAssignment + ".token_bucket", (*tree.Node).Exists, rules.Error,
		"Envoy 1.40 crashes at the second request of a bucket (segmentation fault): write blanket_rule: ALLOW_ALL, or DENY_ALL",
	},
	{noAssignment + ".requests_per_time_unit", (*tree.Node).Exists, rules.Error, notImplemented + "blanket_rule: ALLOW_ALL, or DENY_ALL"},
	{expiredAssignment + ".fallback_rate_limit.requests_per_time_unit", (*tree.Node).Exists, rules.Error, notImplemented + "a token_bucket, or blanket_rule"},
	{
		expiredAssignment + ".fallback_rate_limit.token_bucket.fill_interval", isBelowASecond, rules.Error,
		"below one second Envoy 1.40 allows every request: set 1s or more, and increase tokens_per_fill accordingly",
	},
	{
		expiredAssignment + ".reuse_last_assignment", (*tree.Node).Exists, rules.Error,
		"Envoy 1.40 ignores it and applies no_assignment_behavior when an assignment expires: use fallback_rate_limit",
	},
	{
		expiredAssignment, lacksTimeout, rules.Error,
		"without an expired_assignment_behavior_timeout of at least one second it has no effect, and no_assignment_behavior applies at once: add expired_assignment_behavior_timeout: 86400s",
	},
	{"reporting_interval", func(at *tree.Node) bool { return at.Duration() != 5*time.Second }, rules.Warning, "Envoy 1.40 always reports every 5 s: set 5s"},
}

func isBelowASecond(at *tree.Node) bool { return at.Duration() < time.Second }

func lacksTimeout(at *tree.Node) bool {
	return at.Field("fallback_rate_limit").Exists() &&
		at.Field("expired_assignment_behavior_timeout").Duration() < time.Second
}

// knownInput matches the types of all matcher inputs that Envoy supports, and textlessInput the types that have no text
// value when a request arrives.
var (
	textlessInput = regexp.MustCompile(`Response|Trailer|Cel|HttpDynamicModuleMatchInput`)
	knownInput    = regexp.MustCompile(`^envoy\.(type\.matcher\.v3\.Http|extensions\.matching\.).*|^xds\.type\.matcher\.v3\.HttpAttributesCelMatchInput$`)
)

// checkQuotaFilter checks a filter of the rate limit quota service.
func (k *checker) checkQuotaFilter(m *manager, f *filter) {
	domain := f.domain()
	k.checkDomain(domain, f.config.Field("domain"))
	k.fragmentDomains[domain] = k.fragmentDomains[domain] || m.fragments
	k.quotaDomains[domain] = true
	k.sentDomains[domain] = k.sentDomains[domain] || !m.fragments // with fragments, another file may send them
	if name := f.config.At("rlqs_server", "envoy_grpc", "cluster_name"); name.Exists() && len(k.config.clusters) > 0 {
		k.requireServiceCluster(name)
	}
	for _, field := range []string{"filter_enabled", "filter_enforced"} {
		if at := f.config.Field(field); at.Exists() {
			k.report(Quota, rules.Error, at.Pos(), "%s: Envoy 1.40 ignores it, and the filter limits all requests: remove it; for a trial, use shadow_mode in the rules", field)
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
		k.report(NoEffect, rules.Error, at.Pos(), "bucket_matchers never selects a bucket, so every request is allowed: add an action, such as one in on_no_match for all requests")
	}
}

// checkBucket checks the settings and the ID of a bucket.
func (k *checker) checkBucket(domain string, b *bucket) {
	if !b.isBucket {
		k.report(NoEffect, rules.Error, b.settings.Pos(), "the action is not %s, so it selects no bucket",
			api.QuotaBucket)
		return
	}
	if b.keepMatching.Exists() {
		k.report(Quota, rules.Error, b.keepMatching.Pos(), "keep_matching: Envoy 1.40 still denies requests by this bucket instead of only reporting them: remove it; for a trial, use shadow_mode in the rules")
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

// checkIDEntry checks the source of an ID entry's value.
func (k *checker) checkIDEntry(b *bucket, entry *tree.Node) {
	input := entry.Field("custom_value")
	typeName, name := inputSource(input)
	at := input.Field("typed_config")
	client := map[string]string{api.HeaderInput: "header", api.QueryInput: "query parameter"}[typeName]
	switch {
	case !at.Exists():
	case !knownInput.MatchString(typeName):
		k.report(Quota, rules.Error, at.Pos(), "custom_value of %s: it is not a request input, and Envoy 1.40 crashes at the first request: write %s with a header_name, or string_value", quote(typeName), api.HeaderInput)
	case textlessInput.MatchString(typeName):
		k.report(Quota, rules.Error, at.Pos(), "custom_value of %s: it has no text when a request arrives, so every request is allowed and none is reported", quote(typeName))
	case client != "" && name == "":
		k.report(Quota, rules.Error, at.Pos(), "custom_value of %s: it names no %s, so every request is allowed and none is reported", quote(typeName), client)
	case client != "" && !b.isGuarded(input):
		k.report(Quota, rules.Warning, at.Pos(), "custom_value of %s: clients control it. A request without it is allowed and not reported; every other value makes a bucket, which gets no assignment "+
			"if the value is empty, long or binary: match only values such as safe_regex %s, and use one bucket in on_no_match for all others", name, assignable)
	}
}

// checkBucketRules checks that a rule with quota matches the bucket IDs of the given form.
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
		k.report(Unmatched, rules.Error, at.Pos(), "no rule of domain %s can match the bucket id %s, so the bucket gets no assignment: %s", quote(domain), id, reach.Reason)
	case len(with) == 0 && len(without) > 0:
		k.report(Unmatched, rules.Error, at.Pos(), "the bucket id %s matches %s at %v, which has no quota, so the bucket gets no assignment: add quota to the rule's rate_limit, or use the rate limit filter instead",
			id, without[0].Path(), without[0].Pos())
	case len(with) == 0:
		k.report(Unmatched, rules.Error, at.Pos(), "the bucket id %s matches a rule without a limit, so the bucket gets no assignment, and no_assignment_behavior applies forever: add quota to the rule, or remove the bucket", id)
	case len(without) > 0:
		k.report(Unmatched, rules.Warning, at.Pos(), "the bucket id %s can match %s at %v, which has no quota; such a bucket gets no assignment: add quota to the rule's rate_limit, or exclude its values from this bucket",
			id, without[0].Path(), without[0].Pos())
	}
}

// ruleCall is a policy that can match a rule with quota. matchesOthers is true if it can also match rules without quota.
type ruleCall struct {
	at            *tree.Node
	matchesOthers bool
}

// checkQuotaRules checks that each rule with quota has a bucket in a quota filter, and that no policy calls
// the rate limit service for it.
func (k *checker) checkQuotaRules() {
	for _, r := range rulesOf(k.set) {
		if r.Divided() == nil {
			continue
		}
		at := k.buckets[r]
		call := k.calledFor[r]
		switch {
		case at != nil && call.at != nil:
			severity := rules.Error
			if call.matchesOthers {
				severity = rules.Warning
			}
			k.report(Quota, severity, call.at.Pos(), "this element calls the rate limit service for %s, whose limit is divided among Envoys (bucket at %v): both count separately, so together they allow more than the limit: remove this element or the bucket",
				r.Path(), at.Pos())
		case at == nil && ((k.sentDomains[r.Domain()] || k.quotaDomains[r.Domain()]) && !k.unknownDomains[r.Domain()]):
			more := ""
			if call.at != nil {
				more = fmt.Sprintf("; the element at %v calls the rate limit service for it, which counts separately from the Envoys' quotas", call.at.Pos())
			}
			k.report(Unsent, rules.Warning, r.Pos(), "%s has quota, but no bucket of a quota filter has an id that it can match%s: add one, as in examples/quota-service", r.Path(), more)
		}
	}
}
