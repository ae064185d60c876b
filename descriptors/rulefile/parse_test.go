package rulefile

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

var updateLoad = flag.Bool("update", false, "rewrite testdata/load/*.want")

// TestParseGolden parses testdata/load/*.yaml, one file for each kind of mistake and a few valid
// ones, and compares the results with the .want files.
func TestParseGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/load/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob = %v, %v, want files", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(file)
			must.OK(t, err)
			configs, ds := Parse(filepath.Base(file), content)
			switch good := strings.HasPrefix(name, "good_"); {
			case good && len(ds) > 0:
				t.Errorf("Parse gave %v, want no diagnostics", ds)
			case !good && !strings.HasPrefix(name, "warn_") && !ds.HasErrors():
				t.Errorf("Parse gave no error")
			}
			got := printParsed(t, configs, ds)
			want := strings.TrimSuffix(file, ".yaml") + ".want"
			if *updateLoad {
				must.OK(t, os.WriteFile(want, []byte(got), 0o600))
				return
			}
			wanted, err := os.ReadFile(want)
			must.OK(t, err)
			if diff := cmp.Diff(string(wanted), got); diff != "" {
				t.Errorf("Parse differs from %s; if that is intended, run `go test ./descriptors/rulefile -run TestParseGolden -update` (-want +got):\n%s", want, diff)
			}
		})
	}
}

func printParsed(t *testing.T, configs []rules.Config, ds rules.Diagnostics) string {
	t.Helper()
	var b strings.Builder
	for _, d := range ds {
		fmt.Fprintln(&b, d)
	}
	if ds.HasErrors() {
		return b.String()
	}
	for _, c := range configs {
		text, err := json.MarshalIndent(prune(t, c), "", " ")
		must.OK(t, err)
		fmt.Fprintf(&b, "%s\n", text)
	}
	return b.String()
}

// prune converts v to maps without zero values, and positions to text, so that golden files contain
// only relevant values.
func prune(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	must.OK(t, err)
	var tree any
	must.OK(t, json.Unmarshal(text, &tree))
	return pruneTree(tree)
}

// zeroMatters are the fields whose default is not 0.
var zeroMatters = map[string]bool{"Slack": true, "MaxWait": true, "MaxWaiting": true}

func pruneTree(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if line, ok := v["Line"]; ok {
			return fmt.Sprintf("%v:%v", line, v["Col"])
		}
		for key, value := range v {
			switch value {
			case nil, "", false, 0.0:
				if key[0] >= 'A' && key[0] <= 'Z' && key != "CountRefused" && (value != 0.0 || !zeroMatters[key]) {
					delete(v, key)
				}
			default:
				if key != "Metadata" {
					v[key] = pruneTree(value)
				}
				if key == "NotifyAt" && len(v[key].([]any)) == 0 {
					delete(v, key)
				}
			}
		}
		return v
	case []any:
		for len(v) > 0 && v[len(v)-1] == 0.0 { // the rest of an array
			v = v[:len(v)-1]
		}
		for i := range v {
			v[i] = pruneTree(v[i])
		}
		return v
	}
	return v
}

func TestParseBoundsFileSize(t *testing.T) {
	content := []byte("domain: d\n" + strings.Repeat("#", maxFileBytes))
	configs, ds := Parse("big.yaml", content)
	if configs != nil || len(ds) != 1 || !strings.Contains(ds[0].Message, "16 MiB") {
		t.Errorf("Parse of %d bytes = %v, %v, want one error that names the bound", len(content), configs, ds)
	}
}

func TestParserForgetsDroppedWarnings(t *testing.T) {
	content, err := os.ReadFile("testdata/load/too_many_warnings.yaml")
	must.OK(t, err)
	if p, _ := parse("f.yaml", content, nil); len(p.seen) != maxDiagnostics+1 {
		t.Errorf("%d findings are remembered, want %d warnings and an error", len(p.seen), maxDiagnostics)
	}
}

// TestParseReadsEveryField checks that every field of a field set is read:
// otherwise it would be reported as unknown.
func TestParseReadsEveryField(t *testing.T) {
	values := map[string]string{
		"shadow": "false", // true needs a list: see testdata/load
		"domain": "d", "key": "k", "value": "v", "share_threshold": "true, value: v*",
		"values": "[a, b]", "cidr": "[10.0.0.0/8]", "prefix": "{v4: 24}", "v4": "24", "v6": "64", "file": "f.txt", "unit": "hour", "requests_per_unit": "1", "name": "n",
		"descriptors": "[]", "rate_limit": "{unit: hour, requests_per_unit: 1}",
		"rate_limits": "[{unit: hour, requests_per_unit: 1}]", "metadata": "{}", "replaces": "[{name: m}]",
		"unit_multiplier": "1", "algorithm": "fixed_window", "unlimited": "false", "max_counters": "1",
		"sub_windows": "1, algorithm: sliding_window", "burst": "1, algorithm: token_bucket",
		"slack": "1, algorithm: leaky_bucket", "max_wait": "1s, algorithm: leaky_bucket",
		"max_waiting": "1, max_wait: 1s, algorithm: leaky_bucket", "reserve": "{amount: 1}", "penalty": "[2m, 5m]",
		"amount": "1", "p90": "true, first: 1", "first": "1, p90: true", "ttl": "5m, amount: 1", "unsettled": "release, amount: 1",
		"timezone": "UTC, calendar: true", "anchor_day": "1, calendar: true",
		"shadow_mode": "true, rate_limit: {unit: hour, requests_per_unit: 1}", "quota_mode": "true, rate_limit: {unit: hour, requests_per_unit: 1}", "detailed_metric": "true, rate_limit: {unit: hour, requests_per_unit: 1}",
		"quota": "{}, algorithm: token_bucket", "min_tokens": "1", "approximate": "false",
		"denied_response": "text, rate_limit: {unit: hour, requests_per_unit: 1}", "content_type": "text/html, body: b", "body": "b", "headers": "{x-a: b}", "grpc": "true",
		"exempt": "[{key: k, value: v}]", "soft": "true, name: n", "notify_at": "0.5, name: n", "blocks": "off", "counter": "all",
		"charge": "first_with_room, rate_limits: [{unit: hour, requests_per_unit: 1}, {unit: day, requests_per_unit: 1}]",
	}
	around := []struct {
		in       fieldSet
		template string
		always   string
	}{
		{rootFields, "{%s}", "domain"},
		{exemptFields, "{domain: d, exempt: [{%s}]}", "key"},
		{descriptorFields, "{domain: d, descriptors: [{%s}]}", "key"},
		{cidrFields, "{domain: d, descriptors: [{key: k, cidr: {%s}}]}", ""},
		{prefixFields, "{domain: d, descriptors: [{key: k, prefix: {%s}}]}", ""},
		{limitFields, "{domain: d, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 1, %s}}]}", ""},
		{reserveFields, "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1, name: n, reserve: {%s}}}]}", ""},
		{quotaFields, "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: token_bucket, quota: {%s}}}]}", ""},
		{replacesFields, "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{%s}]}}]}", ""},
		{deniedFields, "{domain: d, denied_response: {%s}}", ""},
	}
	if got, want := len(around), len(fieldSets()); got != want {
		t.Fatalf("the test covers %d field sets, want %d", got, want)
	}
	for _, a := range around {
		for _, word := range a.in.names {
			value, ok := values[word]
			if a.in.where == quotaFields.where && word == "burst" {
				value = "0.1s"
			}
			if a.in.where == rootFields.where && word == "denied_response" {
				value = "text"
			}
			if a.in.where == exemptFields.where && word == "key" {
				value = "k, value: v"
			}
			if !ok {
				value = "true"
			}
			text := word + ": " + value
			if a.always != "" && a.always != word {
				text += ", " + a.always + ": " + values[a.always]
			}
			_, ds := Parse("f", fmt.Appendf(nil, a.template, text))
			for _, d := range ds {
				if !strings.Contains(d.Message, "is a duplicate") {
					t.Errorf("%q %s gives %v, want it accepted", word, a.in.where, d)
				}
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/load/*.yaml")
	must.OK(f, err)
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && len(content) < 2000 {
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		configs, ds := Parse("f.yaml", content)
		if len(configs) == 0 && !ds.HasErrors() {
			t.Fatalf("Parse = no configs and %v, want configs or errors", ds)
		}
		for i, d := range ds {
			if d.Pos.File != "f.yaml" || d.Pos.Line < 1 || d.Pos.Col < 1 || d.Message == "" {
				t.Errorf("diagnostic %v has no position or message", d)
			}
			if i > 0 && d.Pos.Line < ds[i-1].Pos.Line {
				t.Errorf("%v is listed after %v", d, ds[i-1])
			}
		}
	})
}
