package environment

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/telemetry"
)

func (e *Environment) assignListeners() {
	e.assignAddress("http-addr", "HOST", "", "PORT", "8080")
	e.assignAddress("debug-addr", "DEBUG_HOST", "127.0.0.1", "DEBUG_PORT", "6070")
	path := e.set["GRPC_UDS"]
	switch {
	case path == "":
		e.assignAddress("grpc-addr", "GRPC_HOST", "", "GRPC_PORT", "8081")
		return
	case strings.HasPrefix(path, "@"):
		e.to("grpc-addr", "unix:"+path, "GRPC_UDS")
	default:
		absolute, err := filepath.Abs(path)
		if err != nil {
			e.fail("GRPC_UDS=%q: %w", path, err)
		}
		e.to("grpc-addr", "unix://"+absolute, "GRPC_UDS")
	}
	e.without("GRPC_UDS is set", "GRPC_HOST", "GRPC_PORT")
}

// assignAddress makes an address of two variables, of which one is set.
func (e *Environment) assignAddress(flag, host, anyHost, port, anyPort string) {
	if e.any(host, port) {
		e.to(flag, net.JoinHostPort(e.or(host, anyHost), e.port(port, anyPort)), host, port)
	}
}

// port returns a port in digits: variables may write it as 0x1f91 too.
func (e *Environment) port(name, other string) string {
	n, err := strconv.ParseInt(e.or(name, other), 0, 64)
	if err != nil {
		return other // only ports of the right kind are in e.set
	}
	return strconv.FormatInt(n, 10)
}

func (e *Environment) assignTLS() {
	if e.set["GRPC_CLIENT_TLS_CACERT"] == "" && !e.given["grpc-client-ca"] {
		e.without("GRPC_CLIENT_TLS_CACERT is not set, so that clients are asked for no certificate", "GRPC_CLIENT_TLS_SAN")
	}
	for _, name := range []string{"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"} {
		if e.on("GRPC_SERVER_USE_TLS") && e.set[name] == "" && !e.given[lookUp(name).Flag] {
			e.fail("GRPC_SERVER_USE_TLS=true: %s must name a file", name)
		}
	}
}

func (e *Environment) assignStats() {
	prometheus := []string{"PROMETHEUS_ADDR", "PROMETHEUS_PATH", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"}
	statsd := []string{"STATSD_HOST", "STATSD_PORT", "STATSD_PROTOCOL", "STATS_FLUSH_INTERVAL", "USE_DOG_STATSD_MOGRIFIERS"}
	if e.on("DISABLE_STATS") {
		e.to("metrics-addr", "", "DISABLE_STATS")
		e.without("DISABLE_STATS is true", append(append(prometheus, statsd...),
			"USE_PROMETHEUS", "USE_STATSD", "USE_DOG_STATSD", "EXTRA_TAGS", "PROMETHEUS_MAPPER_YAML")...)
		return
	}
	if e.off("USE_PROMETHEUS") {
		e.to("metrics-addr", "", "USE_PROMETHEUS")
		e.without("USE_PROMETHEUS is false", prometheus...)
	} else if e.any("USE_PROMETHEUS", "PROMETHEUS_ADDR") {
		e.to("metrics-addr", e.or("PROMETHEUS_ADDR", ":9090"), "USE_PROMETHEUS", "PROMETHEUS_ADDR")
	}
	dog := e.on("USE_DOG_STATSD")
	// There it is on unless it is switched off, so an address alone means to send.
	plain := e.on("USE_STATSD") || !e.off("USE_STATSD") && !dog && e.any("STATSD_HOST", "STATSD_PORT")
	if e.given["statsd-addr"] || e.given["dogstatsd-addr"] {
		e.without("the command line says where metrics are sent", "USE_STATSD", "USE_DOG_STATSD", "STATSD_HOST", "STATSD_PORT")
		plain, dog = plain && e.given["statsd-addr"], dog && e.given["dogstatsd-addr"]
	}
	addr := net.JoinHostPort(e.or("STATSD_HOST", "localhost"), e.port("STATSD_PORT", "8125"))
	if plain {
		e.to("statsd-addr", addr, "USE_STATSD", "STATSD_HOST", "STATSD_PORT")
		if e.any("STATSD_PROTOCOL") {
			e.to("statsd-protocol", e.set["STATSD_PROTOCOL"], "STATSD_PROTOCOL")
		}
	}
	if dog {
		e.to("dogstatsd-addr", addr, "USE_DOG_STATSD", "STATSD_HOST", "STATSD_PORT")
		if !plain {
			e.without("DogStatsD is sent over UDP", "STATSD_PROTOCOL")
		}
		e.assignMogrifiers()
	}
	if !plain && !dog {
		e.without("neither USE_STATSD nor USE_DOG_STATSD is true", statsd[:4]...)
	}
	e.assignTags()
}

// assignTags leaves out tags that cannot be labels: envoyproxy/ratelimit, which joins
// them to names, starts with any.
func (e *Environment) assignTags() {
	const variable = "EXTRA_TAGS"
	text := e.set[variable]
	items, _ := pairs(text)
	if len(items) == 0 || e.given["extra-tags"] {
		return
	}
	var good []telemetry.Tag
	var all []string
	for _, item := range items {
		tag := item[0] + ":" + item[1]
		parsed, err := telemetry.ParseTags(tag)
		if err == nil {
			err = telemetry.CheckTags(append(good, parsed...))
		}
		if err != nil {
			e.excused = append(e.excused, fmt.Sprintf("%s=%q: %v. This tag is left out", variable, text, err))
			continue
		}
		good, all = append(good, parsed...), append(all, tag)
	}
	if len(all) > 0 {
		e.to("extra-tags", strings.Join(all, ","), variable)
	}
}

// assignMogrifiers reads the variables of each mogrifier that is named.
func (e *Environment) assignMogrifiers() {
	names := e.set["USE_DOG_STATSD_MOGRIFIERS"]
	if strings.TrimSpace(names) == "" {
		return
	}
	from := []string{"USE_DOG_STATSD_MOGRIFIERS"}
	var all []any
	for name := range strings.SplitSeq(names, ",") {
		part := func(suffix string) string {
			v := *lookUp("DOG_STATSD_MOGRIFIER_<NAME>_" + suffix)
			v.Name = strings.ToUpper(strings.ReplaceAll(v.Name, "<NAME>", name))
			e.read(&v)
			from = append(from, v.Name)
			return e.set[v.Name]
		}
		pattern, renamed, tags := part("PATTERN"), part("NAME"), part("TAGS")
		if pattern == "" || renamed == "" {
			e.fail("USE_DOG_STATSD_MOGRIFIERS=%q: DOG_STATSD_MOGRIFIER_%s_PATTERN and _NAME must be set", names, strings.ToUpper(name))
		}
		all = append(all, pattern+";"+renamed+";"+tags)
	}
	e.to("dogstatsd-mogrifier", all, from...)
}

// assignTracing sets what of tracing has an effect. envoyproxy/ratelimit starts with what its SDK
// cannot read.
func (e *Environment) assignTracing() {
	if !e.given["tracing"] {
		if !e.on("TRACING_ENABLED") {
			return
		}
		if err := telemetry.CheckTracing(e.or("TRACING_EXPORTER_PROTOCOL", "http")); err != nil {
			why := "there is no tracing: " + strings.ReplaceAll(err.Error(), "\n", ", ")
			for v := range All() {
				if v.Name == "TRACING_ENABLED" || v.needs() == "TRACING_ENABLED" {
					e.without(why, v.Name)
				}
			}
			return
		}
	}
	const rate = "TRACING_SAMPLING_RATE"
	// There a rate beyond 0 or 1 is that one.
	if f, err := strconv.ParseFloat(e.set[rate], 64); err == nil {
		e.to("tracing-sampling-rate", strconv.FormatFloat(max(0, min(1, f)), 'g', -1, 64), rate)
	}
	for name := range e.all {
		if strings.HasPrefix(name, "OTEL_") && e.all[name] != "" {
			e.otel = append(e.otel, name)
		}
	}
	slices.Sort(e.otel)
}
