package descriptors

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

func TestQuotaDiagnostics(t *testing.T) {
	const divided = "unit: second, requests_per_unit: 5, algorithm: token_bucket, quota: {}"
	for name, tc := range map[string]struct {
		rules string
		want  []string
	}{
		"good": {"- {key: a, shadow_mode: true, rate_limit: {" + divided + "}}", nil},
		"list": {"- {key: a, rate_limits: [{" + divided + "}, {unit: day, requests_per_unit: 5}]}", []string{
			`a.yaml:3:26: error: domain "d" > key "a": "quota" is not supported in a list of several limits, since Envoy has one bucket for each descriptor; use rate_limit`,
		}},
		"quota mode": {"- {key: a, quota_mode: true, rate_limit: {" + divided + "}}", []string{
			`a.yaml:3:42: error: domain "d" > key "a": "quota_mode" is not supported with "quota": Envoy requests a quota for each descriptor separately; remove it`,
		}},
		"shared": {"- {key: a, value: 'x*', share_threshold: true, rate_limit: {" + divided + "}}", []string{
			`a.yaml:3:60: error: domain "d" > key "a" value "x*": "share_threshold" is not supported with "quota": each value has its own bucket in Envoy; remove one of them`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, ds := compile(t, Options{}, "domain: d\ndescriptors:\n"+tc.rules)
			if diff := cmp.Diff(tc.want, lines(ds)); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
			if s != nil && !s.Divides() {
				t.Error("Divides = false, want true")
			}
		})
	}
}

func TestMatchSingleDescriptor(t *testing.T) {
	s, _ := compile(t, Options{}, `{domain: d, descriptors: [
  {key: a, rate_limit: {unlimited: true}},
  {key: b, descriptors: [{key: c, value: x, rate_limit: {unit: day, requests_per_unit: 5, algorithm: token_bucket, quota: {}}}]}]}`)
	b := []Entry{{[]byte("b"), []byte("1")}, {[]byte("c"), []byte("x")}}
	r := s.Match([]byte("d"), b)
	if r == nil || r.Path() != "b > c=x" || r.Divided() == nil {
		t.Errorf("Match = %v, want the rule of b > c=x", r)
	}
	if r := s.Match([]byte("d"), []Entry{{[]byte("a"), nil}}); r == nil || r.Divided() != nil {
		t.Errorf("Match = %v, want the rule of a, which has no quota", r)
	}
	for _, none := range [][]Entry{nil, b[:1], b[1:], {b[0], b[1], b[1]}} {
		if r := s.Match([]byte("d"), none); r != nil {
			t.Errorf("Match(%s) = %s", none, r.Path())
		}
	}
	if s.Match([]byte("e"), b) != nil || !s.Divides() {
		t.Error("an unknown domain has a rule, or the set has no quota")
	}
	if n := must.AllocsPerRun(10, func() { s.Match([]byte("d"), b) }); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
}

func TestQuotaAdvice(t *testing.T) {
	for rate, want := range map[string]int{
		"unit: second, requests_per_unit: 2":  0,
		"unit: second, requests_per_unit: 1":  1,
		"unit: minute, requests_per_unit: 97": 0,
		"unit: minute, requests_per_unit: 95": 1,
		"unit: minute, requests_per_unit: 0":  0,
	} {
		s, _ := compile(t, Options{}, "{domain: d, descriptors: [{key: a, rate_limit: {"+rate+", algorithm: token_bucket, quota: {}}}]}")
		if ds := Advice(s, false); len(ds) != want {
			t.Errorf("Advice for %s = %v, want %d", rate, lines(ds), want)
		}
	}
}
