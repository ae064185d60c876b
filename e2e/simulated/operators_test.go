package simulated_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/suite"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// arguments contains an argument for each operator that requires one.
var arguments = map[string]string{
	"COALESCE":        `({"operators": ["PROTOCOL"]})`,
	"COMMON_DURATION": "(DS_RX_BEG:DS_TX_END)",
	"METADATA":        "(CLUSTER:a)",
	"XFCC_VALUE":      "(uri)",
}

// TestEnvoyAcceptsOperators configures the real Envoy with each operator that simulate accepts.
func TestEnvoyAcceptsOperators(t *testing.T) {
	for name := range strings.FieldsSeq("CEL CLUSTER_METADATA DYNAMIC_METADATA ENVIRONMENT FILTER_STATE QUERY_PARAM REQ REQUEST_HEADER " +
		"REQ_WITHOUT_QUERY RESP RESPONSE_HEADER RESPONSE_TRAILER STREAM_INFO_REQ TRAILER TYPED_CEL UPSTREAM_FILTER_STATE UPSTREAM_METADATA") {
		arguments[name] = "(a)"
	}
	format := logFormat{json: map[string]string{}}
	for _, name := range accesslog.Operators() {
		format.json[name] = "%" + name + arguments[name] + "%"
	}
	accessLog := format.accessLog(os.DevNull) + `
                        formatters:
                          - name: envoy.formatter.req_without_query
                            typed_config: { "@type": type.googleapis.com/envoy.extensions.formatter.req_without_query.v3.ReqWithoutQuery }`
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(goldenBootstrap, "ACCESS_LOG", accessLog, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := envoy.Validate(t.Context(), suite.Envoy(t, root), file); err != nil {
		t.Error(err)
	}
}
