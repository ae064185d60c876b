package telemetry

import (
	"slices"

	"go.uber.org/zap/zapcore"
)

// Code identifies a kind of condition. Programs, alerts and tickets may rely on codes.
type Code string

// The codes of all conditions; [Definitions] describes them.
const (
	RulesRejected               Code = "rules_rejected"
	RulesMissing                Code = "rules_missing"
	RulesDiffer                 Code = "rules_differ"
	ReplicasCountSeparately     Code = "replicas_count_separately"
	ShadowModeDiffers           Code = "shadow_mode_differs"
	TableRejected               Code = "table_rejected"
	TableNotSaved               Code = "table_not_saved"
	StoreUnavailable            Code = "store_unavailable"
	StoreNotReached             Code = "store_not_reached"
	ClocksDiffer                Code = "clocks_differ"
	ManagementServerUnavailable Code = "management_server_unavailable"
	TLSFilesRejected            Code = "tls_files_rejected"
	CertificateExpiresSoon      Code = "certificate_expires_soon"
	CertificateExpired          Code = "certificate_expired"
	TokenFileRejected           Code = "token_file_rejected" //nolint:gosec // it is the name of a condition
	StateNotSaved               Code = "state_not_saved"
	StatsdUnavailable           Code = "statsd_unavailable"
	StatsdNotListening          Code = "statsd_not_listening"
	SpansDropped                Code = "spans_dropped"
	MemoryFull                  Code = "memory_full"
	ConnectionsRejected         Code = "connections_rejected"
	RequestsWithoutDomain       Code = "requests_without_domain"
	RequestsWithoutDescriptors  Code = "requests_without_descriptors"
	RequestsWithoutRules        Code = "requests_without_rules"
	RequestsMalformed           Code = "requests_malformed"
	RequestsBeyondBounds        Code = "requests_beyond_bounds"
	RequestsNotAllowed          Code = "requests_not_allowed"
	GRPCOnHTTPPort              Code = "grpc_on_http_port"
	HTTPOnGRPCPort              Code = "http_on_grpc_port"
	CostsMissing                Code = "costs_missing"
	LeasesNotReturned           Code = "leases_not_returned"
	Draining                    Code = "draining"
	NoAnswer                    Code = "no_answer"
)

// Definition describes the conditions of a code.
type Definition struct {
	Code Code
	// Level is the severity, and the level of the log line that starts the condition.
	Level zapcore.Level
	// Sentence describes the problem and its effect. It is also the message of that line.
	Sentence string
	// Remedy is the default remedy. A condition may have a more specific one.
	Remedy string
	// Docs is the page with details, with the anchor of the heading.
	Docs string
}

// Definitions describe all conditions. docs/state.md has the same table.
var Definitions = []Definition{
	{
		Code: RulesRejected, Level: zapcore.ErrorLevel, Docs: "docs/rules.md#which-files",
		Sentence: "failed to load rules; keeping the previous rules",
		Remedy:   "fix the lines listed in the condition; `sluice check` reports the same errors",
	},
	{
		Code: RulesMissing, Level: zapcore.ErrorLevel, Docs: "docs/rules.md#which-files",
		Sentence: "failed to load rules; every request is answered with an error until rules are loaded",
		Remedy:   "fix the lines listed in the condition; `sluice check` reports the same errors",
	},
	{
		Code: RulesDiffer, Level: zapcore.ErrorLevel, Docs: "docs/state.md#several-replicas",
		Sentence: "replicas have different rules; some may not have loaded the last change",
		Remedy:   "compare the conditions and events of the replicas that have the older hash",
	},
	{
		Code: ReplicasCountSeparately, Level: zapcore.WarnLevel, Docs: "docs/state.md#several-replicas",
		Sentence: "replicas count separately: each grants the whole limit",
		Remedy:   "share the counters with --store, or send each key to one replica and set --sharded; see examples/sharded",
	},
	{
		Code: ShadowModeDiffers, Level: zapcore.WarnLevel, Docs: "docs/state.md#several-replicas",
		Sentence: "only some replicas are in shadow mode; they allow requests that the others deny",
		Remedy:   "set --shadow-mode for all replicas, or for none",
	},
	{
		Code: TableRejected, Level: zapcore.ErrorLevel, Docs: "docs/tables.md#files",
		Sentence: "failed to load a table; keeping its previous rows",
		Remedy:   "fix the lines of the file listed in the condition",
	},
	{
		Code: TableNotSaved, Level: zapcore.ErrorLevel, Docs: "docs/tables.md#row-by-row",
		Sentence: "failed to save a table; changes of its rows are rejected until it can be saved",
		Remedy:   "free disk space for --tables-dir, and check that this user may write there",
	},
	{
		Code: StoreUnavailable, Level: zapcore.ErrorLevel, Docs: "docs/store.md#errors",
		Sentence: "the store is unavailable; --store-fallback decides",
		Remedy:   "check that the store is running at the address of --store and reachable from this host",
	},
	{
		Code: StoreNotReached, Level: zapcore.ErrorLevel, Docs: "docs/store.md#errors",
		Sentence: "the store has not been reached since startup; --store-fallback decides",
		Remedy:   "check address, port and TLS (rediss://) of --store, that the store is running there, and that this host can reach it",
	},
	{
		Code: ClocksDiffer, Level: zapcore.WarnLevel, Docs: "docs/migrating.md#in-place-with-the-redis-that-you-have",
		Sentence: "the clock of this machine differs from the store's; envoyproxy/ratelimit at such a clock counts in other windows, and up to twice a limit passes",
		Remedy:   "synchronise the clocks of the store and of all replicas with NTP; after the migration, use --store-names exact",
	},
	{
		Code: ManagementServerUnavailable, Level: zapcore.WarnLevel, Docs: "docs/xds.md",
		Sentence: "not connected to the management server; keeping the current rules",
		Remedy:   "check that the server is running at --xds-addr and reachable from this host",
	},
	{
		Code: TLSFilesRejected, Level: zapcore.ErrorLevel, Docs: "docs/failure-modes.md",
		Sentence: "failed to reload TLS files; keeping the current certificate",
		Remedy:   "check that the files contain a certificate, its key and the CA certificates; they are reloaded every second",
	},
	{
		Code: CertificateExpiresSoon, Level: zapcore.WarnLevel, Docs: "docs/failure-modes.md#a-certificate-expires",
		Sentence: "the certificate expires soon",
		Remedy:   "replace the files; they are reloaded every second",
	},
	{
		Code: CertificateExpired, Level: zapcore.ErrorLevel, Docs: "docs/failure-modes.md#a-certificate-expires",
		Sentence: "the certificate has expired; clients that verify it cannot connect, and Envoy lets their requests pass without a limit",
		Remedy:   "replace the files; they are reloaded every second",
	},
	{
		Code: TokenFileRejected, Level: zapcore.ErrorLevel, Docs: "docs/state.md#from-other-machines",
		Sentence: "failed to reload the token file; keeping the current tokens",
		Remedy:   "fix the line of the file listed in the condition",
	},
	{
		Code: StateNotSaved, Level: zapcore.ErrorLevel, Docs: "docs/state-file.md#the-file",
		Sentence: "state: failed to save counters",
		Remedy:   "check the disk of --state-file; the last saved file is kept",
	},
	{
		Code: StatsdUnavailable, Level: zapcore.WarnLevel, Docs: "docs/metrics.md",
		Sentence: "statsd: failed to send metrics; counter increments are kept and sent later",
		Remedy:   "check that a server is listening at --statsd-addr",
	},
	{
		Code: StatsdNotListening, Level: zapcore.WarnLevel, Docs: "docs/metrics.md",
		Sentence: "statsd: no server is listening; metrics are lost until one is",
		Remedy:   "check that a server is listening at --statsd-addr",
	},
	{
		Code: SpansDropped, Level: zapcore.WarnLevel, Docs: "docs/reference.md#tracing",
		Sentence: "tracing: failed to send spans; they are dropped",
		Remedy:   "check that the collector at OTEL_EXPORTER_OTLP_ENDPOINT is running and keeps up",
	},
	{
		Code: MemoryFull, Level: zapcore.WarnLevel, Docs: "docs/sizing.md#memory",
		Sentence: "counter memory is full; live counters are evicted, so limits may admit more",
		Remedy:   "raise --counter-memory",
	},
	{
		Code: ConnectionsRejected, Level: zapcore.WarnLevel, Docs: "docs/threats.md#how-a-full-listener-makes-room",
		Sentence: "the bound on connections is reached; idle connections are closed, or new ones rejected",
		Remedy:   "raise --max-connections, or have fewer clients of the HTTP listeners",
	},
	{
		Code: RequestsWithoutDomain, Level: zapcore.WarnLevel, Docs: "docs/state.md#requests-that-get-an-error",
		Sentence: "request rejected: no domain",
		Remedy:   "set `domain` in Envoy's rate limit filter, or in the request of another client",
	},
	{
		Code: RequestsWithoutDescriptors, Level: zapcore.WarnLevel, Docs: "docs/state.md#requests-that-get-an-error",
		Sentence: "request rejected: no descriptors",
		Remedy:   "send at least one descriptor; Envoy always does, so look for another client",
	},
	{
		Code: RequestsWithoutRules, Level: zapcore.ErrorLevel, Docs: "docs/state.md#requests-that-get-an-error",
		Sentence: "request rejected: no rules are loaded",
		Remedy:   "see why the rules failed to load, in the other conditions and in the log",
	},
	{
		Code: RequestsMalformed, Level: zapcore.WarnLevel, Docs: "docs/state.md#requests-that-get-an-error",
		Sentence: "request rejected: not a RateLimitRequest",
		Remedy:   "send envoy.service.ratelimit.v3.RateLimitRequest: protobuf over gRPC, or JSON to /json",
	},
	{
		Code: RequestsBeyondBounds, Level: zapcore.WarnLevel, Docs: "docs/reference.md#resource-limits",
		Sentence: "request rejected: a bound is exceeded",
		Remedy:   "send a smaller request, or raise the flag named in the log",
	},
	{
		Code: RequestsNotAllowed, Level: zapcore.WarnLevel, Docs: "docs/reference.md#tls-of-the-rate-limit-service-files-are-reloaded-when-they-change",
		Sentence: "request denied: --grpc-allow does not grant the domain to the client's certificate",
		Remedy:   "grant the domain to a name of the certificate with --grpc-allow, or correct the client's domain",
	},
	{
		Code: GRPCOnHTTPPort, Level: zapcore.WarnLevel, Docs: "docs/reference.md#ports",
		Sentence: "request rejected: gRPC request on the HTTP/1 port",
		Remedy:   "point Envoy's cluster at the port of --grpc-addr, 8081 by default",
	},
	{
		Code: HTTPOnGRPCPort, Level: zapcore.WarnLevel, Docs: "docs/reference.md#ports",
		Sentence: "connection closed: HTTP/1 request on the gRPC port",
		Remedy:   "set http2_protocol_options in Envoy's cluster, and point probes at the port of --http-addr, 8080 by default",
	},
	{
		Code: CostsMissing, Level: zapcore.WarnLevel, Docs: "docs/failure-modes.md#costs-never-arrive",
		Sentence: "requests are not charged: their cost never arrives at the end of the stream",
		Remedy:   "is the response streamed? Read its cost with envoy.filters.http.sse_to_metadata; `sluice envoy check` finds other causes",
	},
	{
		Code: LeasesNotReturned, Level: zapcore.WarnLevel, Docs: "docs/failure-modes.md#the-configuration-makes-no-end-call",
		Sentence: "leases expire and none is returned: the call at the end of the stream is missing",
		Remedy:   "add the element with apply_on_stream_done, see `sluice envoy snippet`; if requests last longer than the window, raise it; upgrade Envoys before 1.37.1, 1.36.5, 1.35.8 or 1.34.13, which may crash if an end call fails (CVE-2026-26330)",
	},
	{
		Code: Draining, Level: zapcore.InfoLevel, Docs: "docs/kubernetes.md#termination-of-a-pod",
		Sentence: "draining",
		Remedy:   "none; the process exits when it is drained",
	},
	{
		Code: NoAnswer, Level: zapcore.ErrorLevel, Docs: "docs/state.md#several-replicas",
		Sentence: "a replica does not answer",
		Remedy:   "check that it is running and that --addr is its debug listener",
	},
}

// Define returns the definition of a code.
func (c Code) Define() *Definition {
	i := slices.IndexFunc(Definitions, func(d Definition) bool { return d.Code == c })
	return &Definitions[i] // a test checks that each code has one
}
