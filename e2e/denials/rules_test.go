package denials_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// document is a document of a rule file with the fields that affect denials.
type document struct {
	Domain       string  `json:"domain"`
	AllOrNothing bool    `json:"all_or_nothing,omitempty"`
	Response     any     `json:"denied_response,omitempty"`
	Rules        []*rule `json:"descriptors"`
}

type rule struct {
	Key      string   `json:"key"`
	Value    string   `json:"value,omitempty"`
	Shadow   bool     `json:"shadow_mode,omitempty"`
	Quota    bool     `json:"quota_mode,omitempty"`
	Response any      `json:"denied_response,omitempty"` // the name of a preset or a response
	Limit    *limit   `json:"rate_limit,omitempty"`
	Limits   []*limit `json:"rate_limits,omitempty"`
	Below    []*rule  `json:"descriptors,omitempty"`
	parent   string   // the key of the level above, if there is one
}

type limit struct {
	Unit         string `json:"unit,omitempty"`
	N            int64  `json:"requests_per_unit"`
	Unlimited    bool   `json:"unlimited,omitempty"`
	Name         string `json:"name,omitempty"`
	Algorithm    string `json:"algorithm,omitempty"`
	Burst        int64  `json:"burst,omitempty"`
	Slack        int64  `json:"slack,omitempty"`
	CountRefused *bool  `json:"count_refused,omitempty"`
	Hidden       bool   `json:"hidden,omitempty"`
	Candidate    bool   `json:"shadow,omitempty"`
}

type response struct {
	ContentType string            `json:"content_type,omitempty"`
	Body        string            `json:"body,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	GRPC        bool              `json:"grpc,omitempty"`
}

var presets = []string{"none", "text", "problem", "openai", "anthropic"}

// names of limits and domains, which must neither end a header nor break a body.
var names = []string{
	"per-user", "a b", `quote " and \ slash`, "{limit}{name}", "</script><b>", "a\r\nx-injected: 1\r\n\r\nb", "\x00\x1f\x7f\u0085\u200b", "é 日本 😀",
	strings.Repeat("x", 255) + "é", strings.Repeat(`"`, 300), strings.Repeat("\n", 300), strings.Repeat("😀", 80), ",;=%s$&#0", "\u2028\u2029",
}

// texts of bodies that are not JSON. Only known placeholders are replaced.
var texts = []string{
	"wait", "{name} {domain} {limit} {window} {reset} {retry_after}", "{{name}} {} { } } {", "%s%d{name", "\\{retry_after}\n\ttab", "é😀 {domain}", "{reset}{reset}", "{retry_after}",
	strings.Repeat("é", 340), strings.Repeat("é", 342), strings.Repeat("x", 2048), strings.Repeat("x", 2049),
}

var objects = []string{
	`{"error":"{name}","after":{retry_after}}`, `["{domain}",{limit},{window},{reset},{"{name}":"{name}{limit}"}]`, `"{name}"`, `{"after":"{retry_after}","t":"é\"\\"}`, `{}`,
}

var headerValues = []string{"free", "{name}", "{domain};{retry_after}", "{limit},{window},{reset}", "a {retry_after} b", "%s{}"}

type generator struct{ *rand.Rand }

func pick[T any](g generator, all ...T) T { return all[g.IntN(len(all))] }

// chance returns true once in n times.
func (g generator) chance(n int) bool { return g.IntN(n) == 0 }

func (g generator) response() any {
	if g.chance(2) {
		return pick(g, presets...)
	}
	r := response{GRPC: g.chance(3)}
	switch g.IntN(4) {
	case 0, 1:
		r.Body = pick(g, texts...)
		r.ContentType = pick(g, "", "text/html", "text/plain; charset=utf-8")
	case 2:
		r.Body = pick(g, objects...)
		r.ContentType = pick(g, "application/json", "application/vnd.a+json; charset=utf-8", "APPLICATION/Problem+JSON")
	}
	for i := range g.IntN(3) {
		if r.Headers == nil {
			r.Headers = map[string]string{}
		}
		r.Headers[pick(g, "x-plan", "X-Limit", "x_odd!#")+strconv.Itoa(i)] = pick(g, headerValues...)
	}
	if r.Body == "" && r.Headers == nil {
		r.GRPC = true
	}
	return r
}

func (g generator) limit(name string) *limit {
	l := &limit{Unit: pick(g, "minute", "hour", "day"), N: pick[int64](g, 0, 1, 1, 2, 2, 5), Algorithm: pick(g, "fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket")}
	if g.chance(6) {
		l.Algorithm = "concurrency"
		l.N = max(l.N, 1)
		l.Name = name
		return l
	}
	switch l.Algorithm {
	case "token_bucket":
		l.Burst = pick[int64](g, 0, 1, 3)
	case "leaky_bucket":
		l.Slack = pick[int64](g, 1, 2)
	}
	if !g.chance(3) {
		l.Name = pick(g, names...)
	}
	if g.chance(3) {
		counts := g.chance(2)
		l.CountRefused = &counts
	}
	return l
}

func (g generator) rule(d *document, n int, quotas bool) *rule {
	r := &rule{Key: fmt.Sprint("key", n)}
	if g.chance(3) {
		r.Value = pick(g, "v1", "v*", "10.0.0.1:80|x")
	}
	if !g.chance(2) {
		r.Response = g.response()
	}
	switch {
	case d.AllOrNothing:
	case g.chance(6):
		r.Shadow = true
	case g.chance(4):
		r.Quota = true
	}
	name := fmt.Sprintf("lease-%s-%d-", strings.ToLower(d.Domain[:1]), n)
	switch n := g.IntN(8); {
	case n == 0:
		r.Limit = &limit{Unlimited: true, Name: "unlimited"}
	case n < 4 && !r.Quota && !quotas:
		r.Limits = []*limit{g.limit(name + "0"), g.limit(name + "1"), g.limit(name + "2")}
		for i, l := range r.Limits {
			l.Unit = []string{"hour", "minute", "day"}[i]
		}
		if i := g.IntN(6); i < 3 {
			r.Limits[i].Candidate = r.Limits[i].Algorithm != "concurrency"
		}
	default:
		r.Limit = g.limit(name + "0")
	}
	for _, l := range r.all() {
		l.Hidden = !l.Unlimited && !l.Candidate && g.chance(4)
		if (r.Shadow || r.Quota || quotas) && l.Algorithm == "concurrency" {
			l.Algorithm, l.Name = "fixed_window", "no lease"
		}
	}
	return r
}

func (r *rule) all() []*limit {
	if r.Limit != nil {
		return []*limit{r.Limit}
	}
	return r.Limits
}

// rules returns random rules of two or three domains. quotas is set if all descriptors are quotas:
// each limit of a list would be a quota of its own.
func (g generator) rules(quotas bool) (all []*document) {
	for i := range 2 + g.IntN(2) {
		d := &document{Domain: string('a'+rune(i)) + pick(g, names...), AllOrNothing: !quotas && g.chance(4)}
		if g.chance(2) {
			d.Response = g.response()
		}
		for n := range 4 + g.IntN(3) {
			r := g.rule(d, n, quotas)
			if g.chance(4) {
				r.parent = fmt.Sprint("parent", n)
				// The next level does not inherit the response.
				d.Rules = append(d.Rules, &rule{Key: r.parent, Response: "text", Below: []*rule{r}})
				continue
			}
			d.Rules = append(d.Rules, r)
		}
		all = append(all, d)
	}
	return all
}

// ruleFile returns the text of a rule file.
func ruleFile(t *testing.T, all []*document) string {
	t.Helper()
	var text strings.Builder
	for _, d := range all {
		line, err := json.Marshal(d)
		must.OK(t, err)
		// YAML does not allow these characters.
		text.WriteString("---\n" + strings.ReplaceAll(strings.ReplaceAll(string(line), "\x7f", `\x7f`), "\u0085", `\x85`) + "\n")
	}
	return text.String()
}
