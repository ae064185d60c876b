package api

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rate_limit_quota/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-ratelimit/sluice/envoyconfig/tree"
)

// TestOneForm has values that Envoy takes in several forms written in the one that is read here.
func TestOneForm(t *testing.T) {
	for text, want := range map[string]string{"yes": "true", "{ value: OFF }": "false", "{ value: 7 }": "7", "'7'": "7"} {
		roots, err := tree.Read("f", []byte("x: "+text), nil)
		if err != nil {
			t.Fatal(err)
		}
		x := roots[0].Field("x")
		if good := tidyBoolean(x) || tidyNumber(x); !good || x.Text != want || x.Name != "x" {
			t.Errorf("%s is read as %q of %q, want %q", text, x.Text, x.Name, want)
		}
	}
	roots, err := tree.Read("f", []byte("timeout: { seconds: 2, nanos: 500000000 }"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := roots[0].Field("timeout"); !tidyDuration(d) || d.Text != "2.5s" {
		t.Errorf("two seconds and a half are read as %q", d.Text)
	}
}

// TestWhatIsReadIsJudged finds each name of a field in envoyconfig's code among those that
// messages have.
func TestWhatIsReadIsJudged(t *testing.T) {
	judged := map[string]bool{}
	var add func(m message)
	see := func(w want) {
		add(w.fields)
		if w.values != nil {
			add(w.values.fields)
		}
	}
	add = func(m message) {
		for name, w := range m {
			judged[name] = true
			see(w)
		}
	}
	for _, w := range messages {
		see(w)
	}
	// Of these only matters whether they are there, or they tell what a message is.
	for name := range strings.FieldsSeq(`@type admin api_version auto_config cds_config cluster_name config_discovery connect_matcher data disk_layer dynamic_resources
		eds_cluster_config filters generic_secret grpc grpc_health_check http2_protocol_options items json_patches kind lds_config mutations operation lb_policy original_ip_detection_extensions
		early_header_mutation_extensions path_normalization_options providers request_mutations resource rtds_layer tls_certificate type_url type_urls upstream_http_filters use_downstream_protocol_config validation_context value via vhds`) {
		if judged[name] && !slices.Contains([]string{"value", "filters", "cluster_name"}, name) {
			t.Errorf("%s is judged", name)
		}
		judged[name] = true
	}
	sources, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`\.(?:Field|At)\(("[^)]*")\)`).FindAllStringSubmatch(string(code), -1) {
			for name := range strings.SplitSeq(call[1], ", ") {
				if name, ok := strings.CutPrefix(name, `"`); ok {
					if found++; !judged[strings.TrimSuffix(name, `"`)] {
						t.Errorf("%s reads %q, which no message has", source, strings.TrimSuffix(name, `"`))
					}
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("%d names found in %s", found, slices.Sorted(slices.Values(sources)))
	}
}

// TestClosedMessagesAreEnvoys holds the messages that take no other fields against Envoy's API, as
// go-control-plane has it: both have the same fields. Those of lists of filters have no stages.
func TestClosedMessagesAreEnvoys(t *testing.T) {
	closed, enums := 0, 0
	var hold func(name string, w want, d protoreflect.MessageDescriptor)
	hold = func(name string, w want, d protoreflect.MessageDescriptor) {
		var there []string
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			there = append(there, string(f.Name()))
			if e := f.Enum(); e != nil && w.fields[string(f.Name())].names != nil {
				enums++
				var names []string
				for j := range e.Values().Len() {
					names = append(names, string(e.Values().Get(j).Name()))
				}
				if diff := cmp.Diff(names, w.fields[string(f.Name())].names); diff != "" {
					t.Errorf("%s.%s (-Envoy +here):\n%s", name, f.Name(), diff)
				}
			}
			if below, ok := w.fields[string(f.Name())]; ok && f.Message() != nil && (below.fields != nil || below.closed) {
				hold(name+"."+string(f.Name()), below, f.Message())
			}
		}
		slices.Sort(there)
		if !w.closed {
			return
		}
		closed++
		ours := slices.Sorted(maps.Keys(w.fields))
		if d.FullName() == "envoy.config.route.v3.RateLimit" && w.fields["stage"].one == "" {
			ours = slices.Sorted(slices.Values(append(ours, "stage", "disable_key")))
		}
		if diff := cmp.Diff(there, ours); diff != "" {
			t.Errorf("%s (-Envoy +here):\n%s", name, diff)
		}
	}
	hold("RateLimit", rateLimitWant, (&ratelimitv3.RateLimit{}).ProtoReflect().Descriptor())
	hold("RateLimitPerRoute", perRouteWant, (&ratelimitv3.RateLimitPerRoute{}).ProtoReflect().Descriptor())
	hold("rate_limits", policiesWant, (&routev3.RateLimit{}).ProtoReflect().Descriptor())
	hold("headers", headersWant, (&routev3.HeaderMatcher{}).ProtoReflect().Descriptor())
	hold("RateLimitQuotaFilterConfig", quotaWant, (&quotav3.RateLimitQuotaFilterConfig{}).ProtoReflect().Descriptor())
	hold("RateLimitQuotaBucketSettings", quotaBucketWant, (&quotav3.RateLimitQuotaBucketSettings{}).ProtoReflect().Descriptor())
	hold("Matcher", matcherWant, (&quotav3.RateLimitQuotaFilterConfig{}).GetBucketMatchers().ProtoReflect().Descriptor())
	hold("Predicate", predicateWant, (&quotav3.RateLimitQuotaFilterConfig{}).GetBucketMatchers().GetMatcherList().ProtoReflect().Descriptor().Messages().ByName("Predicate"))
	hold("ValueBuilder", *quotaBucketWant.fields["bucket_id_builder"].fields["bucket_id_builder"].values,
		(&quotav3.RateLimitQuotaBucketSettings_BucketIdBuilder_ValueBuilder{}).ProtoReflect().Descriptor())
	if closed < 80 || enums < 10 {
		t.Errorf("%d messages and %d enums are held", closed, enums)
	}
}
