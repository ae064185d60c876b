package descriptors

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
)

// TestAcknowledgedWarnings checks that a comment acknowledges only warnings on its own line or on
// the next one, and that an unused acknowledgement causes a warning.
func TestAcknowledgedWarnings(t *testing.T) {
	const restart = `d.yaml:%d:%d: warning: restart: domain "d" > key "%s": counters in memory are lost at a restart, which matters for windows of a day or more`
	for _, tt := range []struct {
		name, content string
		want          []string
	}{
		{"beside", "- {key: a, rate_limit: {unit: day, requests_per_unit: 1}} # sluice:allow restart\n", nil},
		{"above", "# sluice:allow restart\n\n# ours\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n", nil},
		{"several codes", "- {key: a, rate_limit: {unit: day}} #sluice:allow restart, missing-number\n", nil},
		{"two comments", "# sluice:allow restart\n# sluice:allow missing-number\n- {key: a, rate_limit: {unit: day}}\n", nil},
		{"a warning of Compile", "- {key: a, rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: b}]}} # sluice:allow replaces-none\n", nil},
		{
			"another line", "- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n# sluice:allow restart\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1}}\n",
			[]string{fmt.Sprintf(restart, 3, 24, "a")},
		},
		{
			"another code", "- {key: a, rate_limit: {unit: day, requests_per_unit: 1}} # sluice:allow twice\n",
			[]string{fmt.Sprintf(restart, 3, 24, "a"), "d.yaml:3:59: warning: allow: line 3 has no warning twice: remove the acknowledgement"},
		},
		{
			"no such code", "- {key: a} # sluice:allow restarts\n",
			[]string{`d.yaml:3:12: warning: allow: "restarts" is not the code of a warning that comments can acknowledge; did you mean "restart"?`},
		},
		{
			"no code", "- {key: a} # sluice:allow\n",
			[]string{`d.yaml:3:12: warning: allow: "" is not the code of a warning that comments can acknowledge`},
		},
		{
			"itself", "- {key: a} # sluice:allow allow\n",
			[]string{`d.yaml:3:12: warning: allow: "allow" is not the code of a warning that comments can acknowledge`},
		},
		{"text that is not a comment", "- {key: \"a# sluice:allow restart\"}\n", nil},
		{
			"at the end", "- {key: a}\n# sluice:allow restart\n",
			[]string{"d.yaml:4:1: warning: allow: line 4 has no warning restart: remove the acknowledgement"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			configs, found := rulefile.Parse("d.yaml", []byte("domain: d\ndescriptors:\n"+tt.content))
			set, ds := Build(configs, found, nil, Options{})
			if set == nil {
				t.Fatal(ds)
			}
			var got []string
			for _, d := range append(ds, Advice(set, false)...) {
				got = append(got, d.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaultsAcknowledgeWarnings(t *testing.T) {
	d, found := rulefile.ParseDefaults("defaults.yaml", []byte("domain: none # sluice:allow unused-defaults\nall_or_nothing: true\n"))
	set, ds := Build([]rules.Config{{Domain: "d"}}, found, nil, Options{Defaults: d})
	if set == nil || len(ds)+len(Advice(set, false)) > 0 {
		t.Errorf("warnings are %v and %v, want none", ds, Advice(set, false))
	}
}
