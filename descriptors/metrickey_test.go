package descriptors

import (
	"regexp"
	"strings"
	"testing"
)

func TestOverrideMetricKey(t *testing.T) {
	for _, tc := range []struct{ entries, key, key1, key2 string }{
		{"k=a", "k_a", "k_a", ""},
		{"x=1 y=2", "x_1.y_2", "x_1", "y_2"},
		{"x= y=2 z=10.0.0.1:80", "x.y_2.z_10_0_0_1_80", "x", "y_2"},
		{"host=www.example.com y=a|b", "host_www.example.com.y_a_b", "host_www.example.com", "y_a_b"},
		{"", "", "", ""},
	} {
		key, end1, end2 := MetricKeys{}.AppendOverride(nil, parseEntries(tc.entries))
		key1, key2 := string(key[:end1]), ""
		if end2 > 0 {
			key2 = string(key[end1+1 : end2])
		}
		if string(key) != tc.key || key1 != tc.key1 || key2 != tc.key2 {
			t.Errorf("metric key of %q = %q [%s] [%s], want %q [%s] [%s]", tc.entries, key, key1, key2, tc.key, tc.key1, tc.key2)
		}
	}
}

func TestMetricKeysWithoutDots(t *testing.T) {
	s := load(t, Options{}, "domain: a.b\ndescriptors: [{key: k.k, value: 'v.*', descriptors: [{key: n.n, value_to_metric: true, rate_limit: {unit: hour}}]}]")
	r, flat := s.Limits[0].Rule, MetricKeys{NoDots: true}
	entries := parseEntries("k.k=v.w n.n=10.0.0.1.x")
	for _, tc := range []struct {
		entries []Entry
		want    string
	}{{nil, "k_k_v_*.n_n"}, {entries, "k_k_v_*.n_n_10_0_0_1_x"}} {
		key, key1End, key2End := flat.Append(nil, r, tc.entries)
		if string(key) != tc.want || key[key1End] != '.' || key2End != len(key) {
			t.Errorf("Append = %q, %d, %d, want %q", key, key1End, key2End, tc.want)
		}
	}
	if key, _, _ := flat.AppendOverride(nil, entries); string(key) != "k_k_v_w.n_n_10_0_0_1_x" {
		t.Errorf("AppendOverride = %q", key)
	}
}

// FuzzSanitize compares with the regular expression of envoyproxy/ratelimit.
func FuzzSanitize(f *testing.F) {
	for _, s := range []string{
		"", "a:b|c", "ip_50.0.0.5", "1.2.3.4.5.6.7.8", "1234.5.6.7", "1.2.3.4567.8.9.1", "1.2.3", "1..2.3.4", "1.2.3.x4", "9.1.2.3.4:5.6.7.8",
	} {
		f.Add(s)
	}
	quad := regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
	f.Fuzz(func(t *testing.T, s string) {
		got := []byte(s)
		sanitize(got)
		want := quad.ReplaceAllStringFunc(strings.NewReplacer(":", "_", "|", "_").Replace(s), func(ip string) string {
			return strings.ReplaceAll(ip, ".", "_")
		})
		if string(got) != want {
			t.Errorf("sanitize(%q) = %q, want %q", s, got, want)
		}
	})
}

func TestLiteralValuesAreNotRuntimeMetrics(t *testing.T) {
	s := load(t, Options{}, "domain: d\ndescriptors: [{key: a, value: x, detailed_metric: true, value_to_metric: true, rate_limit: {unit: hour}}]")
	r := s.Limits[0].Rule
	if key, _, _ := r.AppendMetricKey(nil, nil); r.RuntimeMetric || string(key) != "a_x" {
		t.Errorf("RuntimeMetric = %v of %q", r.RuntimeMetric, key)
	}
}
