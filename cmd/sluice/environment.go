package main

import "os"

// withoutEffect are variables of envoyproxy/ratelimit that change what it does
// and that sluice does not read. HOST and PORT are left out, because other
// programs' environments set them too.
var withoutEffect = [...]string{
	"BACKEND_TYPE", "CACHE_KEY_PREFIX", "CONFIG_TYPE", "CONFIG_GRPC_XDS_SERVER_URL",
	"DEBUG_HOST", "DEBUG_PORT", "DISABLE_STATS", "EXPIRATION_JITTER_MAX_SECONDS", "EXTRA_TAGS",
	"GRPC_CLIENT_TLS_CACERT", "GRPC_CLIENT_TLS_SAN", "GRPC_HOST", "GRPC_MAX_CONNECTION_AGE_GRACE",
	"GRPC_PORT", "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_SERVER_USE_TLS", "GRPC_UDS",
	"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "LOCAL_CACHE_SIZE_IN_BYTES", "MEMCACHE_HOST_PORT",
	"MEMCACHE_SRV", "PROMETHEUS_ADDR", "PROMETHEUS_MAPPER_YAML", "PROMETHEUS_PATH",
	"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "REDIS_PERSECOND_URL", "REDIS_TYPE", "REDIS_URL",
	"RUNTIME_APPDIRECTORY", "RUNTIME_IGNOREDOTFILES", "RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY",
	"RUNTIME_WATCH_ROOT", "STATSD_HOST", "STATSD_PORT", "TRACING_ENABLED", "USE_DOG_STATSD", "USE_STATSD",
}

// ignoredVariables returns those of withoutEffect that are set.
func ignoredVariables() []string {
	var set []string
	for _, name := range withoutEffect {
		if os.Getenv(name) != "" {
			set = append(set, name)
		}
	}
	return set
}
