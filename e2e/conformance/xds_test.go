package conformance

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	pb "github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// notOverXDS contains the cases with a field that xDS messages lack, and the field. Defaults can
// set fields that are sluice's own. Add a new such case here.
var notOverXDS = map[string]string{
	"algorithms/delayed_reply_passes":                    "algorithm",
	"algorithms/limit_of_zero_denies_in_every_algorithm": "algorithm",
	"algorithms/list_of_all_algorithms":                  "rate_limits",
	"algorithms/zero_hits_charge_nothing":                "algorithm",
	"algorithms/all_or_nothing_with_buckets":             "all_or_nothing",
	"algorithms/debt_is_at_most_a_window":                "algorithm",
	"algorithms/hits_near_a_limit":                       "algorithm",
	"algorithms/leaky_bucket_admits_slack_plus_one":      "algorithm",
	"algorithms/override_keeps_the_algorithm":            "algorithm",
	"algorithms/override_scales_the_burst":               "algorithm",
	"algorithms/override_beyond_log_size_is_ignored":     "algorithm",
	"algorithms/refunds_stop_at_the_limit":               "algorithm",
	"algorithms/denied_hits_are_charged":                 "algorithm",
	"algorithms/sliding_log_denies_without_counting":     "algorithm",
	"algorithms/sliding_window_denies_without_counting":  "algorithm",
	"algorithms/token_bucket_admits_burst":               "algorithm",
	"algorithms/too_long_delay_is_denied_immediately":    "algorithm",
	"errors/no_rules":                                    "an error on purpose",
	"errors/no_rules_precise":                            "an error on purpose",
	"hits/count_refused_false_charges_no_refused_hit":    "count_refused",
	"metadata/decisions":                                 "count_refused",
	"metadata/soft":                                      "rate_limits",
	"metric_key_share_threshold_wins":                    "share_threshold",
	"rules/denied_list_charges_nothing":                  "rate_limits",
	"rules/all_or_nothing_charges_no_other_limit":        "all_or_nothing",
	"rules/unit_multiplier_makes_longer_windows":         "unit_multiplier",
	"share_threshold_middle_wildcard":                    "share_threshold",
	"share_threshold_on_parent_applies_to_child_limit":   "share_threshold",
}

// TestOverXDS sends the rules of every case from a management server. /rlconfig and all answers
// must equal those of files.
func TestOverXDS(t *testing.T) {
	t.Parallel()
	cases := readCases(t, "../testdata/conformance/cases.yaml")
	exceptions := map[string]Case{}
	for _, e := range readCases(t, "../testdata/conformance/exceptions.yaml") {
		exceptions[e.Name] = e
	}
	for i, c := range cases {
		if e, ok := exceptions[c.Name]; ok {
			e.Env, e.Config = c.Env, c.Config
			cases[i] = e
		}
	}
	files, err := filepath.Glob("../testdata/cases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		for _, c := range readCases(t, file) {
			c.Name = strings.TrimSuffix(filepath.Base(file), ".yaml") + "/" + c.Name
			cases = append(cases, c)
		}
	}
	beyond := map[string]string{}
	for _, c := range cases {
		resources, missing := c.resources()
		if missing != "" {
			beyond[c.Name] = missing
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			found, over := c.runBy(t, "--xds-addr", manage(t, resources))
			report(t, found)
			byFiles := Case{Config: c.Config, Env: c.Env, Args: c.Args}
			_, files := byFiles.runBy(t, "--config", byFiles.writeFiles(t))
			if diff := cmp.Diff(files, over); diff != "" {
				t.Errorf("/rlconfig differs (-files +xDS):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(notOverXDS, beyond); diff != "" {
		t.Errorf("cases with fields that xDS lacks (-want +got):\n%s", diff)
	}
}

// manage starts a management server with resources. It returns the address.
func manage(t *testing.T, resources []*pb.RateLimitConfig) string {
	t.Helper()
	s, err := adstest.Start(adstest.Options{})
	must.OK(t, err)
	t.Cleanup(s.Stop)
	must.OK(t, s.Set("1", resources...))
	return s.Addr()
}

// resources returns the rules of a case as resources, or the field that resources lack.
func (c *Case) resources() (all []*pb.RateLimitConfig, missing string) {
	for i, text := range c.Config {
		file := fmt.Sprintf("%02d.yaml", i)
		configs, found := rulefile.Parse(file, []byte(text))
		if found.HasErrors() {
			return nil, "an error on purpose"
		}
		for j := range configs {
			cfg := &configs[j]
			switch {
			case cfg.AllOrNothing != nil:
				return nil, "all_or_nothing"
			case cfg.MaxCounters != 0:
				return nil, "max_counters"
			}
			ds, missing := messages(cfg.Descriptors)
			if missing != "" {
				return nil, missing
			}
			all = append(all, &pb.RateLimitConfig{Name: fmt.Sprintf("%s#%d", file, j), Domain: cfg.Domain, Descriptors: ds})
		}
	}
	return all, ""
}

func messages(configs []rules.Descriptor) (ds []*pb.RateLimitDescriptor, missing string) {
	for i := range configs {
		cfg := &configs[i]
		switch {
		case cfg.ShareThreshold:
			return nil, "share_threshold"
		case cfg.ValueToMetric:
			return nil, "value_to_metric"
		case cfg.List:
			return nil, "rate_limits"
		}
		d := &pb.RateLimitDescriptor{
			Key: cfg.Key, Value: cfg.Value,
			ShadowMode: rules.ValueOr(cfg.ShadowMode, false), QuotaMode: cfg.QuotaMode, DetailedMetric: rules.ValueOr(cfg.DetailedMetric, false),
		}
		for j := range cfg.RateLimits {
			l := &cfg.RateLimits[j]
			switch {
			case l.Algorithm != 0:
				return nil, "algorithm"
			case l.UnitMultiplier > 1:
				return nil, "unit_multiplier"
			case l.CountRefused != nil:
				return nil, "count_refused"
			}
			d.RateLimit = &pb.RateLimitPolicy{
				Unit: pb.RateLimitUnit(l.Unit), RequestsPerUnit: l.RequestsPerUnit, Unlimited: l.Unlimited, Name: l.Name,
			}
			for _, name := range l.Replaces {
				d.RateLimit.Replaces = append(d.RateLimit.Replaces, &pb.RateLimitReplace{Name: name})
			}
		}
		if cfg.Metadata != nil {
			m, err := structpb.NewStruct(maps.Clone(cfg.Metadata))
			if err != nil {
				return nil, err.Error()
			}
			d.Metadata = m
		}
		if d.Descriptors, missing = messages(cfg.Descriptors); missing != "" {
			return nil, missing
		}
		ds = append(ds, d)
	}
	return ds, ""
}
