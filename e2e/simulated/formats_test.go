package simulated_test

import (
	"strconv"
	"strings"
)

// logFormat is a format of Envoy's access log.
type logFormat struct {
	name string
	// text or json configures the format; both are empty for Envoy's default.
	text string
	json map[string]string
	// format is simulate's --format, or empty.
	format string
}

const metadataOperator = "%DYNAMIC_METADATA(envoy.filters.http.ratelimit)%"

// istioText is Istio's default format.
const istioText = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%` + "\n"

// gatewayJSON is Envoy Gateway's default format.
var gatewayJSON = map[string]string{
	"start_time":                        "%START_TIME%",
	"method":                            "%REQ(:METHOD)%",
	"x-envoy-origin-path":               "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
	"protocol":                          "%PROTOCOL%",
	"response_code":                     "%RESPONSE_CODE%",
	"response_flags":                    "%RESPONSE_FLAGS%",
	"response_code_details":             "%RESPONSE_CODE_DETAILS%",
	"connection_termination_details":    "%CONNECTION_TERMINATION_DETAILS%",
	"upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
	"bytes_received":                    "%BYTES_RECEIVED%",
	"bytes_sent":                        "%BYTES_SENT%",
	"duration":                          "%DURATION%",
	"x-envoy-upstream-service-time":     "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
	"x-forwarded-for":                   "%REQ(X-FORWARDED-FOR)%",
	"user-agent":                        "%REQ(USER-AGENT)%",
	"x-request-id":                      "%REQ(X-REQUEST-ID)%",
	":authority":                        "%REQ(:AUTHORITY)%",
	"upstream_host":                     "%UPSTREAM_HOST%",
	"upstream_cluster":                  "%UPSTREAM_CLUSTER%",
	"upstream_local_address":            "%UPSTREAM_LOCAL_ADDRESS%",
	"downstream_local_address":          "%DOWNSTREAM_LOCAL_ADDRESS%",
	"downstream_remote_address":         "%DOWNSTREAM_REMOTE_ADDRESS%",
	"requested_server_name":             "%REQUESTED_SERVER_NAME%",
	"route_name":                        "%ROUTE_NAME%",
}

// accessLog returns the configuration that writes the log to a file, to be inserted below the
// connection manager's stat_prefix in an example.
func (f logFormat) accessLog(path string) string {
	const indent = "\n                  "
	var b strings.Builder
	b.WriteString(indent + "- name: envoy.access_loggers.file")
	b.WriteString(indent + "  typed_config:")
	b.WriteString(indent + `    "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog`)
	b.WriteString(indent + "    path: " + strconv.Quote(path))
	switch {
	case f.text != "":
		b.WriteString(indent + "    log_format: { text_format_source: { inline_string: " + strconv.Quote(f.text) + " } }")
	case f.json != nil:
		b.WriteString(indent + "    log_format:")
		b.WriteString(indent + "      json_format:")
		for key, value := range f.json {
			b.WriteString(indent + "        " + strconv.Quote(key) + ": " + strconv.Quote(value))
		}
	}
	return b.String()
}
