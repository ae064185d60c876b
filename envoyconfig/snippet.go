package envoyconfig

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig/api"
)

// placeholder marks values of a snippet that the operator must fill in. Check reports those that remain.
const placeholder = "CHANGE-ME"

//go:embed snippet.tmpl
var snippetText string

// Snippet returns Envoy configuration that calls the service for the rules of a domain: a filter, a cluster, and a list
// of actions for each rule. With istio the configuration is wrapped in EnvoyFilters. The domain must be configured.
func Snippet(set *descriptors.Set, domain string, istio bool) string {
	// The filter must wait longer than any rule delays responses.
	timeout := 250 * time.Millisecond
	for _, l := range set.Limits {
		if l.Rule.Domain() == domain && !l.Candidate {
			timeout = max(timeout, l.Policy.MaxWait+250*time.Millisecond)
		}
	}
	return renderSnippet(istio, map[string]any{
		"RateLimit": api.RateLimit, "RateLimitPerRoute": api.RateLimitPerRoute, "Domain": strconv.Quote(domain),
		"Timeout": strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64), "Lists": snippetLists(set, domain),
		"Leases": slices.ContainsFunc(set.Limits, func(l *descriptors.Limit) bool { return l.Rule.Domain() == domain && l.Policy.UsesLeases() }),
	})
}

// renderSnippet executes the template.
func renderSnippet(istio bool, data map[string]any) string {
	t := template.New("")
	text := func(name string, data any) string {
		var b strings.Builder
		_ = t.ExecuteTemplate(&b, name, data) // memory only; tests execute every branch
		return b.String()
	}
	template.Must(t.Funcs(template.FuncMap{"text": text, "indent": indentText, "item": listItem}).Parse(snippetText))
	data["Placeholder"] = placeholder
	if istio {
		return text("istio", data)
	}
	return text("envoy", data)
}

// snippetRules returns the rules of a domain.
func snippetRules(set *descriptors.Set, domain string) (all []*descriptors.Rule) {
	for _, l := range set.Limits {
		if r := l.Rule; r.Domain() == domain && (len(all) == 0 || all[len(all)-1] != r) {
			all = append(all, r)
		}
	}
	return all
}

// keyLevel is the depth of a key in the rules.
type keyLevel struct {
	depth int
	key   string
}

// openKeys returns the keys for which some rule accepts any value. Their values come from the request, even if
// other rules require a fixed one.
func openKeys(all []*descriptors.Rule) map[keyLevel]bool {
	open := map[keyLevel]bool{}
	for _, r := range all {
		for depth, l := range r.Levels() {
			if l.Value == "" || strings.Contains(l.Value, "*") {
				open[keyLevel{depth, l.Key}] = true
			}
		}
	}
	return open
}

// snippetLists returns the lists of actions that the rules need, without duplicates. Rules with quota get none: the
// counter of a call and the quota of the Envoys together would allow twice the limit.
func snippetLists(set *descriptors.Set, domain string) string {
	ofDomain := snippetRules(set, domain)
	open := openKeys(ofDomain)
	var order []string
	comments, releases := map[string][]string{}, map[string]string{}
	var divided strings.Builder
	for _, r := range ofDomain {
		if r.Divided() != nil {
			fmt.Fprintf(&divided, "# %s at %v has quota: sluice envoy snippet --rlqs prints the filter for it\n", rules.Shorten(r.Path()), r.Pos())
			continue
		}
		var b strings.Builder
		for depth, l := range r.Levels() {
			b.WriteString("    - " + snippetAction(l, open[keyLevel{depth, l.Key}]) + "\n")
		}
		if comments[b.String()] == nil {
			order = append(order, b.String())
		}
		comments[b.String()] = append(comments[b.String()], fmt.Sprintf("# %s at %v\n", rules.Shorten(r.Path()), r.Pos()))
		releases[b.String()] += snippetReleases(r, b.String())
	}
	var b strings.Builder
	for _, actions := range order {
		b.WriteString(strings.Join(comments[actions], "") + "- actions:\n" + actions + releases[actions])
	}
	return b.String() + divided.String()
}

// snippetReleases returns the policies that release the leases of a rule at the end of a stream, and that report the
// cost of the request.
func snippetReleases(r *descriptors.Rule, actions string) string {
	var b strings.Builder
	write := func(comment, format, more string) {
		fmt.Fprintf(&b, "# %s\n- actions:\n%s  hits_addend: { format: %q%s }\n  apply_on_stream_done: true\n", comment, actions, format, more)
	}
	cost := ""
	for _, l := range slices.Concat(r.Limits, r.Candidates()) {
		if r.Unlimited || !l.Policy.UsesLeases() {
			continue
		}
		write("Releases the lease at the end of the stream:", fmt.Sprintf("%%DYNAMIC_METADATA(%s:%s)%%", filterNamespace, l.Name), ", is_negative_hits: true")
		if l.HasWindow() {
			cost = "%DYNAMIC_METADATA(" + placeholder + ":" + placeholder + ")%"
		}
	}
	if cost != "" {
		write("Reports the cost of the request, which an earlier filter writes to the metadata:", cost, "")
	}
	return b.String()
}

// snippetAction returns an action whose entry a level of the rules matches. open is true if its value comes from the
// request.
func snippetAction(l rules.Level, open bool) string {
	value := strconv.Quote(l.Value)
	if open {
		value = placeholder
	}
	switch l.Key {
	case "remote_address", "masked_remote_address", "source_cluster", "destination_cluster":
		return l.Key + ": {}"
	case "generic_key":
		return "generic_key: { descriptor_value: " + value + " }"
	case "header_match":
		return "header_value_match: { descriptor_value: " + value + ", headers: [{ name: " + placeholder + ", string_match: { exact: " + placeholder + " } }] }"
	case "query_match":
		return "query_parameter_value_match: { descriptor_value: " + value + ", query_parameters: [{ name: " + placeholder + ", string_match: { exact: " + placeholder + " } }] }"
	}
	key := strconv.Quote(l.Key)
	if strings.Contains(l.Key, "*") {
		key = placeholder
	}
	fromHeader := "request_headers: { header_name: " + placeholder + ", descriptor_key: " + key + " }"
	if open {
		return fromHeader
	}
	return fromHeader + " # or where only some routes send it: generic_key: { descriptor_key: " + key + ", descriptor_value: " + value + " }"
}

// indentText indents every line.
func indentText(by int, s string) string {
	space := strings.Repeat(" ", by)
	return space + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n"+space) + "\n"
}

// listItem makes an object an element of a list.
func listItem(by int, s string) string { return indentText(by, "- "+indentText(2, s)[2:]) }
