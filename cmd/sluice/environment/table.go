package environment

// Variable is a setting of envoyproxy/ratelimit, or of a library that it reads the
// environment with.
type Variable struct {
	Name string
	// Flag is the flag that it sets, alone or with others, without hyphens. A
	// supported variable without one chooses what others mean.
	Flag string
	// Secret says that its value is never printed.
	Secret bool

	kind   kind
	preset string // the default there
	status status
	// note is for the documentation. It says what differs from there, or why the
	// variable is not supported.
	note string
	// allowed are the only values, if not nil.
	allowed []string
	// joined says that code makes the flag's value, from other variables too. Without
	// it the flag gets the variable's value.
	joined bool
	// needs is a boolean without which it has no effect.
	needs string
	port  bool // the number of a port
	// excused says that envoyproxy/ratelimit starts with a bad value, so that it must
	// not end the start here.
	excused bool
}

// Supported reports whether v has an effect.
func (v *Variable) Supported() bool { return v.status == supported }

// status is what becomes of a variable.
type status string

const (
	supported status = "supported"
	accepted  status = "accepted without effect"
	rejected  status = "rejected"
)

// Why variables have no effect.
const (
	inMemory    = "counters are in this process's memory"
	byItself    = "requests that come at once share a message to the store, and all shards are asked at once"
	lookedFor   = "no start waits for the store: it is looked for each half second, and until it answers `--store-fallback` decides"
	notMemcache = "memcached cannot be the store: it runs no scripts"
	noCalendar  = "a month is 30 days from the epoch on, as there without it"
	ownSchedule = "statsd is sent every STATS_FLUSH_INTERVAL"
)

// section is variables of one subject.
type section struct {
	title     string
	variables []Variable
}

// sections are all variables, in the order of the documentation.
var sections = []section{
	{"Listeners", []Variable{
		joins("HOST", aString, "0.0.0.0", "http-addr", "with PORT; unset: all addresses"),
		joinsPort("PORT", "8080", "http-addr", "with HOST"),
		joins("GRPC_HOST", aString, "0.0.0.0", "grpc-addr", "with GRPC_PORT; unset: all addresses"),
		joinsPort("GRPC_PORT", "8081", "grpc-addr", "with GRPC_HOST"),
		joins("GRPC_UDS", aString, "", "grpc-addr", "the path of a unix socket, or `@name`; GRPC_HOST and GRPC_PORT have no effect then"),
		joins("DEBUG_HOST", aString, "0.0.0.0", "debug-addr", "with DEBUG_PORT; unset: 127.0.0.1"),
		joinsPort("DEBUG_PORT", "6070", "debug-addr", "with DEBUG_HOST"),
		excused(sets("GRPC_MAX_CONNECTION_AGE", aDuration, "24h", "max-connection-age", "")),
		excused(sets("GRPC_MAX_CONNECTION_AGE_GRACE", aDuration, "1h", "max-connection-age-grace", "")),
		chooses("GRPC_SERVER_USE_TLS", aBool, "false", "with GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY"),
		needs("GRPC_SERVER_USE_TLS", sets("GRPC_SERVER_TLS_CERT", aString, "", "grpc-tls-cert", "while GRPC_SERVER_USE_TLS is true")),
		needs("GRPC_SERVER_USE_TLS", sets("GRPC_SERVER_TLS_KEY", aString, "", "grpc-tls-key", "while GRPC_SERVER_USE_TLS is true")),
		needs("GRPC_SERVER_USE_TLS", sets("GRPC_CLIENT_TLS_CACERT", aString, "", "grpc-client-ca", "while GRPC_SERVER_USE_TLS is true")),
		needs("GRPC_SERVER_USE_TLS", sets("GRPC_CLIENT_TLS_SAN", aString, "", "grpc-client-san", "while GRPC_CLIENT_TLS_CACERT is set")),
		ignored("GRPC_SERVER_TLS_CA_CERT", aString, "", "envoyproxy/ratelimit does not read it either; Envoy Gateway sets it"),
	}},
	{"Rules", []Variable{
		choice("CONFIG_TYPE", "FILE", "the rules come from files, or over xDS", "FILE", "GRPC_XDS_SOTW"),
		joins("RUNTIME_ROOT", aString, "/srv/runtime_data/current", "config", "once one of RUNTIME_* is set, the defaults of the others are those of envoyproxy/ratelimit"),
		joins("RUNTIME_SUBDIRECTORY", aString, "", "config", "required while RUNTIME_WATCH_ROOT is true: without it envoyproxy/ratelimit reads no file and limits nothing"),
		joins("RUNTIME_APPDIRECTORY", aString, "config", "config", "while RUNTIME_WATCH_ROOT is true, the files whose path below the subdirectory, with dots for slashes, begins with it and a dot; else the directory"),
		joins("RUNTIME_WATCH_ROOT", aBool, "true", "config", "it chooses the files; changes are seen either way, also where envoyproxy/ratelimit misses them"),
		joined(ignored("RUNTIME_IGNOREDOTFILES", aBool, "false", "files and directories whose names begin with a dot are always left out, so that a mounted ConfigMap is read once")),
		sets("MERGE_DOMAIN_CONFIG", aBool, "false", "merge-domains", ""),
		joins("FORCE_START_WITHOUT_INITIAL_CONFIG", aBool, "false", "on-bad-start", "true means `serve`, which is the default under the name ratelimit; over xDS also `--start-without-rules`"),
		sets("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", aBool, "false", "unhealthy-without-rules", ""),
	}},
	{"Rules over xDS, while CONFIG_TYPE is GRPC_XDS_SOTW", []Variable{
		joins("CONFIG_GRPC_XDS_SERVER_URL", aString, "localhost:18000", "xds-addr", ""),
		sets("CONFIG_GRPC_XDS_NODE_ID", aString, "default", "xds-node-id", ""),
		joins("CONFIG_GRPC_XDS_NODE_METADATA", aString, "", "xds-node-metadata", "`key=value,key=value`; an item without `=` is left out, as there"),
		sets("CONFIG_GRPC_XDS_SERVER_USE_TLS", aBool, "false", "xds-tls", ""),
		needs("CONFIG_GRPC_XDS_SERVER_USE_TLS", sets("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", aString, "", "xds-ca", "while CONFIG_GRPC_XDS_SERVER_USE_TLS is true")),
		needs("CONFIG_GRPC_XDS_SERVER_USE_TLS", sets("CONFIG_GRPC_XDS_SERVER_TLS_SAN", aString, "", "xds-san", "while CONFIG_GRPC_XDS_SERVER_USE_TLS is true")),
		needs("CONFIG_GRPC_XDS_SERVER_USE_TLS", sets("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", aString, "", "xds-cert", "while CONFIG_GRPC_XDS_SERVER_USE_TLS is true; with the key")),
		needs("CONFIG_GRPC_XDS_SERVER_USE_TLS", sets("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", aString, "", "xds-key", "while CONFIG_GRPC_XDS_SERVER_USE_TLS is true; with the certificate")),
		hidden(joins("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", aMap, "", "xds-header", "")),
		sets("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", aDuration, "3s", "xds-retry-interval", "unset: 1s"),
		joins("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", aDuration, "10s", "xds-backoff-initial", ""),
		sets("XDS_CLIENT_BACKOFF_MAX_INTERVAL", aDuration, "60s", "xds-backoff-max", ""),
		sets("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", aFloat64, "0.5", "xds-backoff-random-factor", "what each wait is multiplied by for the next; unset: 2. At 0.5 none is longer than the first, as there"),
		sets("XDS_CLIENT_BACKOFF_JITTER", aBool, "true", "xds-backoff-jitter", "each wait is shorter by up to half"),
		joins("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", anInt, "", "xds-max-message", "0 is the default"),
	}},
	{"Decisions and replies", []Variable{
		sets("SHADOW_MODE", aBool, "false", "shadow-mode", ""),
		sets("QUOTA_MODE", aBool, "false", "quota-mode", ""),
		sets("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", aBool, "false", "all-or-nothing", "in one step, and a denied request charges nothing at all"),
		sets("NEAR_LIMIT_RATIO", aFloat32, "0.8", "near-limit-ratio", "0 to 1"),
		{Name: "USE_CALENDAR_MONTH_RATE_LIMIT", kind: aBool, preset: "false", status: rejected, note: "if it is true: " + noCalendar},
		sets("LIMIT_RESPONSE_HEADERS_ENABLED", aBool, "false", "response-headers", ""),
		excused(sets("LIMIT_LIMIT_HEADER", aString, "RateLimit-Limit", "limit-header", "")),
		excused(sets("LIMIT_REMAINING_HEADER", aString, "RateLimit-Remaining", "remaining-header", "")),
		excused(sets("LIMIT_RESET_HEADER", aString, "RateLimit-Reset", "reset-header", "")),
		sets("LIMIT_REQUEST_HEADERS_ENABLED", aBool, "false", "request-headers", "the service gets what a client sends under these names too, first, as there: remove that by a filter before"),
		excused(sets("LIMIT_REQUEST_LIMIT_HEADER", aString, "RateLimit-Limit", "request-limit-header", "")),
		excused(sets("LIMIT_REQUEST_REMAINING_HEADER", aString, "RateLimit-Remaining", "request-remaining-header", "")),
		excused(sets("LIMIT_REQUEST_RESET_HEADER", aString, "RateLimit-Reset", "request-reset-header", "")),
		sets("RESPONSE_DYNAMIC_METADATA", aBool, "false", "dynamic-metadata", ""),
	}},
	{"Logs", []Variable{
		sets("LOG_LEVEL", aString, "WARN", "log-level", "unset: info"),
		joins("LOG_FORMAT", aString, "text", "log-format", "all but `json` means text, as there"),
	}},
	{"Metrics and tracing", []Variable{
		chooses("DISABLE_STATS", aBool, "false", "no metrics by any way"),
		joins("USE_PROMETHEUS", aBool, "false", "metrics-addr", "unset: on, unless another process has the port; false switches it off. It may be on beside statsd"),
		excused(joins("PROMETHEUS_ADDR", aString, ":9090", "metrics-addr", "")),
		sets("PROMETHEUS_PATH", aString, "/metrics", "metrics-path", ""),
		joined(ignored("PROMETHEUS_MAPPER_YAML", aString, "", "metrics are not translated from statsd: they have the names of envoyproxy/ratelimit's own mapping, and a warning says which of this one are missing")),
		sets("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", aBool, "false", "response-time-milliseconds", ""),
		sets("SANITIZE_DESCRIPTOR_METRIC_DOTS", aBool, "false", "sanitize-metric-dots", "domains keep their dots, as there"),
		chooses("USE_STATSD", aBool, "true", "unset: off, unless STATSD_HOST or STATSD_PORT is set"),
		chooses("USE_DOG_STATSD", aBool, "false", ""),
		joins("STATSD_HOST", aString, "localhost", "statsd-addr", "of DogStatsD while USE_DOG_STATSD is true"),
		joinsPort("STATSD_PORT", "8125", "statsd-addr", "of DogStatsD while USE_DOG_STATSD is true"),
		joined(choiceOf("STATSD_PROTOCOL", "tcp", "statsd-protocol", "tcp", "udp")),
		needs("USE_DOG_STATSD", joins("USE_DOG_STATSD_MOGRIFIERS", aList, "", "dogstatsd-mogrifier", "names of the three below")),
		joins("DOG_STATSD_MOGRIFIER_<NAME>_PATTERN", aString, "", "dogstatsd-mogrifier", ""),
		joins("DOG_STATSD_MOGRIFIER_<NAME>_NAME", aString, "", "dogstatsd-mogrifier", ""),
		joins("DOG_STATSD_MOGRIFIER_<NAME>_TAGS", aMap, "", "dogstatsd-mogrifier", ""),
		joins("EXTRA_TAGS", aMap, "", "extra-tags", "labels of the Prometheus series too: other characters become `_`, names that these have already get `tag_`"),
		sets("STATS_FLUSH_INTERVAL", aDuration, "10s", "stats-flush-interval", "of statsd; Prometheus always reads what is so now"),
		ignored("GOSTATS_FLUSH_INTERVAL_SECONDS", anInt, "5", ownSchedule),
		ignored("GOSTATS_LOGGING_SINK_DISABLED", aBool, "false", "metrics are never written to the log"),
		sets("TRACING_ENABLED", aBool, "false", "tracing", ""),
		needs("TRACING_ENABLED", choiceOf("TRACING_EXPORTER_PROTOCOL", "http", "tracing-protocol", "http", "grpc")),
		needs("TRACING_ENABLED", sets("TRACING_SERVICE_NAME", aString, "RateLimit", "tracing-service-name", "")),
		needs("TRACING_ENABLED", sets("TRACING_SERVICE_NAMESPACE", aString, "", "tracing-service-namespace", "")),
		needs("TRACING_ENABLED", sets("TRACING_SERVICE_INSTANCE_ID", aString, "", "tracing-instance-id", "")),
		needs("TRACING_ENABLED", joins("TRACING_SAMPLING_RATE", aFloat64, "1", "tracing-sampling-rate", "")),
		hidden(chooses("OTEL_*", aString, "", "read by OpenTelemetry, as there: OTEL_EXPORTER_OTLP_ENDPOINT and others; with an endpoint, headers, a timeout or a queue that it cannot read there is no tracing, and a warning")),
	}},
	{"The store of counters", []Variable{
		choice("BACKEND_TYPE", "redis", "unset: redis if REDIS_URL is set, else memory. `memory` counts in this process, whatever else is set; memcache ends the start: "+notMemcache, "memory", "redis", "memcache"),
		hidden(joins("REDIS_URL", aString, "/var/run/nutcracker/ratelimit.sock", "store", "as there: host:port, redis://user:password@host:port/database or a path; it also sets `--store-names=ratelimit`")),
		joins("REDIS_TYPE", aString, "SINGLE", "store", "in any case of letters; REDIS_URL must fit it, as there"),
		joins("REDIS_SOCKET_TYPE", aString, "unix", "store", "unset: unix if REDIS_URL is a path, else tcp"),
		hidden(joins("REDIS_AUTH", aString, "", "store-auth", "password or user:password")),
		joins("REDIS_AUTH_FILE", aString, "", "store-auth-file", "instead of REDIS_AUTH; each new connection reads it anew"),
		hidden(joins("REDIS_SENTINEL_AUTH", aString, "", "store-sentinel-auth", "while REDIS_TYPE is SENTINEL; password or user:password")),
		joins("REDIS_TLS", aBool, "false", "store", ""),
		joins("REDIS_TLS_CLIENT_CERT", aString, "", "store-cert", "while REDIS_TLS is true; each new connection reads it anew"),
		joins("REDIS_TLS_CLIENT_KEY", aString, "", "store-key", "while REDIS_TLS is true"),
		joins("REDIS_TLS_CACERT", aString, "", "store-ca", "while REDIS_TLS is true"),
		joins("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", aBool, "false", "store-skip-name", "with a warning"),
		joins("CACHE_KEY_PREFIX", aString, "", "store-prefix", "while REDIS_URL names the store"),
		joins("REDIS_PERSECOND", aBool, "false", "store-per-second", "the variables below say where; without REDIS_URL and BACKEND_TYPE it ends the start"),
		hidden(joins("REDIS_PERSECOND_URL", aString, "/var/run/nutcracker/ratelimitpersecond.sock", "store-per-second", "while REDIS_PERSECOND is true, as REDIS_URL")),
		joins("REDIS_PERSECOND_TYPE", aString, "SINGLE", "store-per-second", "while REDIS_PERSECOND is true"),
		joins("REDIS_PERSECOND_SOCKET_TYPE", aString, "unix", "store-per-second", "while REDIS_PERSECOND is true"),
		hidden(joins("REDIS_PERSECOND_AUTH", aString, "", "store-per-second-auth", "while REDIS_PERSECOND is true")),
		joins("REDIS_PERSECOND_AUTH_FILE", aString, "", "store-per-second-auth-file", "while REDIS_PERSECOND is true, as REDIS_AUTH_FILE"),
		hidden(joins("REDIS_PERSECOND_SENTINEL_AUTH", aString, "", "store-per-second-sentinel-auth", "while REDIS_PERSECOND_TYPE is SENTINEL")),
		joins("REDIS_PERSECOND_TLS", aBool, "false", "store-per-second", "while REDIS_PERSECOND is true, with the files of REDIS_TLS"),
		rejects("MEMCACHE_HOST_PORT", aList, ""),
		rejects("MEMCACHE_SRV", aString, ""),
		excused(joins("EXPIRATION_JITTER_MAX_SECONDS", anInt64, "300", "store-jitter", "unset: a minute. Never longer than a window; 0 warns")),
		ignored("LOCAL_CACHE_SIZE_IN_BYTES", anInt, "0", "what the store last said is kept within --counter-memory"),
		ignored("REDIS_POOL_SIZE", anInt, "10", byItself),
		ignored("REDIS_PIPELINE_WINDOW", aDuration, "0", byItself),
		ignored("REDIS_PIPELINE_LIMIT", anInt, "0", byItself),
		ignored("REDIS_CLUSTER_PIPELINE_PARALLELISM", anInt, "1", byItself),
		ignored("REDIS_POOL_ON_EMPTY_BEHAVIOR", aString, "WAIT", byItself),
		ignored("REDIS_PERSECOND_POOL_SIZE", anInt, "10", byItself),
		ignored("REDIS_PERSECOND_PIPELINE_WINDOW", aDuration, "0", byItself),
		ignored("REDIS_PERSECOND_PIPELINE_LIMIT", anInt, "0", byItself),
		ignored("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", anInt, "1", byItself),
		ignored("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", aString, "WAIT", byItself),
		joins("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", aBool, "false", "unhealthy-without-store", ""),
		ignored("REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", aBool, "false", "always so"),
		excused(joins("REDIS_TIMEOUT", aDuration, "10s", "store-dial-timeout", "and `--store-timeout`; unset: 1s each. No request waits for a connection, nor beyond its own deadline")),
		excused(joins("REDIS_PERSECOND_TIMEOUT", aDuration, "10s", "store-per-second-dial-timeout", "while REDIS_PERSECOND is true, as REDIS_TIMEOUT")),
		ignored("REDIS_STARTUP_INITIAL_INTERVAL", aDuration, "1s", lookedFor),
		ignored("REDIS_STARTUP_MAX_INTERVAL", aDuration, "30s", lookedFor),
		ignored("REDIS_STARTUP_MAX_ELAPSED_TIME", aDuration, "0", "a start neither waits for the store nor fails without it: until it answers, `--store-fallback` decides"),
		ignored("MEMCACHE_MAX_IDLE_CONNS", anInt, "2", notMemcache),
		ignored("MEMCACHE_SRV_REFRESH", aDuration, "0", notMemcache),
		ignored("MEMCACHE_TLS", aBool, "false", notMemcache),
		ignored("MEMCACHE_TLS_CLIENT_CERT", aString, "", notMemcache),
		ignored("MEMCACHE_TLS_CLIENT_KEY", aString, "", notMemcache),
		ignored("MEMCACHE_TLS_CACERT", aString, "", notMemcache),
		ignored("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", aBool, "false", notMemcache),
	}},
}

// sets is a variable that sets a flag.
func sets(name string, k kind, preset, flag, note string) Variable {
	return Variable{Name: name, kind: k, preset: preset, status: supported, Flag: flag, note: note}
}

// needs is v without effect unless a boolean is true or its flag is given.
func needs(boolean string, v Variable) Variable {
	v.needs = boolean
	return v
}

// joins is a variable that sets a flag together with others.
func joins(name string, k kind, preset, flag, note string) Variable {
	return joined(sets(name, k, preset, flag, note))
}

// joined leaves it to code what v does.
func joined(v Variable) Variable {
	v.joined = true
	return v
}

// joinsPort is one of these that is the port of an address.
func joinsPort(name, preset, flag, note string) Variable {
	v := joins(name, anInt, preset, flag, note)
	v.port = true
	return v
}

// chooses is a variable that decides what others mean.
func chooses(name string, k kind, preset, note string) Variable {
	return sets(name, k, preset, "", note)
}

// choice is one of these with few values.
func choice(name, preset, note string, allowed ...string) Variable {
	v := chooses(name, aString, preset, note)
	v.allowed = allowed
	return v
}

// choiceOf is a variable of few values that sets a flag.
func choiceOf(name, preset, flag string, allowed ...string) Variable {
	v := choice(name, preset, "", allowed...)
	v.Flag = flag
	return v
}

// ignored is a variable without effect.
func ignored(name string, k kind, preset, why string) Variable {
	return Variable{Name: name, kind: k, preset: preset, status: accepted, note: why}
}

// rejects is a variable that names a store other than memory.
func rejects(name string, k kind, preset string) Variable {
	return Variable{
		Name: name, kind: k, preset: preset, status: rejected,
		note: "unless BACKEND_TYPE is memory, or --store names a store: limits would mean something else",
	}
}

// excused has a bad value of v be left out with a warning.
func excused(v Variable) Variable {
	v.excused = true
	return v
}

// hidden keeps the value of v from being printed.
func hidden(v Variable) Variable {
	v.Secret = true
	return v
}
