package environment

import (
	"slices"
	"strings"
)

// Variable is a setting of envoyproxy/ratelimit, or of a library that it uses.
type Variable struct {
	Name   string
	kind   kind
	preset string // default of envoyproxy/ratelimit
	// Flag is the flag that it sets, alone or with others, without the leading hyphens; Name, if only
	// this variable sets it. A supported variable without a flag changes the meaning of others.
	Flag   string
	traits traits
	// note is for the documentation: the difference to envoyproxy/ratelimit, or why the variable is
	// not supported.
	note string
}

type traits byte

const (
	// accepted variables have no effect; rejected ones prevent the start.
	accepted traits = 1 << iota
	rejected
	// computed variables set their flag together with others, in code. Other variables set it to
	// their value.
	computed
	// port variables are port numbers.
	port
	// lenient variables do not prevent the start if they are invalid, because envoyproxy/ratelimit
	// starts with an invalid value.
	lenient
	// secret variables are never printed.
	secret
	// neverRead variables are not read by any version of envoyproxy/ratelimit, but are set by
	// mistake. The note names the right one.
	neverRead
)

func (v *Variable) has(t traits) bool { return v.traits&t != 0 }

// Supported reports whether v has an effect.
func (v *Variable) Supported() bool { return !v.has(accepted | rejected) }

// Secret reports whether the value of v must never be printed.
func (v *Variable) Secret() bool { return v.has(secret) }

// choices are the valid values of some variables.
var choices = map[string][]string{
	"CONFIG_TYPE":               {"FILE", "GRPC_XDS_SOTW"},
	"STATSD_PROTOCOL":           {"tcp", "udp"},
	"TRACING_EXPORTER_PROTOCOL": {"http", "grpc"},
	"BACKEND_TYPE":              {"memory", "redis", "memcache"},
}

// switches are booleans with the prefixes of the variables that have no effect unless the boolean
// is true.
var switches = []struct {
	name     string
	prefixes []string
}{
	{"GRPC_SERVER_USE_TLS", []string{"GRPC_SERVER_TLS_", "GRPC_CLIENT_TLS_"}},
	{"CONFIG_GRPC_XDS_SERVER_USE_TLS", []string{"CONFIG_GRPC_XDS_SERVER_TLS_", "CONFIG_GRPC_XDS_CLIENT_TLS_"}},
	{"USE_DOG_STATSD", []string{"USE_DOG_STATSD_MOGRIFIERS"}},
	{"TRACING_ENABLED", []string{"TRACING_"}},
}

// requiredSwitch returns the switch that a supported variable depends on, or "".
func (v *Variable) requiredSwitch() string {
	for _, s := range switches {
		begins := func(prefix string) bool { return strings.HasPrefix(v.Name, prefix) }
		if v.Supported() && v.Name != s.name && slices.ContainsFunc(s.prefixes, begins) {
			return s.name
		}
	}
	return ""
}

// Reasons why variables have no effect.
const (
	reasonInMemory     = "counters are in the memory of this process"
	reasonAutomatic    = "concurrent requests are batched into one message, and all shards are queried in parallel"
	reasonStartup      = "the start waits at most a second for the store; it retries after 0.375 to 0.625 s, and `--store-fallback` decides until the store replies"
	reasonAWS          = "sluice does not request tokens from AWS: let another program write `user:token` to the file of REDIS_AUTH_FILE, which is read for each new connection"
	reasonAWSPerSecond = "sluice does not request tokens from AWS: let another program write `user:token` to the file of REDIS_PERSECOND_AUTH_FILE"
	reasonMemcache     = "memcached is not supported: it cannot run scripts"
	reasonDecay        = "only proposed in envoyproxy/ratelimit: use redis, and `algorithm: token_bucket` in rules"
	reasonMemcacheHost = "unless BACKEND_TYPE is memory, or --store is set: limits would have another meaning"
)

// decayBackend is a proposed value of BACKEND_TYPE.
const decayBackend = "redis_decay"

// section is a group of variables in the documentation.
type section struct {
	title     string
	variables []Variable
}

// sections has all variables, in the order of the documentation.
var sections = []section{
	{"Listeners", []Variable{
		{"HOST", aString, "0.0.0.0", "http-addr", computed, ""},
		{"PORT", anInt, "8080", "http-addr", computed | port, ""},
		{"GRPC_HOST", aString, "0.0.0.0", "grpc-addr", computed, ""},
		{"GRPC_PORT", anInt, "8081", "grpc-addr", computed | port, ""},
		{"GRPC_UDS", aString, "", "grpc-addr", computed, ""},
		{"DEBUG_HOST", aString, "0.0.0.0", "debug-addr", computed, "with DEBUG_PORT; unset: 127.0.0.1"},
		{"DEBUG_PORT", anInt, "6070", "debug-addr", computed | port, ""},
		{"GRPC_MAX_CONNECTION_AGE", aDuration, "24h", "max-connection-age", lenient, ""},
		{"GRPC_MAX_CONNECTION_AGE_GRACE", aDuration, "1h", "GRPC_MAX_CONNECTION_AGE_GRACE", lenient, ""},
		{"GRPC_SERVER_USE_TLS", aBool, "false", "", 0, ""},
		{"GRPC_SERVER_TLS_CERT", aString, "", "grpc-tls-cert", 0, ""},
		{"GRPC_SERVER_TLS_KEY", aString, "", "grpc-tls-key", 0, ""},
		{"GRPC_CLIENT_TLS_CACERT", aString, "", "grpc-client-ca", 0, ""},
		{"GRPC_CLIENT_TLS_SAN", aString, "", "grpc-client-san", 0, ""},
		{"GRPC_SERVER_TLS_CA_CERT", aString, "", "", accepted, "envoyproxy/ratelimit does not read it either; Envoy Gateway sets it"},
	}},
	{"Rules", []Variable{
		{"CONFIG_TYPE", aString, "FILE", "", 0, ""},
		{"RUNTIME_ROOT", aString, "/srv/runtime_data/current", "config", computed, "once one of RUNTIME_* is set, the defaults of the others are those of envoyproxy/ratelimit"},
		{"RUNTIME_SUBDIRECTORY", aString, "", "config", computed, "required while RUNTIME_WATCH_ROOT is true: without it envoyproxy/ratelimit reads no file and limits nothing"},
		{"RUNTIME_APPDIRECTORY", aString, "config", "config", computed, ""},
		{"RUNTIME_WATCH_ROOT", aBool, "true", "config", computed, ""},
		{"RUNTIME_IGNOREDOTFILES", aBool, "false", "", accepted | computed, "files and directories whose names start with a dot are always ignored, so that a mounted ConfigMap is read once"},
		{"MERGE_DOMAIN_CONFIG", aBool, "false", "merge-domains", 0, ""},
		{"FORCE_START_WITHOUT_INITIAL_CONFIG", aBool, "false", "on-bad-start", computed, "true means `serve`, which is the default under the name ratelimit; over xDS also `--start-without-rules`"},
		{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", aBool, "false", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", 0, ""},
	}},
	{"Rules over xDS, while CONFIG_TYPE is GRPC_XDS_SOTW", []Variable{
		{"CONFIG_GRPC_XDS_SERVER_URL", aString, "localhost:18000", "xds-addr", computed, ""},
		{"CONFIG_GRPC_XDS_NODE_ID", aString, "default", "xds-node-id", 0, ""},
		{"CONFIG_GRPC_XDS_NODE_METADATA", aString, "", "xds-node-metadata", computed, ""},
		{"CONFIG_GRPC_XDS_SERVER_USE_TLS", aBool, "false", "xds-tls", 0, ""},
		{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", aString, "", "xds-ca", 0, ""},
		{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", aString, "", "xds-san", 0, ""},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", aString, "", "xds-cert", 0, ""},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", aString, "", "xds-key", 0, ""},
		{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", aMap, "", "xds-header", computed | secret, ""},
		{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", aDuration, "3s", "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", 0, "unset: 1s"},
		{"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", aDuration, "10s", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", computed, ""},
		{"XDS_CLIENT_BACKOFF_MAX_INTERVAL", aDuration, "60s", "XDS_CLIENT_BACKOFF_MAX_INTERVAL", 0, ""},
		{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", aFloat64, "0.5", "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", 0, "unset: 2"},
		{"XDS_CLIENT_BACKOFF_JITTER", aBool, "true", "XDS_CLIENT_BACKOFF_JITTER", 0, ""},
		{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", anInt, "", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", computed, ""},
	}},
	{"Decisions and replies", []Variable{
		{"SHADOW_MODE", aBool, "false", "shadow-mode", 0, ""},
		{"QUOTA_MODE", aBool, "false", "QUOTA_MODE", 0, ""},
		{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", aBool, "false", "all-or-nothing", 0, "atomically, and a denied request charges nothing"},
		{"NEAR_LIMIT_RATIO", aFloat32, "0.8", "NEAR_LIMIT_RATIO", 0, ""},
		{"USE_CALENDAR_MONTH_RATE_LIMIT", aBool, "false", "calendar-months", 0, ""},
		{"LIMIT_RESPONSE_HEADERS_ENABLED", aBool, "false", "LIMIT_RESPONSE_HEADERS_ENABLED", 0, ""},
		{"LIMIT_LIMIT_HEADER", aString, "RateLimit-Limit", "LIMIT_LIMIT_HEADER", lenient, ""},
		{"LIMIT_REMAINING_HEADER", aString, "RateLimit-Remaining", "LIMIT_REMAINING_HEADER", lenient, ""},
		{"LIMIT_RESET_HEADER", aString, "RateLimit-Reset", "LIMIT_RESET_HEADER", lenient, ""},
		{"LIMIT_REQUEST_HEADERS_ENABLED", aBool, "false", "request-headers", 0, "if a client sends headers with these names, the upstream receives them before those of sluice, as with envoyproxy/ratelimit: remove them in an earlier filter"},
		{"LIMIT_REQUEST_LIMIT_HEADER", aString, "RateLimit-Limit", "LIMIT_REQUEST_LIMIT_HEADER", lenient, ""},
		{"LIMIT_REQUEST_REMAINING_HEADER", aString, "RateLimit-Remaining", "LIMIT_REQUEST_REMAINING_HEADER", lenient, ""},
		{"LIMIT_REQUEST_RESET_HEADER", aString, "RateLimit-Reset", "LIMIT_REQUEST_RESET_HEADER", lenient, ""},
		{"RESPONSE_DYNAMIC_METADATA", aBool, "false", "dynamic-metadata", 0, ""},
		{"ENABLE_NEGATIVE_HITS", aBool, "false", "", accepted, "always on: `is_negative_hits` refunds hits"},
		{"SOFT_BREACH_HEADER_RATIO", aFloat64, "", "", accepted, "only proposed in envoyproxy/ratelimit. Use LIMIT_RESPONSE_HEADERS_ENABLED, whose header has the remaining requests, or notify_at in rules with --soft-header"},
	}},
	{"Logs", []Variable{
		{"LOG_LEVEL", aString, "WARN", "log-level", 0, "unset: info"},
		{"LOG_FORMAT", aString, "text", "log-format", computed, ""},
	}},
	{"Metrics and tracing", []Variable{
		{"DISABLE_STATS", aBool, "false", "", 0, ""},
		{"USE_PROMETHEUS", aBool, "false", "metrics-addr", computed, "unset: on, unless the port is in use"},
		{"PROMETHEUS_ADDR", aString, ":9090", "metrics-addr", computed | lenient, ""},
		{"PROMETHEUS_PATH", aString, "/metrics", "PROMETHEUS_PATH", 0, ""},
		{"PROMETHEUS_MAPPER_YAML", aString, "", "", accepted, "metrics are not translated from StatsD: they have the names of the default mapping of envoyproxy/ratelimit"},
		{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", aBool, "false", "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", 0, ""},
		{"DESCRIPTOR_KEY_CONFIG", aString, "", "", accepted, "only proposed in envoyproxy/ratelimit. The series of overrides are bounded without it: at most 1,000 rules with values of requests have their own, and the rest share `other`"},
		{"SANITIZE_DESCRIPTOR_METRIC_DOTS", aBool, "false", "SANITIZE_DESCRIPTOR_METRIC_DOTS", 0, ""},
		{"USE_STATSD", aBool, "true", "", 0, "unset: off, unless STATSD_HOST or STATSD_PORT is set"},
		{"USE_DOG_STATSD", aBool, "false", "", 0, ""},
		{"STATSD_HOST", aString, "localhost", "statsd-addr", computed, ""},
		{"STATSD_PORT", anInt, "8125", "statsd-addr", computed | port, ""},
		{"STATSD_PROTOCOL", aString, "tcp", "statsd-addr", computed, ""},
		{"USE_DOG_STATSD_MOGRIFIERS", aList, "", "dogstatsd-mogrifier", computed, ""},
		{"DOG_STATSD_MOGRIFIER_<NAME>_PATTERN", aString, "", "dogstatsd-mogrifier", computed, ""},
		{"DOG_STATSD_MOGRIFIER_<NAME>_NAME", aString, "", "dogstatsd-mogrifier", computed, ""},
		{"DOG_STATSD_MOGRIFIER_<NAME>_TAGS", aMap, "", "dogstatsd-mogrifier", computed, ""},
		{"EXTRA_TAGS", aMap, "", "extra-tags", computed, "also labels of the Prometheus series"},
		{"STATS_FLUSH_INTERVAL", aDuration, "10s", "STATS_FLUSH_INTERVAL", 0, ""},
		{"GOSTATS_FLUSH_INTERVAL_SECONDS", anInt, "5", "", accepted, "StatsD is sent every STATS_FLUSH_INTERVAL"},
		{"GOSTATS_LOGGING_SINK_DISABLED", aBool, "false", "", accepted, "metrics are never written to the log"},
		{"TRACING_ENABLED", aBool, "false", "tracing", 0, ""},
		{"TRACING_EXPORTER_PROTOCOL", aString, "http", "TRACING_EXPORTER_PROTOCOL", 0, ""},
		{"TRACING_SERVICE_NAME", aString, "RateLimit", "TRACING_SERVICE_NAME", 0, ""},
		{"TRACING_SERVICE_NAMESPACE", aString, "", "TRACING_SERVICE_NAMESPACE", 0, ""},
		{"TRACING_SERVICE_INSTANCE_ID", aString, "", "TRACING_SERVICE_INSTANCE_ID", 0, ""},
		{"TRACING_SAMPLING_RATE", aFloat64, "1", "TRACING_SAMPLING_RATE", computed, ""},
		{"OTEL_*", aString, "", "", secret, ""},
	}},
	{"The store of counters", []Variable{
		{"BACKEND_TYPE", aString, "redis", "", 0, "unset: redis if REDIS_URL is set, else memory. `memory` counts in this process, whatever else is set; memcache prevents the start: " + reasonMemcache + "; so does `" + decayBackend + "`: " + reasonDecay},
		{"REDIS_URL", aString, "/var/run/nutcracker/ratelimit.sock", "store", computed | secret, "as in envoyproxy/ratelimit: host:port, redis://user:password@host:port/database or a path; it also sets `--store-names=ratelimit`"},
		{"REDIS_TYPE", aString, "SINGLE", "store", computed, ""},
		{"REDIS_SOCKET_TYPE", aString, "unix", "store", computed, "unset: unix if REDIS_URL is a path, else tcp"},
		{"REDIS_AUTH", aString, "", "REDIS_AUTH", computed | secret, ""},
		{"REDIS_AUTH_FILE", aString, "", "store-auth-file", computed, ""},
		{"REDIS_SENTINEL_AUTH", aString, "", "REDIS_SENTINEL_AUTH", computed | secret, ""},
		{"REDIS_TLS", aBool, "false", "store", computed, ""},
		{"REDIS_TLS_CLIENT_CERT", aString, "", "store-cert", computed, ""},
		{"REDIS_TLS_CLIENT_KEY", aString, "", "store-key", computed, ""},
		{"REDIS_TLS_CACERT", aString, "", "store-ca", computed, ""},
		{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", aBool, "false", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", computed, ""},
		{"CACHE_KEY_PREFIX", aString, "", "store-prefix", computed, ""},
		{"REDIS_PERSECOND", aBool, "false", "store-per-second", computed, ""},
		{"REDIS_PERSECOND_URL", aString, "/var/run/nutcracker/ratelimitpersecond.sock", "store-per-second", computed | secret, ""},
		{"REDIS_PERSECOND_TYPE", aString, "SINGLE", "store-per-second", computed, ""},
		{"REDIS_PERSECOND_SOCKET_TYPE", aString, "unix", "store-per-second", computed, ""},
		{"REDIS_PERSECOND_AUTH", aString, "", "REDIS_PERSECOND_AUTH", computed | secret, ""},
		{"REDIS_PERSECOND_AUTH_FILE", aString, "", "REDIS_PERSECOND_AUTH_FILE", computed, ""},
		{"REDIS_PERSECOND_SENTINEL_AUTH", aString, "", "REDIS_PERSECOND_SENTINEL_AUTH", computed | secret, ""},
		{"REDIS_PERSECOND_TLS", aBool, "false", "store-per-second", computed, ""},
		{"MEMCACHE_HOST_PORT", aList, "", "", rejected, reasonMemcacheHost},
		{"MEMCACHE_SRV", aString, "", "", rejected, reasonMemcacheHost},
		{"EXPIRATION_JITTER_MAX_SECONDS", anInt64, "300", "EXPIRATION_JITTER_MAX_SECONDS", computed | lenient, "unset: a minute. At most the window; 0 logs a warning"},
		{"LOCAL_CACHE_SIZE_IN_BYTES", anInt, "0", "", accepted, "the last known state of the store is cached within --counter-memory"},
		{"REDIS_POOL_SIZE", anInt, "10", "", accepted, reasonAutomatic},
		{"REDIS_PIPELINE_WINDOW", aDuration, "0", "", accepted, reasonAutomatic},
		{"REDIS_PIPELINE_LIMIT", anInt, "0", "", accepted, reasonAutomatic},
		{"REDIS_CLUSTER_PIPELINE_PARALLELISM", anInt, "1", "", accepted, reasonAutomatic},
		{"REDIS_POOL_ON_EMPTY_BEHAVIOR", aString, "WAIT", "", accepted, reasonAutomatic},
		{"REDIS_PERSECOND_POOL_SIZE", anInt, "10", "", accepted, reasonAutomatic},
		{"REDIS_PERSECOND_PIPELINE_WINDOW", aDuration, "0", "", accepted, reasonAutomatic},
		{"REDIS_PERSECOND_PIPELINE_LIMIT", anInt, "0", "", accepted, reasonAutomatic},
		{"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", anInt, "1", "", accepted, reasonAutomatic},
		{"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", aString, "WAIT", "", accepted, reasonAutomatic},
		{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", aBool, "false", "unhealthy-without-store", computed, ""},
		{"REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", aBool, "false", "", accepted, "always on"},
		{"REDIS_TIMEOUT", aDuration, "10s", "REDIS_TIMEOUT", computed | lenient, "the time to connect, and `--store-timeout`; unset: 1s each"},
		{"REDIS_PERSECOND_TIMEOUT", aDuration, "10s", "REDIS_PERSECOND_TIMEOUT", computed | lenient, ""},
		{"REDIS_STARTUP_INITIAL_INTERVAL", aDuration, "1s", "", accepted, reasonStartup},
		{"REDIS_STARTUP_MAX_INTERVAL", aDuration, "30s", "", accepted, reasonStartup},
		{"REDIS_STARTUP_MAX_ELAPSED_TIME", aDuration, "0", "", accepted, "the start waits at most a second for the store and does not fail without it; `--store-fallback` decides until the store replies"},
		{"REDIS_AWS_IAM_AUTH", aBool, "false", "", accepted, reasonAWS},
		{"REDIS_AWS_IAM_CACHE_NAME", aString, "", "", accepted, reasonAWS},
		{"REDIS_AWS_IAM_USER_ID", aString, "", "", accepted, reasonAWS},
		{"REDIS_AWS_IAM_SERVERLESS", aBool, "false", "", accepted, reasonAWS},
		{"REDIS_AWS_IAM_REGION", aString, "", "", accepted, reasonAWS},
		{"REDIS_PERSECOND_AWS_IAM_AUTH", aBool, "false", "", accepted, reasonAWSPerSecond},
		{"REDIS_PERSECOND_AWS_IAM_CACHE_NAME", aString, "", "", accepted, reasonAWSPerSecond},
		{"REDIS_PERSECOND_AWS_IAM_USER_ID", aString, "", "", accepted, reasonAWSPerSecond},
		{"REDIS_PERSECOND_AWS_IAM_SERVERLESS", aBool, "false", "", accepted, reasonAWSPerSecond},
		{"REDIS_HOST", aString, "", "", accepted | neverRead, "envoyproxy/ratelimit does not read it either: set REDIS_URL=host:port"},
		{"REDIS_PORT", aString, "", "", accepted | neverRead, "envoyproxy/ratelimit does not read it either: set REDIS_URL=host:port"},
		{"REDIS_PASSWORD", aString, "", "", accepted | neverRead | secret, "envoyproxy/ratelimit does not read it either: use REDIS_AUTH_FILE, or REDIS_AUTH"},
		{"MEMCACHE_MAX_IDLE_CONNS", anInt, "2", "", accepted, reasonMemcache},
		{"MEMCACHE_SRV_REFRESH", aDuration, "0", "", accepted, reasonMemcache},
		{"MEMCACHE_TLS", aBool, "false", "", accepted, reasonMemcache},
		{"MEMCACHE_TLS_CLIENT_CERT", aString, "", "", accepted, reasonMemcache},
		{"MEMCACHE_TLS_CLIENT_KEY", aString, "", "", accepted, reasonMemcache},
		{"MEMCACHE_TLS_CACERT", aString, "", "", accepted, reasonMemcache},
		{"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", aBool, "false", "", accepted, reasonMemcache},
	}},
}
