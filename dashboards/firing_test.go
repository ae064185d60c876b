package dashboards

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// expression returns the expression of an alert.
func expression(t *testing.T, alert string) string {
	t.Helper()
	text, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.Default())
	for _, err := range errs {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Alert == alert {
				return r.Expr
			}
		}
	}
	t.Fatalf("there is no alert %s", alert)
	return ""
}

// info returns a series of sluice_config_info for a pod, or for an instance outside Kubernetes if
// pod is empty.
func info(job, pod, hash string) string {
	if pod == "" {
		return fmt.Sprintf("sluice_config_info{job=%q,instance=%q,hash=%q} 1+0x200", job, hash+":9090", hash)
	}
	return fmt.Sprintf("sluice_config_info{job=%q,namespace=%q,pod=%q,hash=%q} 1+0x200", job, "shop", pod, hash)
}

// countsAlone returns a series of sluice_counts_alone for a pod.
func countsAlone(pod string, value int) string { return podSeries("sluice_counts_alone", pod, value) }

// podSeries returns a series of a gauge for a pod.
func podSeries(gauge, pod string, value int) string {
	return fmt.Sprintf("%s{job=%q,namespace=%q,pod=%q} %dx200", gauge, "j", "shop", pod, value)
}

// shadowMode returns a series of sluice_shadow_mode for a pod.
func shadowMode(pod string, value int) string { return podSeries("sluice_shadow_mode", pod, value) }

// hits returns the series of a domain: its hits per minute, and those over the limit.
func hits(total, over string) string {
	const of = `{job="sluice",domain="shop",instance="a"} `
	return "ratelimit_service_rate_limit_total_hits" + of + total + "\n  ratelimit_service_rate_limit_over_limit" + of + over
}

// class returns the series of a counter size: its live counters and its capacity.
func class(domain string, counterBytes, live, capacity int) string {
	labels := fmt.Sprintf(`{instance="a",domain=%q,counter_bytes="%d"}`, domain, counterBytes)
	return fmt.Sprintf("sluice_counters_live%s %d+0x200\n  sluice_counters_capacity%s %d+0x200", labels, live, labels, capacity)
}

// certificateExpiry returns the series of a certificate that expires the given time after the
// evaluation of the alerts, which is two hours after the epoch.
func certificateExpiry(instance, use string, after time.Duration) string {
	labels := fmt.Sprintf("{instance=%q,use=%q} ", instance, use)
	expires := int((2*time.Hour + after).Seconds())
	return fmt.Sprintf("sluice_tls_certificate_expiry_timestamp_seconds%s%d+0x200\n  sluice_tls_certificate_warning_timestamp_seconds%s%d+0x200",
		labels, expires, labels, expires-7*24*3600)
}

// TestAlertsFire evaluates alerts with Prometheus' engine. The series have a sample each minute,
// and the alerts are evaluated two hours after the first one.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		alert, name string
		series      []string
		want        []string
	}{
		// A sliding window for each user and many fixed windows. The size that is full is detected,
		// however much capacity the other one has.
		{"SluiceCountersFillUp", "one size of two is full", []string{
			class("", 16, 99, 3_800), class("", 72, 870_000, 932_000),
		}, []string{`{instance="a"}`}},
		{"SluiceCountersFillUp", "a domain with max_counters: 1000 is full", []string{
			class("", 16, 10, 4_190_000), class("shop", 72, 900, 1000),
		}, []string{`{instance="a"}`}},
		{"SluiceCountersFillUp", "no size is full", []string{
			class("", 16, 2_000_000, 4_190_000), class("shop", 72, 600, 1000),
		}, nil},
		{"SluiceCertificateExpires", "in a month, in six days, an hour ago", []string{
			certificateExpiry("a", "grpc", 30*24*time.Hour), certificateExpiry("b", "grpc", 6*24*time.Hour), certificateExpiry("c", "grpc", -time.Hour),
		}, []string{`{instance="b", use="grpc"}`}},
		{"SluiceCertificateExpired", "on one listener of two", []string{
			certificateExpiry("a", "grpc", 6*24*time.Hour), certificateExpiry("a", "debug", -time.Hour),
		}, []string{`{__name__="sluice_tls_certificate_expiry_timestamp_seconds", instance="a", use="debug"}`}},
		{"SluiceCountersEvicted", "in one size", []string{
			`sluice_counters_evicted_total{instance="a",counter_bytes="16"} 0+0x200`,
			`sluice_counters_evicted_total{instance="a",counter_bytes="72"} 0+60x200`,
		}, []string{`{instance="a"}`}},
		{"SluiceConnectionsClosed", "for two reasons", []string{
			`sluice_grpc_connections_closed_total{instance="a",reason="flood"} 0+1x200`,
			`sluice_grpc_connections_closed_total{instance="a",reason="protocol"} 0+1x200`,
		}, []string{`{instance="a"}`}},
		{"SluiceConnectionsClosed", "probes that only connect, machines that vanished", []string{
			`sluice_grpc_connections_closed_total{instance="a",reason="handshake_timeout"} 0+1x200`,
			`sluice_grpc_connections_closed_total{instance="a",reason="keepalive_timeout"} 0+1x200`,
			`sluice_grpc_connections_closed_total{instance="a",reason="flood"} 1+0x200`,
		}, nil},
		{"SluiceStateNotSaved", "all is well", []string{
			`sluice_state_errors_total{instance="a"} 0x200`, `sluice_state_last_save_timestamp_seconds{instance="a"} 1+60x200`,
		}, nil},
		{"SluiceStateNotSaved", "before the first save", []string{
			`sluice_state_errors_total{instance="a"} 0x200`, `sluice_state_last_save_timestamp_seconds{instance="a"} 0x200`,
		}, nil},
		{"SluiceStateNotSaved", "a rejected file has been replaced", []string{
			`sluice_state_errors_total{instance="a"} 1x200`, `sluice_state_last_save_timestamp_seconds{instance="a"} 1+60x200`,
		}, nil},
		{"SluiceStateNotSaved", "a process runs without saving", []string{
			`sluice_state_errors_total{instance="a"} 1x200`, `sluice_state_last_save_timestamp_seconds{instance="a"} 0x200`,
		}, []string{`{__name__="sluice_state_errors_total", instance="a"}`}},
		{"SluiceStateNotSaved", "the disk is full", []string{
			`sluice_state_errors_total{instance="a"} 0+2x200`, `sluice_state_last_save_timestamp_seconds{instance="a"} 7x200`,
		}, []string{`{instance="a"}`}},
		{"SluiceReplicasDisagree", "replicas of a Deployment agree", []string{
			info("j", "web-7d4f9c8b6d-x2x4z", "a"), info("j", "web-7d4f9c8b6d-bbbbb", "a"),
		}, nil},
		{"SluiceReplicasDisagree", "replicas of a Deployment disagree", []string{
			info("j", "web-7d4f9c8b6d-x2x4z", "a"), info("j", "web-7d4f9c8b6d-bbbbb", "b"),
		}, []string{`{job="j", namespace="shop", workload="web"}`}},
		{"SluiceReplicasDisagree", "old and new pods of a roll-out disagree", []string{
			info("j", "web-7d4f9c8b6d-x2x4z", "a"), info("j", "web-5c6d7f8g9h-bbbbb", "b"),
		}, []string{`{job="j", namespace="shop", workload="web"}`}},
		{"SluiceStoreUnavailable", "one shard of two", []string{
			`sluice_store_up{instance="a",shard="r1"} 0x200`, `sluice_store_up{instance="a",shard="r2"} 1x200`,
		}, []string{`{__name__="sluice_store_up", instance="a", shard="r1"}`}},
		{"SluiceStoreUnavailable", "never reached", []string{`sluice_store_up{instance="a",shard="r1"} 0x200`, `sluice_store_reached{instance="a"} 0x200`, `sluice_store_up{instance="b",shard="r1"} 0x200`, `sluice_store_reached{instance="b"} 1x200`}, []string{`{__name__="sluice_store_up", instance="b", shard="r1"}`}},
		{"SluiceStoreNotReached", "one of two", []string{`sluice_store_reached{instance="a"} 0x200`, `sluice_store_reached{instance="b"} 0x60 1x140`}, []string{`{__name__="sluice_store_reached", instance="a"}`}},
		{"SluiceStoreUnavailable", "it was unavailable", []string{
			`sluice_store_up{instance="a",shard="r1"} 0x110 1x90`,
		}, nil},
		{"SluiceStoreSlow", "half of all batches", []string{
			`sluice_store_batch_duration_seconds_bucket{instance="a",le="0.005"} 0+50x200`, `sluice_store_batch_duration_seconds_bucket{instance="a",le="+Inf"} 0+100x200`,
			`sluice_store_batch_duration_seconds_bucket{instance="a",le="0.01"} 0+100x200`,
		}, []string{`{instance="a"}`}},
		{"SluiceStoreSlow", "none", []string{
			`sluice_store_batch_duration_seconds_bucket{instance="a",le="0.005"} 0+100x200`, `sluice_store_batch_duration_seconds_bucket{instance="a",le="+Inf"} 0+100x200`,
		}, nil},
		{"SluiceStoreClock", "two seconds behind", []string{`sluice_store_clock_offset_seconds{instance="a"} -2x200`}, []string{`{instance="a"}`}},
		{"SluiceStoreClock", "as good as NTP", []string{`sluice_store_clock_offset_seconds{instance="a"} 0.02x200`}, nil},
		{"SluiceStoreDiverges", "once", []string{`sluice_store_divergent_batches_total{instance="a"} 0x115 1x85`}, []string{`{instance="a"}`}},
		{"SluiceCostsMissing", "of one rule", []string{
			`sluice_costs_due_total{instance="a",rule="k"} 0+1x200`, `sluice_costs_received_total{instance="a",rule="k"} 0x200`, `ratelimit_service_rate_limit_total_hits{instance="a",rule="k"} 0+2x200`,
			`sluice_costs_due_total{instance="a",rule="l"} 0+1x200`, `sluice_costs_received_total{instance="a",rule="l"} 0+1x200`,
			`sluice_costs_due_total{instance="a",rule="m"} 0+1x200`,
		}, []string{`{instance="a", rule="k"}`, `{instance="a", rule="m"}`}},
		{"SluiceLeasesExpire", "on one route", []string{`sluice_leases_expired_total{instance="a",rule="k"} 0+1x200`, `sluice_leases_expired_total{instance="a",rule="l"} 0x200`}, []string{`{instance="a", rule="k"}`}},
		{"SluiceLeasesExpire", "of one Envoy that died", []string{`sluice_leases_expired_total{instance="a",rule="k"} 0x80 20x120`}, nil},
		{"SluiceQuotaUnmatched", "all the time", []string{`sluice_quota_unmatched_usages_total{instance="a",domain="d"} 0+1x200`, `sluice_quota_unmatched_usages_total{instance="a",domain="e"} 3x200`}, []string{`{domain="d", instance="a"}`}},
		{"SluiceQuotaUnmatched", "while rules changed", []string{`sluice_quota_unmatched_usages_total{instance="a",domain="d"} 0x80 9x120`}, nil},
		{"SluiceStoreExceeded", "some", []string{`sluice_store_exceeded_hits_total{instance="a",rule="k"} 0x115 7x85`, `sluice_store_exceeded_hits_total{instance="a",rule="l"} 0x200`}, []string{`{instance="a"}`}},
		{"SluiceStoreExceeded", "a day ago", []string{`sluice_store_exceeded_hits_total{instance="a"} 7x200`}, nil},
		{"SluiceStoreDiverges", "never", []string{`sluice_store_divergent_batches_total{instance="a"} 0x200`}, nil},
		{"SluiceReplicasDisagree", "pods of a StatefulSet and of a DaemonSet", []string{
			info("j", "db-0", "a"), info("j", "db-1", "b"), info("j", "node-x2x4z", "c"), info("j", "node-bbbbb", "d"),
		}, []string{`{job="j", namespace="shop", workload="db"}`, `{job="j", namespace="shop", workload="node"}`}},
		{"SluiceReplicasDisagree", "sidecars of two workloads have rules of their own", []string{
			info("j", "web-7d4f9c8b6d-x2x4z", "a"), info("j", "shop-5c6d7f8g9h-bbbbb", "b"), info("j", "db-0", "c"), info("j", "alone", "d"),
		}, nil},
		{"SluiceReplicasCountSeparately", "of a Deployment", []string{countsAlone("web-7d4f9c8b6d-x2x4z", 1), countsAlone("web-7d4f9c8b6d-bbbbb", 1)}, []string{`{job="j", namespace="shop", workload="web"}`}},
		{"SluiceReplicasCountSeparately", "one of two", []string{countsAlone("web-7d4f9c8b6d-x2x4z", 1), countsAlone("web-7d4f9c8b6d-bbbbb", 0)}, nil},
		{"SluiceReplicasCountSeparately", "sidecars of two workloads", []string{countsAlone("web-7d4f9c8b6d-x2x4z", 1), countsAlone("shop-5c6d7f8g9h-bbbbb", 1)}, nil},
		{"SluiceShadowModeDiffers", "one of two", []string{shadowMode("web-7d4f9c8b6d-x2x4z", 1), shadowMode("web-7d4f9c8b6d-bbbbb", 0)}, []string{`{job="j", namespace="shop", workload="web"}`}},
		{"SluiceShadowModeDiffers", "two of two, and another workload", []string{shadowMode("web-7d4f9c8b6d-x2x4z", 1), shadowMode("web-7d4f9c8b6d-bbbbb", 1), shadowMode("shop-5c6d7f8g9h-bbbbb", 0)}, nil},
		{"SluiceRequestsRejected", "for one reason", []string{
			`sluice_rejected_requests_total{instance="a",reason="no_domain"} 0+1x200`, `sluice_rejected_requests_total{instance="a",reason="entries"} 7x200`,
			`sluice_rejected_requests_total{instance="a",reason="grpc_on_http_port"} 0+1x200`,
		}, []string{`{instance="a", reason="no_domain"}`}},
		{"SluiceGRPCOnHTTPPort", "a client", []string{`sluice_rejected_requests_total{instance="a",reason="grpc_on_http_port"} 0+1x200`}, []string{`{instance="a"}`}},
		{"SluiceGRPCOnHTTPPort", "another error", []string{`sluice_rejected_requests_total{instance="a",reason="no_domain"} 0+1x200`}, nil},
		{"SluiceReplicasDisagree", "instances of a job outside Kubernetes", []string{info("j", "", "a"), info("j", "", "b")}, []string{`{job="j"}`}},
		{"SluiceReplicasDisagree", "two jobs outside Kubernetes", []string{info("j", "", "a"), info("k", "", "b")}, nil},

		{"SluiceDenials", "a domain that had no series an hour ago", []string{hits("_x90 0+600x100", "_x90 0+500x100")}, []string{`{domain="shop", job="sluice"}`}},
		{"SluiceDenials", "none were denied an hour ago", []string{hits("0+600x200", "0+0x90 0+500x100")}, []string{`{domain="shop", job="sluice"}`}},
		{"SluiceDenials", "as many as an hour ago", []string{hits("0+600x200", "0+500x200")}, nil},
		{"SluiceDenials", "less than half", []string{hits("_x90 0+600x100", "_x90 0+200x100")}, nil},
		{"SluiceDenials", "hardly any traffic", []string{hits("_x90 0+6x100", "_x90 0+6x100")}, nil},
	} {
		t.Run(tt.alert+"/"+tt.name, func(t *testing.T) {
			t.Parallel()
			storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.Join(tt.series, "\n  ")+"\n")
			engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
			query, err := engine.NewInstantQuery(t.Context(), storage, promql.NewPrometheusQueryOpts(false, 0), expression(t, tt.alert), time.Unix(0, 0).Add(2*time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			vector, err := query.Exec(t.Context()).Vector()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, sample := range vector {
				got = append(got, sample.Metric.String())
			}
			if slices.Sort(got); !slices.Equal(got, tt.want) {
				t.Errorf("%s fires for %q, want %q", tt.alert, got, tt.want)
			}
		})
	}
}
