package descriptors

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// compileWith compiles the documents in text with the documents in defaults.
func compileWith(t *testing.T, text, defaults string) (*Set, rules.Diagnostics) {
	t.Helper()
	opt := Options{MergeDomains: true}
	configs, found := rulefile.Parse("rules.yaml", []byte(text))
	if defaults != "" {
		var ds rules.Diagnostics
		opt.Defaults, ds = rulefile.ParseDefaults("defaults.yaml", []byte(defaults))
		found = append(found, ds...)
	}
	return Build(configs, found, []string{"rules.yaml", "defaults.yaml"}, opt)
}

// hourly returns a rule file with one hourly limit.
func hourly(requests int) string {
	return fmt.Sprintf("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: hour, requests_per_unit: %d}\n", requests)
}

func lines(ds rules.Diagnostics) []string {
	var all []string
	for _, d := range ds {
		all = append(all, d.String())
	}
	return all
}

func TestDefaultsApplyToAbsentFields(t *testing.T) {
	const rule = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: minute, requests_per_unit: 60, name: n}}\n"
	const most = "domain: d\ndefaults:\n" +
		"- {path: [{key: a}], rate_limit: {algorithm: token_bucket, burst: 1}}\n" +
		"- {name: n, rate_limit: {algorithm: token_bucket, burst: 2}}\n" +
		"- rate_limit: {algorithm: token_bucket, burst: 3}\n"
	every := strings.NewReplacer("domain: d", `domain: "*"`, "burst: 1", "burst: 4", "burst: 2", "burst: 5", "burst: 3", "burst: 6").Replace(most)
	without := func(text string, lines ...string) string {
		for _, l := range lines {
			text = strings.Replace(text, "- "+l+"\n", "", 1)
		}
		return text
	}
	const (
		path1 = "{path: [{key: a}], rate_limit: {algorithm: token_bucket, burst: 1}}"
		name2 = "{name: n, rate_limit: {algorithm: token_bucket, burst: 2}}"
		path4 = "{path: [{key: a}], rate_limit: {algorithm: token_bucket, burst: 4}}"
		name5 = "{name: n, rate_limit: {algorithm: token_bucket, burst: 5}}"
	)
	limit := func(fields string) string {
		return "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: minute, requests_per_unit: 60, " + fields + "}\n"
	}
	ring := "domain: \"*\"\ndefaults: [{rate_limit: {algorithm: sliding_window}}]"
	const plain = "d.a: unit=MINUTE requests_per_unit=60, shadow_mode: false, quota_mode: false"
	shadow := strings.Replace(plain, "shadow_mode: false", "shadow_mode: true", 1)
	const bucket = plain + ", algorithm: token_bucket, burst: "
	for _, tt := range []struct{ name, rules, defaults, want string }{
		{"none", rule, "", plain},
		{"no items", rule, "domain: d\ndefaults:", plain},
		{"a path has precedence", rule, most + "---\n" + every, bucket + "1"},
		{"a path for all domains precedes a name", rule, without(most, path1) + "---\n" + every, bucket + "4"},
		{"a name precedes all rules", rule, without(most, path1) + "---\n" + without(every, path4), bucket + "2"},
		{"a name for all domains precedes all rules", rule, without(most, path1, name2) + "---\n" + without(every, path4), bucket + "5"},
		{"all rules of the domain precede all rules of all domains", rule, without(most, path1, name2) + "---\n" + without(every, path4, name5), bucket + "3"},
		{"all rules of all domains", rule, without(every, path4, name5), bucket + "6"},
		{
			"all fields", rule, `{domain: d, defaults: [{rate_limit: {algorithm: leaky_bucket, slack: 0, max_wait: 50ms, max_waiting: 7, count_refused: true, unit_multiplier: 2}}]}`,
			plain + ", unit_multiplier: 2, algorithm: leaky_bucket, slack: 0, max_wait: 50ms, max_waiting: 7, count_refused: true",
		},
		{"sub_windows", rule, "{domain: d, defaults: [{rate_limit: {algorithm: sliding_window, sub_windows: 3}}]}", plain + ", algorithm: sliding_window, sub_windows: 3"},
		{"only count_refused", rule, "{domain: d, defaults: [{rate_limit: {count_refused: false}}]}", plain + ", count_refused: false"},
		{"blocks", rule, "{domain: d, defaults: [{rate_limit: {blocks: off}}]}", plain + ", blocks: off"},
		{"the rule sets blocks", limit("blocks: auto"), "{domain: d, defaults: [{rate_limit: {blocks: off}}]}", plain},
		{"unit", rule, "{domain: d, defaults: [{name: n, rate_limit: {unit: MONTH, calendar: true, anchor_day: 15}}]}", strings.Replace(plain, "MINUTE", "MONTH", 1) + ", calendar: true, timezone: UTC, anchor_day: 15"},
		{"the rule has another field than unit", limit("blocks: off"), "{domain: d, defaults: [{path: [{key: a}], rate_limit: {unit: day}}]}", plain + ", blocks: off"},
		{"values", rule, "{domain: d, defaults: [{name: n, values: [x, y]}]}", strings.Replace(plain, "d.a", "d.a_x,y", 1)},
		{"cidr and prefix", rule, "{domain: d, defaults: [{path: [{key: a}], cidr: [10.0.0.0/8], prefix: {v4: 24}}]}", strings.Replace(plain, "d.a", "d.a_10.0.0.0/8", 1) + ", prefix: { v4: 24, v6: 128 }"},
		{"the rule sets cidr", "{domain: d, descriptors: [{key: a, cidr: [10.0.0.0/8], rate_limit: {unit: minute, requests_per_unit: 60, name: n}}]}", "{domain: d, defaults: [{name: n, prefix: {v4: 24}}]}", strings.Replace(plain, "d.a", "d.a_10.0.0.0/8", 1)},
		{"below a level with values of defaults", "{domain: d, descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 2}}]}]}", "{domain: d, defaults: [{path: [{key: a}], values: [x]}, {path: [{key: a}, {key: b}], rate_limit: {unit: week}}]}", "d.a_x: unit=DAY requests_per_unit=1, shadow_mode: false, quota_mode: false\nd.a_x.b: unit=WEEK requests_per_unit=2, shadow_mode: false, quota_mode: false"},
		{"exempt adds to the rules and all domains", "exempt: [{key: k, value: r}]\n" + rule, "{domain: d, exempt: [{key: k, value: d}]}\n---\n{domain: '*', exempt: [{key: k, values: [e]}]}", plain + ", exempt: [k=r, k=d, k=e]"},
		{"penalty", rule, "{domain: d, defaults: [{rate_limit: {penalty: [2m, 5m]}}]}", plain + ", penalty: [2m, 5m]"},
		{"reserve", rule, "{domain: d, defaults: [{rate_limit: {reserve: {amount: 20}}}]}", plain + ", reserve: { amount: 20, ttl: 1m0s, unsettled: keep }"},
		{"shadow_mode", rule, "{domain: d, defaults: [{shadow_mode: true}]}", shadow},
		{"fields of the rule and the limit", rule, "{domain: d, defaults: [{shadow_mode: true, rate_limit: {algorithm: sliding_log}}]}", shadow + ", algorithm: sliding_log"},
		{"false for a path", rule, "{domain: d, defaults: [{shadow_mode: true}, {path: [{key: a}], shadow_mode: false}]}", plain},
		{"the rule sets shadow_mode: false", "domain: d\ndescriptors: [{key: a, shadow_mode: false, rate_limit: {unit: minute, requests_per_unit: 60}}]", "{domain: d, defaults: [{shadow_mode: true}]}", plain},
		{"the rule sets shadow_mode: true", "domain: d\ndescriptors: [{key: a, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 60}}]", "{domain: d, defaults: [{shadow_mode: false}]}", shadow},
		{"the rule sets penalty", limit("penalty: [9m]"), ring, plain + ", penalty: [9m]"},
		{"the rule sets reserve", limit("name: n, reserve: {amount: 20}"), ring, plain + ", reserve: { amount: 20, ttl: 1m0s, unsettled: keep }"},
		{"a list with shadow_mode", "domain: d\ndescriptors: [{key: a, rate_limits: [{unit: minute, requests_per_unit: 60}]}]", "{domain: d, defaults: [{shadow_mode: true, rate_limit: {penalty: [2m]}}]}", shadow},
		{"the rule sets fixed_window", limit("algorithm: fixed_window"), ring, plain},
		{"the rule sets burst", limit("algorithm: token_bucket, burst: 9"), ring, bucket + "9"},
		{"the rule sets unit_multiplier", limit("unit_multiplier: 2"), ring, plain + ", unit_multiplier: 2"},
		{"the rule sets count_refused", limit("count_refused: false"), ring, plain + ", count_refused: false"},
		{
			"unlimited", "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true}}]", ring,
			"d.a: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, unlimited: true",
		},
		{"a list", "domain: d\ndescriptors: [{key: a, rate_limits: [{unit: minute, requests_per_unit: 60}]}]", ring, plain},
		{"fields of the domain", rule, "{domain: d, all_or_nothing: true, max_counters: 100}", plain + ", all_or_nothing: true, max_counters: 100"},
		{"fields of all domains", rule, "{domain: '*', all_or_nothing: true, max_counters: 100}", plain + ", all_or_nothing: true, max_counters: 100"},
		{"fields of the domain have precedence", rule, "{domain: '*', all_or_nothing: true, max_counters: 100}\n---\n{domain: d, all_or_nothing: false, max_counters: 200}", plain + ", max_counters: 200"},
		{"each field has its own precedence", rule, "{domain: '*', all_or_nothing: true, max_counters: 100}\n---\n{domain: d, max_counters: 200}", plain + ", all_or_nothing: true, max_counters: 200"},
		{"fields of rules have precedence", "all_or_nothing: false\nmax_counters: 50\n" + rule, "{domain: d, all_or_nothing: true, max_counters: 100}", plain + ", max_counters: 50"},
		{"all_or_nothing of the rules has precedence", "all_or_nothing: true\n" + rule, "{domain: d, all_or_nothing: false}", plain + ", all_or_nothing: true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, ds := compileWith(t, tt.rules, tt.defaults)
			if set == nil {
				t.Fatal(ds.Err())
			}
			var b strings.Builder
			must.OK(t, set.Dump(&b))
			if diff := cmp.Diff(tt.want+"\n", b.String()); diff != "" {
				t.Errorf("Dump (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaultsDiagnostics(t *testing.T) {
	const shop = `domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 60, name: per-user}
  - key: path
    value: /a
    descriptors:
      - key: method
        rate_limit: {unit: year, requests_per_unit: 1, name: rare}
  - {key: own, value: v, rate_limit: {unit: day, requests_per_unit: 5000,
     algorithm: token_bucket, name: own}}
  - key: many
    rate_limit: {unit: day, requests_per_unit: 5000}
  - {key: own*, rate_limit: {unit: day, requests_per_unit: 1, algorithm: fixed_window, name: own}}
`
	for _, tt := range []struct {
		name, defaults string
		want           []string
	}{
		{"nothing", "# later", []string{`defaults.yaml:1:1: error: no defaults in the file; it must have at least "domain"`}},
		{"no map", "[]", []string{`defaults.yaml:1:1: error: the file must be a map with "domain" and "defaults", not a list`}},
		{"no domain", "defaults: []", []string{`defaults.yaml:1:1: error: "domain" is missing or empty; every document of defaults names its domain, or "*" for all`}},
		{"a misspelt domain is not also missing", "domian: shop", []string{
			`defaults.yaml:1:1: error: unknown field "domian" at the top level of defaults; did you mean "domain"? (allowed: domain, all_or_nothing, max_counters, denied_response, exempt, defaults)`,
		}},
		{"rules", "domain: shop\ndescriptors: []\ntitle: x", []string{
			`defaults.yaml:2:1: error: domain "shop": "descriptors" is not allowed at the top level of defaults; it is for rules`,
			`defaults.yaml:3:1: error: domain "shop": unknown field "title" at the top level of defaults (allowed: domain, all_or_nothing, max_counters, denied_response, exempt, defaults)`,
		}},
		{"a domain twice", "domain: shop\n---\ndomain: '*'\n---\ndomain: shop", []string{
			`defaults.yaml:5:9: error: domain "shop": duplicate defaults for this domain, first on line 1; merge the two`,
		}},
		{"domain fields", "domain: shop\nall_or_nothing: 1\nmax_counters: 0", []string{
			`defaults.yaml:2:17: error: domain "shop": "all_or_nothing" must be true or false (or yes, no, on, off; without quotes), not 1`,
			`defaults.yaml:3:15: error: domain "shop": "max_counters" must be a whole number from 1 to 4294967295, not 0`,
		}},
		{"items", "domain: shop\ndefaults:\n- 5\n- name: ''\n- {path: [], rate_limit: {burst: 2}}\n- {nam: x}", []string{
			`defaults.yaml:3:3: error: domain "shop" > defaults[0]: an item of defaults must be a map with "rate_limit", not 5`,
			`defaults.yaml:4:3: error: domain "shop" > defaults[1]: "rate_limit" is missing; it has the fields to set`,
			`defaults.yaml:4:9: error: domain "shop" > defaults[1]: "name" is empty; set the name of the rules, or remove it for all rules`,
			`defaults.yaml:5:10: error: domain "shop" > defaults[2] > path: "path" must be a list of maps with "key" and "value", one for each level down to the rule, not an empty one`,
			`defaults.yaml:5:27: error: domain "shop" > defaults[2] > rate_limit: "burst" is not supported by algorithm fixed_window; it requires "algorithm: token_bucket"`,
			`defaults.yaml:6:3: error: domain "shop" > defaults[3]: "rate_limit" is missing; it has the fields to set`,
			`defaults.yaml:6:4: error: domain "shop" > defaults[3]: unknown field "nam" in an item of defaults; did you mean "name"? (allowed: name, path, rate_limit, denied_response, detailed_metric, shadow_mode, values, cidr, prefix)`,
		}},
		{"paths", "domain: shop\ndefaults:\n- path: [user, {kee: a}, {value: b}, {key: a, value: 1.5}]\n  name: x\n  rate_limit: {count_refused: true}", []string{
			`defaults.yaml:3:3: error: domain "shop" > defaults[0]: "path" and "name" exclude each other; a path selects a single rule`,
			`defaults.yaml:3:10: error: domain "shop" > defaults[0] > path[0]: an item of path must be a map with "key", not "user"`,
			`defaults.yaml:3:17: error: domain "shop" > defaults[0] > path[1]: unknown field "kee" in an item of path; did you mean "key"? (allowed: key, value)`,
			`defaults.yaml:3:26: error: domain "shop" > defaults[0] > path[2]: "key" is missing or empty; every level needs one`,
			`defaults.yaml:3:54: error: domain "shop" > defaults[0] > path[3]: "value" must be text, not the number 1.5; put it in quotes`,
		}},
		{"fields", "domain: shop\ndefaults:\n- rate_limit: {requests_per_unit: 1, algorithm: tokenbucket, bursts: 2}\n- {name: x, rate_limit: {}}\n- {name: y, rate_limit: {algorithm: sliding_window, sub_windows: 99, slack: 1}}", []string{
			`defaults.yaml:3:16: error: domain "shop" > defaults[0] > rate_limit: "requests_per_unit" is not allowed in rate_limit of defaults; it is for rules`,
			`defaults.yaml:3:49: error: domain "shop" > defaults[0] > rate_limit: unknown algorithm "tokenbucket"; did you mean "token_bucket"? (allowed: fixed_window, sliding_window, sliding_log, token_bucket, leaky_bucket, concurrency)`,
			`defaults.yaml:3:62: error: domain "shop" > defaults[0] > rate_limit: unknown field "bursts" in rate_limit of defaults; did you mean "burst"? (allowed: name, unit, reserve, penalty, unit_multiplier, algorithm, sub_windows, burst, slack, max_wait, max_waiting, count_refused, calendar, timezone, anchor_day, hidden, soft, notify_at, table, blocks)`,
			`defaults.yaml:4:25: error: domain "shop" > defaults[1] > rate_limit: "rate_limit" must be a map, such as { algorithm: sliding_window }, not an empty one`,
			`defaults.yaml:5:66: error: domain "shop" > defaults[2] > rate_limit: "sub_windows" must be a whole number from 1 to 60, not 99`,
			`defaults.yaml:5:70: error: domain "shop" > defaults[2] > rate_limit: "slack" is not supported by algorithm sliding_window; it requires "algorithm: leaky_bucket"`,
		}},
		{"two items for the same rules", "domain: shop\ndefaults:\n- rate_limit: {count_refused: true}\n- rate_limit: {count_refused: false}\n- {name: rare, rate_limit: {count_refused: false}}\n- {name: rare, rate_limit: {count_refused: false}}\n" +
			"- {path: [{key: user}], rate_limit: {count_refused: false}}\n- {path: [{key: user, value: ''}], rate_limit: {count_refused: false}}", []string{
			`defaults.yaml:4:3: error: domain "shop" > defaults[1]: duplicate item for these rules, first on line 3; only one can apply`,
			`defaults.yaml:6:3: error: domain "shop" > defaults[3]: duplicate item for these rules, first on line 5; only one can apply`,
			`defaults.yaml:8:3: error: domain "shop" > defaults[5]: duplicate item for these rules, first on line 7; only one can apply`,
		}},
		{"a number that one rule does not support", "domain: '*'\ndefaults:\n- {name: rare, rate_limit: {algorithm: token_bucket, burst: 40}}", []string{
			`defaults.yaml:3:3: error: domain "*" > defaults[0]: the rule domain "shop" > key "path" value "/a" > key "method" at rules.yaml:9:21 does not support these fields: ` +
				`"burst" is 40, which would take more than 36 years to fill at 1 in 1 year; it must be at most 36; change the fields, or add an item for this rule`,
		}},
		{"a number that several rules do not support", "domain: '*'\ndefaults:\n- rate_limit: {unit_multiplier: 100000000}", []string{
			`defaults.yaml:3:3: error: domain "*" > defaults[0]: the rule domain "shop" > key "user" at rules.yaml:4:17 does not support these fields: ` +
				`a window of 100000000 minutes is longer than 10 years; the maximum unit_multiplier of unit minute is 5256000; change the fields, or add an item for this rule`,
		}},
		{"a log with too many requests", "domain: shop\ndefaults:\n- {path: [{key: many}], rate_limit: {algorithm: sliding_log}}", []string{
			`defaults.yaml:3:3: error: domain "shop" > defaults[0]: the rule domain "shop" > key "many" at rules.yaml:13:17 does not support these fields: ` +
				`"requests_per_unit" under sliding_log must be at most 4096, not 5000, because the time of each hit is stored; sliding_window has no such bound; change the fields, or add an item for this rule`,
		}},
		{"a reservation that does not fit one rule", "domain: shop\ndefaults:\n- {name: per-user, rate_limit: {reserve: {amount: 100}}}\n- {path: [{key: many}], rate_limit: {reserve: {amount: 100}}}", []string{
			`defaults.yaml:3:3: error: domain "shop" > defaults[0]: the rule domain "shop" > key "user" at rules.yaml:4:17 does not support these fields: ` +
				`"reserve" of 100 exceeds the capacity of the limit, 60, so each request would need an empty counter; change the fields, or add an item for this rule`,
			`defaults.yaml:4:3: error: domain "shop" > defaults[1]: the rule domain "shop" > key "many" > rate_limit at rules.yaml:13:17 does not support these fields: ` +
				`"name" is missing: Envoy returns the lease that it finds under the limit's name in the dynamic metadata; add one, such as "name: streams"; change the fields, or add an item for this rule`,
		}},
		{"fields that exclude each other", "domain: shop\ndefaults:\n- rate_limit: {algorithm: leaky_bucket, penalty: [2m]}\n- {name: own, rate_limit: {penalty: [2m, 1m], reserve: {amount: 1}}}\n- {name: rare, detailed_metric: 1, shadow_mode: 'true'}", []string{
			`defaults.yaml:3:41: error: domain "shop" > defaults[0] > rate_limit: "penalty" is not supported by algorithm leaky_bucket; it requires "algorithm: fixed_window", "sliding_window", "sliding_log" or "token_bucket"`,
			`defaults.yaml:4:28: error: domain "shop" > defaults[1] > rate_limit: "penalty" is not supported with "reserve", where a denial may be due to reservations that are released later; remove one of them`,
			`defaults.yaml:4:42: error: domain "shop" > defaults[1] > rate_limit: "penalty" does not increase: 1m comes after 2m; each step must be longer than the one before, and the last repeats`,
			`defaults.yaml:5:33: error: domain "shop" > defaults[2]: "detailed_metric" must be true or false (or yes, no, on, off; without quotes), not 1`,
			`defaults.yaml:5:49: error: domain "shop" > defaults[2]: "shadow_mode" must be true or false (or yes, no, on, off; without quotes), not "true"`,
		}},
		{"for nobody", "domain: shop\ndefaults:\n- {name: per_user, rate_limit: {count_refused: false}}\n- {path: [{key: path, value: /a}, {key: methods}], rate_limit: {count_refused: false}}\n" +
			"- {name: own, rate_limit: {count_refused: false}}\n- {name: zzzzzzzzzzzzzzzz, rate_limit: {count_refused: true}}\n- {path: [{key: many}], rate_limit: {name: q}}\n- {name: q, shadow_mode: true}\n---\ndomain: shops", []string{
			`defaults.yaml:3:3: warning: unused-defaults: domain "shop" > defaults[0]: no rule has the name "per_user"; did you mean "per-user"?`,
			`defaults.yaml:4:3: warning: unused-defaults: domain "shop" > defaults[1]: no rule has the path "path=/a > methods"; did you mean "path=/a > method"?`,
			`defaults.yaml:5:3: warning: unused-defaults: domain "shop" > defaults[2]: these defaults apply to no rule: the rules with the name "own" are unlimited, lists, have fields of their own, or match an earlier item`,
			`defaults.yaml:6:3: warning: unused-defaults: domain "shop" > defaults[3]: no rule has the name "zzzzzzzzzzzzzzzz"`,
			`defaults.yaml:8:3: warning: unused-defaults: domain "shop" > defaults[5]: no rule has the name "q"`,
			`defaults.yaml:10:1: warning: unused-defaults: domain "shops": no rules for this domain, so its defaults have no effect; did you mean "shop"?`,
		}},
		{"unit, values, cidr and prefix", "domain: shop\nexempt: [{key: '*', value: x}]\ndefaults:\n- {values: [a], exempt: [], rate_limit: {unit: fortnight}}\n- rate_limit: {unit: day}\n- {name: own, values: [a], cidr: [10.0.0.1/8], prefix: {v4: 33}}", []string{
			`defaults.yaml:2:10: error: domain "shop" > exempt[0]: "key" requires a key without "*", not "*"; add an item for each key`,
			`defaults.yaml:4:3: error: domain "shop" > defaults[0]: "unit", "values", "cidr" and "prefix" are not for all rules, so the item needs a "path" or a "name"`,
			`defaults.yaml:4:17: error: domain "shop" > defaults[0]: "exempt" is not allowed in an item of defaults; it belongs at the top level of defaults`,
			`defaults.yaml:4:48: error: domain "shop" > defaults[0] > rate_limit: unknown unit "fortnight" (allowed: second, minute, hour, day, week, month, year)`,
			`defaults.yaml:5:3: error: domain "shop" > defaults[1]: "unit", "values", "cidr" and "prefix" are not for all rules, so the item needs a "path" or a "name"`,
			`defaults.yaml:6:28: error: domain "shop" > defaults[2]: "values" and "cidr" exclude each other; remove one of them`,
			`defaults.yaml:6:35: error: domain "shop" > defaults[2] > cidr: "10.0.0.1/8" has bits outside its length; write 10.0.0.0/8 for the network, or 10.0.0.1 for the address`,
			`defaults.yaml:6:48: error: domain "shop" > defaults[2]: "prefix" is for "cidr" or for the key alone, not for "values"; remove one of them`,
			`defaults.yaml:6:61: error: domain "shop" > defaults[2] > prefix: "v4" must be a whole number from 1 to 32, not 33`,
		}},
		{"values for a level with a value", "domain: shop\ndefaults:\n- {name: own, values: [a]}\n- {path: [{key: many}], values: [a, a]}\n- {name: per-user, rate_limit: {unit: year, unit_multiplier: 11}}", []string{
			`defaults.yaml:3:3: error: domain "shop" > defaults[0]: the rule domain "shop" > key "own" value "v" at rules.yaml:10:38 does not support these fields: "values", "cidr" and "prefix" require a key without "value" and "*"; change the fields, or add an item for this rule`,
			`defaults.yaml:4:37: error: domain "shop" > key "many" value "a,a": duplicate value "a" on this level; first at rules.yaml:12:5, defaults from defaults.yaml:4:3`,
			`defaults.yaml:5:3: error: domain "shop" > defaults[2]: the rule domain "shop" > key "user" at rules.yaml:4:17 does not support these fields: a window of 11 years is longer than 10 years; the maximum unit_multiplier of unit year is 10; change the fields, or add an item for this rule`,
		}},
		{"fields without effect", "domain: shop\nexempt: [{key: k, value: v, unit: day}]\ndefaults:\n- rate_limit: {algorithm: leaky_bucket, max_waiting: 3}", []string{
			`defaults.yaml:2:29: warning: no-effect: domain "shop" > exempt[0]: "unit" has no effect in an item of exempt; it belongs in rate_limit`,
			`defaults.yaml:4:41: warning: no-effect: domain "shop" > defaults[0] > rate_limit: "max_waiting" has no effect without "max_wait"`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, ds := compileWith(t, shop, tt.defaults)
			if diff := cmp.Diff(tt.want, lines(ds)); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
			if (set == nil) != ds.HasErrors() {
				t.Errorf("set is %v with the diagnostics %v", set, ds)
			}
		})
	}
}

// TestDefaultsShareExemptions checks that domains share the ranges of all domains, and that a domain
// with further items has all of them.
func TestDefaultsShareExemptions(t *testing.T) {
	set, ds := compileWith(t, "{domain: a, exempt: [{key: k, value: a}]}\n---\ndomain: b\n---\ndomain: c\n---\ndomain: e",
		"{domain: '*', exempt: [{key: k, values: [x, x]}]}\n---\n{domain: e, exempt: [{key: k, value: e}]}")
	if set == nil || len(ds) != 3 { // for a, e, and one for the others
		t.Fatal(ds)
	}
	if b, c := set.domains["b"], set.domains["c"]; b.exempt != c.exempt || b.exemptDigest != c.exemptDigest {
		t.Error("two domains have the same items twice")
	}
	for domain, want := range map[string]string{"a": "k=a, k=x,x", "b": "k=x,x", "c": "k=x,x", "e": "k=e, k=x,x"} {
		if got := set.domains[domain].exemptField(); got != ", exempt: ["+want+"]" {
			t.Errorf("domain %s has%s, want %s", domain, got, want)
		}
	}
	set, _ = compileWith(t, "domain: a\n---\ndomain: b", "{domain: a, exempt: [{key: k, value: a}]}\n---\n{domain: b, exempt: [{key: k, value: b}]}")
	if got := set.domains["b"].exemptField(); got != ", exempt: [k=b]" {
		t.Errorf("domain b has%s, want only its own items", got)
	}
}

// TestDefaultsBeforeRules checks that defaults cause no warnings while there are no rules, as at a
// start over xDS.
func TestDefaultsBeforeRules(t *testing.T) {
	d, ds := rulefile.ParseDefaults("defaults.yaml", []byte("domain: d\ndefaults: [{name: n, rate_limit: {algorithm: sliding_log}}]"))
	if len(ds) > 0 {
		t.Fatal(ds)
	}
	if _, ds := Compile(nil, Options{Defaults: d}); len(ds) > 0 {
		t.Error(ds)
	}
}

// TestDefaultsDoNotModifyConfigs compiles the same configurations with different defaults, as for
// rules over xDS.
func TestDefaultsDoNotModifyConfigs(t *testing.T) {
	configs, ds := rulefile.Parse("rules.yaml", []byte(hourly(100)))
	if len(ds) > 0 {
		t.Fatal(ds)
	}
	hashes := map[string]bool{}
	for _, tt := range []struct{ defaults, want string }{
		{"", "100/hour"},
		{"{domain: d, defaults: [{rate_limit: {algorithm: sliding_log}}]}", "100/hour, algorithm: sliding_log"},
		{"{domain: d, defaults: [{rate_limit: {algorithm: token_bucket}}]}", "100/hour, algorithm: token_bucket, burst: 100"},
		{"domain: d", "100/hour"},
	} {
		opt := Options{}
		if tt.defaults != "" {
			opt.Defaults, _ = rulefile.ParseDefaults("defaults.yaml", []byte(tt.defaults))
		}
		set, ds := Compile(configs, opt)
		if set == nil || len(ds) > 0 {
			t.Fatal(ds)
		}
		if got := set.Limits[0].String(); got != tt.want {
			t.Errorf("with %q the limit is %s, want %s", tt.defaults, got, tt.want)
		}
		if want := (rules.Pos{File: "defaults.yaml", Line: 1, Col: 24}); tt.want != "100/hour" && set.Limits[0].Defaults.Pos != want {
			t.Errorf("the position of the defaults is %v, want %v", set.Limits[0].Defaults.Pos, want)
		}
		hashes[set.Hash] = true
	}
	if len(hashes) != 3 {
		t.Errorf("hashes are %v, want one without defaults and one for each file of defaults with fields", hashes)
	}
}

// TestDefaultsSkipUnlimitedRules has an unlimited rule with a unit, which xDS can send.
func TestDefaultsSkipUnlimitedRules(t *testing.T) {
	d, _ := rulefile.ParseDefaults("defaults.yaml", []byte("{domain: d, defaults: [{rate_limit: {algorithm: sliding_log}}]}"))
	set, ds := Compile([]rules.Config{{Domain: "d", Descriptors: []rules.Descriptor{{
		Key: "k", RateLimits: []rules.Limit{{Unlimited: true, Unit: rules.Hour, UnitMultiplier: 1}},
	}}}}, Options{Defaults: d})
	if set == nil || len(ds) > 0 || set.Limits[0].Defaults != nil {
		t.Errorf("Compile = %v, %v, want an unlimited rule without defaults", set, ds)
	}
}

func TestExplainNamesDefaults(t *testing.T) {
	set, ds := compileWith(t, hourly(3), "domain: d\ndefaults:\n- rate_limit: {algorithm: token_bucket}")
	if set == nil {
		t.Fatal(ds)
	}
	explain := func() string { return set.Explain("d", []Entry{{[]byte("k"), []byte("v")}}).String() }
	text := explain()
	if want := "limit: 3/hour, algorithm: token_bucket, burst: 3, at rules.yaml:4:17, defaults from defaults.yaml:3:3\n"; !strings.HasSuffix(text, want) {
		t.Errorf("Explain = %q, want it to end with %q", text, want)
	}
	set, _ = compileWith(t, hourly(3), "domain: d\ndefaults:\n- {shadow_mode: true, detailed_metric: true}")
	text = explain()
	if want := "rule: k at rules.yaml:3:5, shadow_mode: true, detailed_metric: true, defaults from defaults.yaml:3:3\nlimit: 3/hour, algorithm: fixed_window, count_refused: true, at rules.yaml:4:17\n"; !strings.HasSuffix(text, want) {
		t.Errorf("Explain = %q, want it to end with %q", text, want)
	}
}

// TestDefaultPenaltyAndQuotaMode checks a rule with quota_mode, which does not support penalty.
func TestDefaultPenaltyAndQuotaMode(t *testing.T) {
	_, ds := compileWith(t, "{domain: d, descriptors: [{key: k, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}]}", "{domain: d, defaults: [{rate_limit: {penalty: [2m]}}]}")
	want := `defaults.yaml:1:24: error: domain "d" > defaults[0]: the rule domain "d" > key "k" at rules.yaml:1:66 does not support these fields: "penalty" is not supported with "quota_mode: true"`
	if all := lines(ds); len(all) != 1 || !strings.HasPrefix(all[0], want) {
		t.Errorf("diagnostics are %q, want %q", all, want)
	}
}

// TestDefaultsEqualFieldsInRules checks that fields from defaults have the same effect as in a
// rule, including the counter and the default of count_refused.
func TestDefaultsEqualFieldsInRules(t *testing.T) {
	for _, fields := range []string{"algorithm: token_bucket, burst: 20", "algorithm: sliding_log", "unit_multiplier: 3", "count_refused: true", "penalty: [2m]", "name: n, reserve: {amount: 5}"} {
		for _, allOrNothing := range []string{"true", "false"} {
			head := "domain: d\nall_or_nothing: " + allOrNothing + "\ndescriptors:\n- {key: a, rate_limit: {unit: minute, requests_per_unit: 60"
			inRule, ds := compileWith(t, head+", "+fields+"}}", "")
			inDefaults, ds2 := compileWith(t, head+"}}", "{domain: d, defaults: [{path: [{key: a}], rate_limit: {"+fields+"}}]}")
			if inRule == nil || inDefaults == nil {
				t.Fatal(ds, ds2)
			}
			w, g := inRule.Limits[0], inDefaults.Limits[0]
			if w.String() != g.String() || w.kind != g.kind || w.Policy.CountRefused != g.Policy.CountRefused {
				t.Errorf("%s: from defaults %v, counter %#x; from the rule %v, counter %#x", fields, g, g.kind, w, w.kind)
			}
		}
	}
}
