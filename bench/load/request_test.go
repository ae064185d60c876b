package load

import (
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

func text(r *rls.RateLimitRequest) string {
	var b strings.Builder
	b.WriteString(r.GetDomain())
	for _, d := range r.GetDescriptors() {
		b.WriteString(" |")
		for _, e := range d.GetEntries() {
			b.WriteString(" " + e.GetKey() + "=" + e.GetValue())
		}
	}
	return b.String()
}

func TestTemplate(t *testing.T) {
	for _, test := range []struct{ entries, want string }{
		{"key=%d", "d | key=7"},
		{"key=", "d | key="},
		{"a=u%d-x,b=static;c==%d", "d | a=u7-x b=static | c==7"},
	} {
		template, err := newTemplate(&Config{Domain: "d", Entries: test.entries})
		if err != nil {
			t.Fatal(err)
		}
		template.withKey(123)
		if got := text(template.withKey(7)); got != test.want {
			t.Errorf("%q with 7 = %q, want %q", test.entries, got, test.want)
		}
	}
	for _, entries := range []string{"", "key", "=v", "a=b,,c=d", "a=b;"} {
		if template, err := newTemplate(&Config{Entries: entries}); err == nil {
			t.Errorf("newTemplate(%q) = %q, want an error", entries, text(template.request))
		}
	}
}
