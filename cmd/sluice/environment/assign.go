package environment

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

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
		e.setFlag("grpc-addr", "unix:"+path, "GRPC_UDS")
	default:
		absolute, err := filepath.Abs(path)
		if err != nil {
			e.addProblem("GRPC_UDS=%q: %w", path, err)
		}
		e.setFlag("grpc-addr", "unix://"+absolute, "GRPC_UDS")
	}
	e.markUnused("GRPC_UDS is set", "GRPC_HOST", "GRPC_PORT")
}

// assignAddress sets the flag of an address if one of its two variables is set.
func (e *Environment) assignAddress(flag, host, defaultHost, port, defaultPort string) {
	if e.anySet(host, port) {
		e.setFlag(flag, net.JoinHostPort(e.valueOr(host, defaultHost), e.port(port, defaultPort)), host, port)
	}
}

// port returns a port in decimal digits. Variables may also have it in other bases, such as 0x1f91.
func (e *Environment) port(name, fallback string) string {
	n, err := strconv.ParseInt(e.valueOr(name, fallback), 0, 64)
	if err != nil {
		return fallback // not set: e.set has only valid ports
	}
	return strconv.FormatInt(n, 10)
}

func (e *Environment) assignTLS() {
	if e.set["GRPC_CLIENT_TLS_CACERT"] == "" && !e.given["grpc-client-ca"] {
		e.markUnused("GRPC_CLIENT_TLS_CACERT is not set, so clients are not asked for certificates",
			"GRPC_CLIENT_TLS_SAN")
	}
	for _, name := range []string{"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"} {
		if e.isTrue("GRPC_SERVER_USE_TLS") && e.set[name] == "" && !e.given[lookup(name).Flag] {
			e.addProblem("GRPC_SERVER_USE_TLS=true: %s must name a file", name)
		}
	}
}

func (e *Environment) assignStats() {
	prometheus := []string{"PROMETHEUS_ADDR", "PROMETHEUS_PATH", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"}
	statsd := []string{
		"STATSD_HOST", "STATSD_PORT", "STATSD_PROTOCOL", "STATS_FLUSH_INTERVAL", "USE_DOG_STATSD_MOGRIFIERS",
	}
	if e.isTrue("DISABLE_STATS") {
		e.setFlag("metrics-addr", "", "DISABLE_STATS")
		e.markUnused("DISABLE_STATS is true", append(append(prometheus, statsd...),
			"USE_PROMETHEUS", "USE_STATSD", "USE_DOG_STATSD", "EXTRA_TAGS", "PROMETHEUS_MAPPER_YAML")...)
		return
	}
	if e.isFalse("USE_PROMETHEUS") {
		e.setFlag("metrics-addr", "", "USE_PROMETHEUS")
		e.markUnused("USE_PROMETHEUS is false", prometheus...)
	} else if e.anySet("USE_PROMETHEUS", "PROMETHEUS_ADDR") {
		e.setFlag("metrics-addr", e.valueOr("PROMETHEUS_ADDR", ":9090"), "USE_PROMETHEUS", "PROMETHEUS_ADDR")
	}
	dog := e.isTrue("USE_DOG_STATSD")
	// In envoyproxy/ratelimit StatsD is on by default, so an address alone enables it.
	plain := e.isTrue("USE_STATSD") || !e.isFalse("USE_STATSD") && !dog && e.anySet("STATSD_HOST", "STATSD_PORT")
	addr := net.JoinHostPort(e.valueOr("STATSD_HOST", "localhost"), e.port("STATSD_PORT", "8125"))
	switch {
	case e.given["statsd-addr"]:
		e.markUnused("the command line sets where metrics are sent", "USE_STATSD", "USE_DOG_STATSD", "STATSD_HOST",
			"STATSD_PORT", "STATSD_PROTOCOL")
	case plain && dog:
		e.addProblem("USE_STATSD and USE_DOG_STATSD are mutually exclusive")
	case plain:
		e.setFlag("statsd-addr", e.valueOr("STATSD_PROTOCOL", "tcp")+"://"+addr, "USE_STATSD", "STATSD_HOST",
			"STATSD_PORT", "STATSD_PROTOCOL")
	case dog:
		e.setFlag("statsd-addr", "dogstatsd://"+addr, "USE_DOG_STATSD", "STATSD_HOST", "STATSD_PORT")
		e.markUnused("DogStatsD is sent over UDP", "STATSD_PROTOCOL")
	default:
		e.markUnused("neither USE_STATSD nor USE_DOG_STATSD is true", statsd[:4]...)
	}
	if dog {
		e.assignMogrifiers()
	}
	e.assignTags()
}

// assignTags skips tags that cannot be labels. envoyproxy/ratelimit starts with any tags, since it
// only appends them to names.
func (e *Environment) assignTags() {
	const variable = "EXTRA_TAGS"
	text := e.set[variable]
	items, _ := parsePairs(text)
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
			e.tolerated = append(e.tolerated, fmt.Sprintf("%s=%q: %v. Skipping this tag", variable, text, err))
			continue
		}
		good = append(good, parsed...)
		all = append(all, tag)
	}
	if len(all) > 0 {
		e.setFlag("extra-tags", strings.Join(all, ","), variable)
	}
}

func (e *Environment) assignMogrifiers() {
	names := e.set["USE_DOG_STATSD_MOGRIFIERS"]
	if strings.TrimSpace(names) == "" {
		return
	}
	from := []string{"USE_DOG_STATSD_MOGRIFIERS"}
	var all []any
	for name := range strings.SplitSeq(names, ",") {
		part := func(suffix string) string {
			v := *lookup("DOG_STATSD_MOGRIFIER_<NAME>_" + suffix)
			v.Name = strings.ToUpper(strings.ReplaceAll(v.Name, "<NAME>", name))
			e.readVariable(&v)
			from = append(from, v.Name)
			return e.set[v.Name]
		}
		pattern := part("PATTERN")
		renamed := part("NAME")
		tags := part("TAGS")
		if pattern == "" || renamed == "" {
			e.addProblem("USE_DOG_STATSD_MOGRIFIERS=%q: DOG_STATSD_MOGRIFIER_%s_PATTERN and _NAME must be set", names,
				strings.ToUpper(name))
		}
		all = append(all, pattern+";"+renamed+";"+tags)
	}
	e.setFlag("dogstatsd-mogrifier", all, from...)
}

// assignTracing sets the flags of tracing. If the variables of OpenTelemetry are invalid, it
// disables tracing instead of preventing the start, because envoyproxy/ratelimit also starts.
func (e *Environment) assignTracing() {
	if !e.given["tracing"] {
		if !e.isTrue("TRACING_ENABLED") {
			return
		}
		if err := telemetry.CheckTracing(e.valueOr("TRACING_EXPORTER_PROTOCOL", "http")); err != nil {
			why := "tracing is off: " + strings.ReplaceAll(err.Error(), "\n", ", ")
			for v := range All() {
				if v.Name == "TRACING_ENABLED" || v.requiredSwitch() == "TRACING_ENABLED" {
					e.markUnused(why, v.Name)
				}
			}
			return
		}
	}
	const rate = "TRACING_SAMPLING_RATE"
	// envoyproxy/ratelimit clamps the rate to 0 and 1.
	if f, err := strconv.ParseFloat(e.set[rate], 64); err == nil {
		e.setFlag(rate, strconv.FormatFloat(max(0, min(1, f)), 'g', -1, 64), rate)
	}
	for name := range e.environ {
		if strings.HasPrefix(name, "OTEL_") && e.environ[name] != "" {
			e.otel = append(e.otel, name)
		}
	}
	slices.Sort(e.otel)
}

var runtimeNames = []string{
	"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY", "RUNTIME_WATCH_ROOT", "RUNTIME_IGNOREDOTFILES",
}

func (e *Environment) assignSource() {
	xds := e.set["CONFIG_TYPE"] == "GRPC_XDS_SOTW"
	const byFlag = "the command line sets the source of rules"
	switch {
	case e.given["config"] || e.given["xds-addr"]:
		e.markUnused(byFlag, append(runtimeNames, "CONFIG_TYPE", "CONFIG_GRPC_XDS_SERVER_URL")...)
	case xds:
		e.markUnused("rules come over xDS", runtimeNames...)
		e.setFlag("xds-addr", e.valueOr("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"), "CONFIG_TYPE",
			"CONFIG_GRPC_XDS_SERVER_URL")
	default:
		e.markUnused("CONFIG_TYPE is not GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL")
		if e.anySet(runtimeNames...) {
			e.assignRuntime()
		}
	}
	if !e.given["xds-addr"] && (!xds || e.given["config"]) {
		for v := range All() {
			if strings.HasPrefix(v.Name, "CONFIG_GRPC_XDS_") || strings.HasPrefix(v.Name, "XDS_CLIENT_") {
				e.markUnused("rules do not come over xDS", v.Name)
			}
		}
		return
	}
	e.assignXDS()
}

// assignRuntime selects the rule files as envoyproxy/ratelimit does.
func (e *Environment) assignRuntime() {
	dir := filepath.Join(e.valueOr("RUNTIME_ROOT", "/srv/runtime_data/current"), e.set["RUNTIME_SUBDIRECTORY"])
	app := e.valueOr("RUNTIME_APPDIRECTORY", "config")
	if e.isFalse("RUNTIME_IGNOREDOTFILES") {
		e.markUnused(lookup("RUNTIME_IGNOREDOTFILES").note, "RUNTIME_IGNOREDOTFILES")
	}
	from := runtimeNames[:4]
	if e.isFalse("RUNTIME_WATCH_ROOT") {
		e.setFlag("config", filepath.Join(dir, app), from...)
		return
	}
	if e.set["RUNTIME_SUBDIRECTORY"] == "" {
		e.addProblem(`RUNTIME_SUBDIRECTORY is not set while RUNTIME_WATCH_ROOT is true: envoyproxy/ratelimit would read no files and limit nothing.
Set it, or RUNTIME_WATCH_ROOT=false, or --config PATH`)
		return
	}
	e.setFlag("config", dir, from...)
	e.setFlag("config-prefix", app+".", from...)
}

func (e *Environment) assignXDS() {
	if e.isTrue("FORCE_START_WITHOUT_INITIAL_CONFIG") {
		e.setFlag("start-without-rules", "true", "FORCE_START_WITHOUT_INITIAL_CONFIG")
	}
	if text := e.set["CONFIG_GRPC_XDS_NODE_METADATA"]; text != "" {
		items := slices.DeleteFunc(strings.Split(text, ","),
			func(item string) bool { return !strings.Contains(item, "=") })
		e.setFlag("xds-node-metadata", strings.Join(items, ","), "CONFIG_GRPC_XDS_NODE_METADATA")
	}
	if text := e.set["CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"]; text != "" {
		headers, _ := parsePairs(text)
		var all []any
		for _, h := range headers {
			all = append(all, h[0]+"="+h[1])
		}
		e.setFlag("xds-header", all, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS")
	}
	// 0 means the default, as in envoyproxy/ratelimit.
	if n, err := strconv.ParseInt(e.set["XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"], 0, 64); err == nil && n != 0 {
		e.setFlag("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", strconv.FormatInt(n, 10), "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES")
	}
	// The initial interval is capped at the maximum, as in envoyproxy/ratelimit.
	const first, longest = "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "XDS_CLIENT_BACKOFF_MAX_INTERVAL"
	initial, err1 := time.ParseDuration(e.valueOr(first, "10s"))
	most, err2 := time.ParseDuration(e.valueOr(longest, "60s"))
	if err1 == nil && err2 == nil && initial > most {
		e.setFlag(first, most.String(), first, longest)
	} else if e.anySet(first) {
		e.setFlag(first, e.set[first], first)
	}
}
