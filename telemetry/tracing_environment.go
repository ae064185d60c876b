package telemetry

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// CheckTracing returns an error for each of OpenTelemetry's exporter variables that its SDK would
// ignore. The SDK prints values that it cannot parse in a format of its own, including tokens in
// headers, and sends spans elsewhere. protocol is http or grpc.
func CheckTracing(protocol string) error {
	const prefix = "OTEL_EXPORTER_OTLP_"
	var found []error
	for _, signal := range []string{"", "TRACES_"} {
		for _, v := range []struct {
			name    string
			good    func(string) bool
			allowed string
		}{
			{"ENDPOINT", func(text string) bool { return isEndpoint(protocol, text) }, "must be a URL such as http://collector:4318"},
			{"HEADERS", areHeaders, "must be name=value,name=value, with values as in a URL"},
			{"TIMEOUT", isCount, "must be a whole number of milliseconds"},
		} {
			name := prefix + signal + v.name
			text := strings.TrimSpace(os.Getenv(name))
			if text == "" || v.good(text) {
				continue
			}
			shown := strconv.Quote(text)
			// A URL may contain a password.
			if v.name == "HEADERS" || strings.Contains(text, "@") {
				shown = "(not shown)"
			}
			found = append(found, fmt.Errorf("%s=%s: %s", name, shown, v.allowed))
		}
	}
	if _, err := spanQueue(); err != nil {
		found = append(found, err)
	}
	return errors.Join(found...)
}

func isEndpoint(protocol, text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false // also for 10.0.0.1:4317
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https":
		return u.Host != ""
	default:
		// Over gRPC any name that grpc-go resolves is valid, such as collector:4317. Over HTTP it
		// must be a host, which is empty here.
		return protocol == "grpc"
	}
}

func areHeaders(text string) bool {
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue // the SDK reports it, but it is harmless
		}
		name, value, found := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(value); !found || err != nil || !IsHeaderName(strings.TrimSpace(name)) {
			return false
		}
	}
	return true
}

func isCount(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 0
}

// IsHeaderName reports whether name is a valid header name: a token of RFC 9110, 5.6.2.
func IsHeaderName(name string) bool {
	return name != "" &&
		strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// spanQueue returns the size of the span queue: OTEL_BSP_MAX_QUEUE_SIZE, or the SDK's default.
func spanQueue() (int, error) {
	const name, preset = "OTEL_BSP_MAX_QUEUE_SIZE", 2048
	text := strings.TrimSpace(os.Getenv(name))
	if text == "" {
		return preset, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1<<20 {
		return 0, fmt.Errorf("%s=%q: must be a whole number, 1 to %d", name, text, 1<<20)
	}
	return n, nil
}
