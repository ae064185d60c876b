package envoyconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// quotaOrder is the key of the bucket ID entry that lists the other keys in the order of the descriptor.
const quotaOrder = "sluice"

// assignable is the regular expression for client values in bucket IDs. Other values, such as binary ones, may result
// in IDs to which no service can assign a quota. Requests with such an ID would not be limited.
const assignable = `"[!-~]{1,200}"`

// QuotaSnippet returns the configuration of a rate limit quota filter and of the service's cluster. The filter has a
// bucket for each rule of the domain with quota. QuotaSnippet returns an error if no rule has quota.
func QuotaSnippet(set *descriptors.Set, domain string, target Target) (string, error) {
	var buckets, rest strings.Builder
	byName, order := quotaBuckets(set, domain)
	if len(order) == 0 {
		return "", fmt.Errorf("no rule of domain %q has quota, so there is no limit to divide among Envoys; omit --rlqs for a snippet that calls the rate limit service", rules.Shorten(domain))
	}
	text := newSnippetTemplate()
	for _, key := range order {
		b := byName[key]
		buckets.WriteString(b.comments)
		if b.wrong != "" {
			fmt.Fprintf(&buckets, "# This rule gets no bucket: %s\n", b.wrong)
			continue
		}
		buckets.WriteString(b.matcher(text, false))
		if slices.ContainsFunc(b.parts, quotaPart.fromHeader) {
			rest.WriteString("# Requests without the header, or with another value, share a bucket:\n" +
				b.matcher(text, true))
		}
	}
	return renderSnippet("", target,
		map[string]any{"Domain": strconv.Quote(domain), "Buckets": buckets.String() + rest.String()}), nil
}

// quotaBucket is a bucket of the snippet. Rules with the same bucket ID share it.
type quotaBucket struct {
	comments string // one line for each rule
	parts    []quotaPart
	wrong    string // the reason why the filter cannot have the bucket
}

// quotaPart is an entry of a bucket's ID.
type quotaPart struct {
	key, value string // value is empty if it comes from the request
	isPattern  bool   // the rule has a value, but the key's values come from the request
}

func (p quotaPart) fromHeader() bool { return p.value == "" && p.key != "remote_address" }

// quotaBuckets returns the buckets of a domain by name, and the names in the order of the rules.
func quotaBuckets(set *descriptors.Set, domain string) (byName map[string]*quotaBucket, order []string) {
	divided := domainRules(set, domain)
	divided = slices.DeleteFunc(divided, func(r *descriptors.Rule) bool { return r.Divided() == nil })
	open := openKeys(divided)
	byName = map[string]*quotaBucket{}
	for _, r := range divided {
		b := quotaBucket{}
		var keys []string
		for depth, l := range r.Levels() {
			p := quotaPart{key: l.Key, value: l.Value}
			if open[keyLevel{depth, l.Key}] {
				p.value = ""
				p.isPattern = l.Value != ""
			}
			switch {
			case slices.Contains(keys, l.Key) || l.Key == quotaOrder:
				b.wrong = fmt.Sprintf("an id can have the key %q only once", l.Key)
			case strings.ContainsAny(l.Key, ",*"):
				b.wrong = fmt.Sprintf("the entry %q of an id cannot name the key %q", quotaOrder, l.Key)
			}
			keys = append(keys, l.Key)
			b.parts = append(b.parts, p)
		}
		name := fmt.Sprintf("%#v %s", b.parts, b.wrong)
		if byName[name] == nil {
			byName[name] = &b
			order = append(order, name)
		}
		byName[name].comments += fmt.Sprintf("# %s at %v\n", rules.Shorten(r.Path()), r.Pos())
	}
	return byName, order
}

// matcher returns an element of the filter's list of matchers. If fallback is true, the element is for requests whose
// headers do not contain valid values for the bucket's ID.
func (b *quotaBucket) matcher(text textFunc, fallback bool) string {
	var keys, id, predicates []string
	for _, p := range b.parts {
		keys = append(keys, p.key)
		value := "string_value: " + strconv.Quote(p.value)
		header := headerInput(p.key, placeholder)
		switch {
		case p.fromHeader() && fallback && p.isPattern:
			value = "string_value: " + placeholder
		case p.fromHeader() && fallback:
			value = "string_value: other"
		case p.fromHeader():
			value = "custom_value: " + header
			predicates = append(predicates, "{ single_predicate: { input: "+header+
				", value_match: { safe_regex: { google_re2: {}, regex: "+assignable+" } } } }")
		case p.value == "":
			value = `custom_value: { name: address, typed_config: { "@type": type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.SourceIPInput } }`
		}
		id = append(id, strconv.Quote(p.key)+": { "+value+" }")
	}
	if fallback || len(predicates) < len(b.parts) {
		predicates = append(predicates, "{ single_predicate: { input: "+headerInput("path", `":path"`)+
			", value_match: { prefix: "+placeholder+" } } }")
	}
	return text("bucket", map[string]any{"Keys": strings.Join(keys, ","), "ID": id, "Predicates": predicates})
}

// headerInput returns a matcher input for a request header.
func headerInput(name, header string) string {
	return `{ name: ` + strconv.Quote(name) + `, typed_config: { "@type": type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput, header_name: ` + header + ` } }`
}
