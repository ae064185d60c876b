package envoyconfig

import (
	_ "embed"
	"fmt"
	"regexp"
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

// SnippetOptions select what Snippet returns. The zero value is configuration for any Envoy.
type SnippetOptions struct {
	Target Target
	// LLM may be openai or anthropic: the rules count the tokens of this API's responses, which two more filters read.
	LLM string
	// Sources contains where the values of keys come from. The values of other keys are placeholders.
	Sources map[string]Source
}

// Snippet returns Envoy configuration that calls the service for the rules of a domain: a filter, a cluster, and a list
// of actions for each rule. The domain must be configured.
func Snippet(set *descriptors.Set, domain string, o SnippetOptions) string {
	// The filter must wait longer than any rule delays responses.
	timeout := 250 * time.Millisecond
	for _, l := range set.Limits {
		if l.Rule.Domain() == domain && !l.Candidate {
			timeout = max(timeout, l.Policy.MaxWait+250*time.Millisecond)
		}
	}
	hasLimit := func(is func(l *descriptors.Limit) bool) bool {
		return slices.ContainsFunc(set.Limits,
			func(l *descriptors.Limit) bool { return l.Rule.Domain() == domain && is(l) })
	}
	llm := llms[o.LLM]
	lists, values := snippetLists(set, domain, llm, o.Sources)
	return renderSnippet(o.Target, map[string]any{
		"RateLimit": api.RateLimit, "RateLimitPerRoute": api.RateLimitPerRoute, "Domain": strconv.Quote(domain),
		"Timeout": strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64), "Lists": lists,
		"PerRoute": llm != nil || hasLimit(func(l *descriptors.Limit) bool { return l.Policy.UsesLeases() }),
		"LLM":      llm, "Values": values, "Model": strings.Contains(lists, modelAction),
	})
}

// renderSnippet executes the template for a target.
func renderSnippet(target Target, data map[string]any) string {
	t := template.New("")
	text := func(name string, data any) string {
		var b strings.Builder
		_ = t.ExecuteTemplate(&b, name, data) // memory only; tests execute every branch
		return b.String()
	}
	template.Must(t.Funcs(template.FuncMap{"text": text, "indent": indentText, "item": listItem}).Parse(snippetText))
	data["Placeholder"] = placeholder
	data["Filters"] = []string{"filter"}
	if llm, _ := data["LLM"].(*llmAPI); llm != nil {
		data["Filters"] = []string{"json", "sse", "filter"}
	}
	if target == "" || target == EnvoyTarget {
		return text("envoy", data)
	}
	data["Proxies"] = proxiesOf[target]
	return text("istio", data)
}

func domainRules(set *descriptors.Set, domain string) []*descriptors.Rule {
	return slices.DeleteFunc(rulesOf(set), func(r *descriptors.Rule) bool { return r.Domain() != domain })
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

// snippetList is a list of actions and what the rules that need it require.
type snippetList struct {
	actions          string
	comments, leases []string // leases are the names of those that the rules grant
	reservations     []string // the names of leases that are reservations
	plain            bool     // whether a rule grants no leases
	unreserved       bool     // whether a limit grants no leases
}

// alternative matches the comment after an action with another one.
var alternative = regexp.MustCompile(` # or where .*`)

// snippetLists returns the lists of actions that the rules need, without duplicates. Rules with quota get none: the
// counter of a call and the quota of the Envoys together would allow twice the limit. values are those that the lists
// charge, for an llm.
func snippetLists(
	set *descriptors.Set, domain string, llm *llmAPI, sources map[string]Source,
) (text string, values []llmValue) {
	ofDomain := domainRules(set, domain)
	open := openKeys(ofDomain)
	byActions := map[string]*snippetList{}
	order := []*snippetList(nil)
	var b, divided strings.Builder
	for _, r := range ofDomain {
		if r.Divided() != nil {
			fmt.Fprintf(&divided, "# %s at %v has quota, which the quota filter uses\n",
				rules.Shorten(r.Path()), r.Pos())
			continue
		}
		var text strings.Builder
		for depth, l := range r.Levels() {
			action := snippetAction(l, open[keyLevel{depth, l.Key}], llm)
			if source, ok := sources[l.Key]; ok {
				action = source.action(l.Key)
			}
			text.WriteString("    - " + action + "\n")
		}
		// Lists that differ in comments only would charge a request several times.
		same := alternative.ReplaceAllString(text.String(), "")
		list := byActions[same]
		if list == nil {
			list = &snippetList{actions: text.String()}
			byActions[same] = list
			order = append(order, list)
		}
		list.add(r, llm)
	}
	values = llm.values(order)
	for _, l := range order {
		l.write(&b, llm, values)
	}
	return b.String() + divided.String(), values
}

// settles reports whether a rule reserves hits.
func (s *snippetList) settles() bool { return len(s.reservations) > 0 }

// add adds a rule that needs the list.
func (s *snippetList) add(r *descriptors.Rule, llm *llmAPI) {
	s.comments = append(s.comments, fmt.Sprintf("# %s at %v\n", rules.Shorten(r.Path()), r.Pos()))
	names := leaseNames(r)
	reserved := reservations(r)
	for _, l := range reserved {
		s.reservations = append(s.reservations, l.Name)
	}
	s.unreserved = s.unreserved || len(names) < len(limitsOf(r))
	if llm != nil && len(names) > 0 && len(reserved) == 0 && hasSettlement(r) {
		s.comments = append(s.comments,
			"# Tokens are not charged here: give the limit with concurrency a descriptor with a key of its own\n")
	}
	s.leases = append(s.leases, names...)
	s.plain = s.plain || len(names) == 0
}

// write writes the policies of the list: one for the start of a request, and those at the end of a stream, which
// release leases and report the cost.
func (s *snippetList) write(b *strings.Builder, llm *llmAPI, values []llmValue) {
	namespace := placeholder
	costs := []string{placeholder}
	comment := "# Reports the cost of the request, which an earlier filter writes to the metadata:\n"
	fmt.Fprintf(b, "%s- actions:\n%s", strings.Join(s.comments, ""), s.actions)
	if llm != nil {
		namespace = "llm"
		costs = llm.keys(values, s)
		comment = "# Charges the tokens of the response:\n"
		if s.plain && len(s.leases) == 0 {
			b.WriteString("  hits_addend: { number: 0 } # only checks the limit\n")
		}
	}
	atEnd := func(comment, hits string) {
		fmt.Fprintf(b, "%s- actions:\n%s  hits_addend:%s\n  apply_on_stream_done: true\n", comment, s.actions, hits)
	}
	for _, name := range s.leases {
		atEnd("# Releases the lease at the end of the stream:\n",
			fmt.Sprintf(` { format: "%%DYNAMIC_METADATA(%s:%s)%%", is_negative_hits: true }`, filterNamespace, name))
	}
	if !s.settles() && (llm == nil || !s.plain) {
		return
	}
	for i, cost := range costs {
		estimated := slices.ContainsFunc(values, func(v llmValue) bool { return v.Key == cost && v.OrEstimate })
		atEnd(comment, costFormat(namespace, cost, s.reservations, i == 0, estimated))
		comment = ""
	}
}

// snippetAction returns an action whose entry a level of the rules matches. open is true if its value comes from the
// request.
func snippetAction(l rules.Level, open bool, llm *llmAPI) string {
	if llm != nil && l.Key == "model" {
		return modelAction
	}
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
		return "header_value_match: { descriptor_value: " + value + ", headers: [{ name: " + placeholder +
			", string_match: { exact: " + placeholder + " } }] }"
	case "query_match":
		return "query_parameter_value_match: { descriptor_value: " + value + ", query_parameters: [{ name: " +
			placeholder + ", string_match: { exact: " + placeholder + " } }] }"
	}
	key := strconv.Quote(l.Key)
	if strings.Contains(l.Key, "*") {
		key = placeholder
	}
	fromHeader := "request_headers: { header_name: " + placeholder + ", descriptor_key: " + key + " }"
	if open {
		return fromHeader
	}
	return fromHeader + " # or where only some routes send it: generic_key: { descriptor_key: " + key +
		", descriptor_value: " + value + " }"
}

// indentText indents every line.
func indentText(by int, s string) string {
	space := strings.Repeat(" ", by)
	return space + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n"+space) + "\n"
}

// listItem makes an object an element of a list.
func listItem(by int, s string) string { return indentText(by, "- "+indentText(2, s)[2:]) }
