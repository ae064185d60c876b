package denials_test

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// addStructured adds the headers of docs/headers.md.
func (m *model) addStructured(p *prediction, groups []*group) {
	var policies, states []string
	at, left := map[string]int{}, map[string]int64{}
	for _, g := range groups {
		for _, d := range g.limits {
			l := d.limit
			if l.Hidden || l.Name == "" || g.rule.Shadow {
				continue
			}
			name := quote(l.Name)
			policy := fmt.Sprintf("%s;q=%d;w=%d", name, l.capacity(), ceil(time.Duration(l.window()), time.Second))
			state := fmt.Sprintf("%s;r=%d;t=%d", name, d.remaining, ceil(d.reset, time.Second))
			switch {
			case l.Algorithm == "concurrency":
				policy = fmt.Sprintf(`%s;q=%d;qu="concurrent-requests"`, name, l.N)
				state = fmt.Sprintf("%s;r=%d", name, d.remaining)
			case l.bucket() && l.N == 0:
				policy = name + ";q=0"
			case l.bucket():
				policy = fmt.Sprintf("%s;q=%d;w=%d", name, l.capacity(), ceil(time.Duration(l.capacity()*l.interval()), time.Second))
			}
			i, found := at[l.Name]
			switch {
			case !found && len(policies) < 16:
				at[l.Name], left[l.Name] = len(policies), d.remaining
				policies, states = append(policies, policy), append(states, state)
			case found && d.remaining < left[l.Name]:
				policies[i], states[i], left[l.Name] = policy, state, d.remaining
			}
		}
	}
	if len(policies) > 0 {
		p.headers["ratelimit-policy"], p.headers["ratelimit"] = strings.Join(policies, ", "), strings.Join(states, ", ")
	}
}

// ascii returns a name with a question mark for each byte that is not printable ASCII.
func ascii(name string) string {
	text := []byte(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, name))
	text = text[:min(len(text), 256)]
	for i, c := range text {
		if c < ' ' || c > '~' {
			text[i] = '?'
		}
	}
	return string(text)
}

// quote returns a name as a string of a structured field.
func quote(name string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(ascii(name)) + `"`
}
