package api

// The messages of the filter that limits by shares of a quota service, and of the trees that lead requests to buckets.
const (
	RateLimitQuota = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig"
	// QuotaBucket is an action of its tree, QuotaOverride a configuration for a route.
	QuotaBucket   = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings"
	QuotaOverride = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaOverride"

	// Matcher is a tree, and Predicate a condition: they have others of their kind below them.
	Matcher   = "xds.type.matcher.v3.Matcher"
	Predicate = Matcher + ".MatcherList.Predicate"

	// HeaderInput and QueryInput are what trees look at, and what ids are made of. They are of the client's making.
	HeaderInput = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
	QueryInput  = "envoy.type.matcher.v3.HttpRequestQueryParamMatchInput"
	// AddressInput is the client's address, and DirectInput that of who connects.
	AddressInput = "envoy.extensions.matching.common_inputs.network.v3.SourceIPInput"
	DirectInput  = "envoy.extensions.matching.common_inputs.network.v3.DirectSourceIPInput"
)

var (
	quotaWant = all(message{
		"rlqs_server": grpcServiceWant, "domain": aText, "bucket_matchers": named(Matcher), "filter_enabled": fractionWant, "filter_enforced": fractionWant,
		"request_headers_to_add_when_not_enforced": listOf(anObject),
	}).needing("rlqs_server", "domain", "bucket_matchers")
	quotaBucketWant = all(message{
		"bucket_id_builder": all(message{
			"bucket_id_builder": mapOf(all(message{"string_value": aText, "custom_value": extensionWant}).withOne("string_value", "custom_value")),
		}).needing("bucket_id_builder"),
		"reporting_interval":     reportingWant,
		"deny_response_settings": having(message{"http_status": statusWant}),
		"no_assignment_behavior": all(message{"fallback_rate_limit": strategyWant}).needing("fallback_rate_limit"),
		"expired_assignment_behavior": all(message{
			"expired_assignment_behavior_timeout": aDuration, "fallback_rate_limit": strategyWant, "reuse_last_assignment": all(nil),
		}).withOne("fallback_rate_limit", "reuse_last_assignment"),
	}).needing("reporting_interval")
	strategyWant = all(message{
		"blanket_rule": oneOfNames("ALLOW_ALL", "DENY_ALL"),
		"requests_per_time_unit": all(message{
			"requests_per_time_unit": aNumber, "time_unit": anEnum,
		}),
		"token_bucket": all(message{"max_tokens": aNumber, "tokens_per_fill": aNumber, "fill_interval": aDuration}).needing("max_tokens", "fill_interval"),
	}).withOne("blanket_rule", "requests_per_time_unit", "token_bucket")
	extensionWant = all(extension).needing("name", "typed_config")

	matcherWant = all(message{
		"matcher_list": all(message{
			"matchers": listOf(all(message{"predicate": named(Predicate), "on_match": onMatchWant}).needing("predicate", "on_match")),
		}).needing("matchers"),
		"matcher_tree": all(message{
			"input": extensionWant, "exact_match_map": matchMapWant, "prefix_match_map": matchMapWant, "custom_match": extensionWant,
		}).needing("input").withOne("exact_match_map", "prefix_match_map", "custom_match"),
		"on_no_match": onMatchWant,
	}).withMostOne("matcher_list", "matcher_tree")
	matchMapWant  = all(message{"map": mapOf(onMatchWant)}).needing("map")
	onMatchWant   = all(message{"matcher": named(Matcher), "action": extensionWant, "keep_matching": aBoolean}).withOne("matcher", "action")
	predicateWant = all(message{
		"single_predicate": all(message{"input": extensionWant, "value_match": xdsStringWant, "custom_match": extensionWant}).needing("input").withOne("value_match", "custom_match"),
		"or_matcher":       predicatesWant, "and_matcher": predicatesWant, "not_matcher": named(Predicate),
	}).withOne("single_predicate", "or_matcher", "and_matcher", "not_matcher")
	predicatesWant = all(message{"predicate": listOf(named(Predicate))}).needing("predicate")
	xdsStringWant  = all(message{
		"exact": aText, "prefix": aText, "suffix": aText, "contains": aText, "safe_regex": regexWant, "custom": anObject, "ignore_case": aBoolean,
	}).withOne("exact", "prefix", "suffix", "contains", "safe_regex", "custom")
)
