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
	TableRejected               Code = "table_rejected"
	TableNotSaved               Code = "table_not_saved"
	StoreUnavailable            Code = "store_unavailable"
	StoreNotReached             Code = "store_not_reached"
	ManagementServerUnavailable Code = "management_server_unavailable"
	TLSFilesRejected            Code = "tls_files_rejected"
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
	RequestsMalformed           Code = "requests_malformed"
	RequestsBeyondBounds        Code = "requests_beyond_bounds"
	RequestsNotAllowed          Code = "requests_not_allowed"
	GRPCOnHTTPPort              Code = "grpc_on_http_port"
	Draining                    Code = "draining"
	NoAnswer                    Code = "no_answer"
)

// Definition describes the conditions of a code.
type Definition struct {
	Code Code
	// Kind is the older name of the code in /api/v1/state, empty if it is the same.
	Kind string
	// Level is the severity, and the level of the line that the log gets when the condition begins.
	Level zapcore.Level
	// Sentence says what is wrong and what happens meanwhile. It is also the message of that line.
	Sentence string
	// Remedy says what to do. A condition may have a more exact one of its own.
	Remedy string
	// Docs is the page with more, and the heading on it.
	Docs string
}

// Definitions describe all conditions. docs/state.md has the same table.
var Definitions = []Definition{
	{
		Code: RulesRejected, Level: zapcore.ErrorLevel, Docs: "docs/rules.md#which-files",
		Sentence: "rules do not load: what is in force stays",
		Remedy:   "correct the lines that the condition names; `sluice check` finds the same",
	},
	{
		Code: RulesMissing, Kind: "rules_rejected", Level: zapcore.ErrorLevel, Docs: "docs/rules.md#which-files",
		Sentence: "rules do not load: every request gets an error until they do",
		Remedy:   "correct the lines that the condition names; `sluice check` finds the same",
	},
	{
		Code: RulesDiffer, Level: zapcore.ErrorLevel, Docs: "docs/state.md#several-replicas",
		Sentence: "the replicas have different rules: one of them may not have loaded the last change",
		Remedy:   "compare the conditions and events of the replicas whose hash is the older one",
	},
	{
		Code: TableRejected, Level: zapcore.ErrorLevel, Docs: "docs/tables.md#files",
		Sentence: "a table does not load: its rows stay as they are",
		Remedy:   "correct the lines of the file that the condition names",
	},
	{
		Code: TableNotSaved, Level: zapcore.ErrorLevel, Docs: "docs/tables.md#row-by-row",
		Sentence: "a table cannot be saved: changes of its rows are refused until it can be",
		Remedy:   "make room on the disk of --tables-dir, and check that this user can write there",
	},
	{
		Code: StoreUnavailable, Kind: "store_away", Level: zapcore.ErrorLevel, Docs: "docs/store.md#errors",
		Sentence: "the store is away",
		Remedy:   "check that the store runs at the address of --store, and that this host may connect to it",
	},
	{
		Code: StoreNotReached, Level: zapcore.ErrorLevel, Docs: "docs/store.md#errors",
		Sentence: "the store was not reached before the start: the fallback decides until it answers",
		Remedy:   "check that the store runs at the address of --store, and that this host may connect to it",
	},
	{
		Code: ManagementServerUnavailable, Kind: "management_server_away", Level: zapcore.WarnLevel, Docs: "docs/xds.md",
		Sentence: "no connection to the management server: the rules stay as they are",
		Remedy:   "check that the server runs at --xds-addr, and that this host may connect to it",
	},
	{
		Code: TLSFilesRejected, Level: zapcore.ErrorLevel, Docs: "docs/failure-modes.md",
		Sentence: "TLS files do not load: what is in use stays",
		Remedy:   "put a certificate, its own key and the authorities into the files; they are read again each second",
	},
	{
		Code: CertificateExpired, Level: zapcore.WarnLevel, Docs: "docs/failure-modes.md",
		Sentence: "the certificate has expired: a peer that checks it does not connect",
		Remedy:   "replace the files; they are read again each second",
	},
	{
		Code: TokenFileRejected, Level: zapcore.ErrorLevel, Docs: "docs/state.md#from-other-machines",
		Sentence: "the token file does not load: what is in use stays",
		Remedy:   "correct the line of the file that the condition names",
	},
	{
		Code: StateNotSaved, Level: zapcore.ErrorLevel, Docs: "docs/state-file.md#the-file",
		Sentence: "state: counters are not saved",
		Remedy:   "look after the disk; what was saved last stays",
	},
	{
		Code: StatsdUnavailable, Kind: "statsd_away", Level: zapcore.WarnLevel, Docs: "docs/metrics.md",
		Sentence: "statsd: cannot send; counters go on and are sent once it is possible",
		Remedy:   "check that a server listens at --statsd-addr or --dogstatsd-addr",
	},
	{
		Code: StatsdNotListening, Kind: "statsd_away", Level: zapcore.WarnLevel, Docs: "docs/metrics.md",
		Sentence: "statsd: nobody listens; what is sent until somebody does is lost",
		Remedy:   "check that a server listens at --statsd-addr or --dogstatsd-addr",
	},
	{
		Code: SpansDropped, Level: zapcore.WarnLevel, Docs: "docs/reference.md#tracing",
		Sentence: "tracing: spans cannot be sent and are dropped",
		Remedy:   "check that the collector runs where OTEL_EXPORTER_OTLP_ENDPOINT says, and keeps up",
	},
	{
		Code: MemoryFull, Level: zapcore.WarnLevel, Docs: "docs/sizing.md#memory",
		Sentence: "the memory of counters is full: counters are forgotten to make room, so limits admit more",
		Remedy:   "raise --counter-memory",
	},
	{
		Code: ConnectionsRejected, Level: zapcore.WarnLevel, Docs: "docs/threats.md#how-a-full-listener-makes-room",
		Sentence: "connections are ended to admit others, or not admitted, because as many as there may be are open",
		Remedy:   "raise --max-connections or --max-http-connections",
	},
	{
		Code: RequestsWithoutDomain, Level: zapcore.WarnLevel, Docs: "docs/state.md#requests-that-get-an-error",
		Sentence: "request rejected: it has no domain",
		Remedy:   "set `domain` in Envoy's rate limit filter, or in the request of another client",
	},
	{
		Code: RequestsWithoutDescriptors, Level: zapcore.WarnLevel, Docs: "docs/state.md#requests-that-get-an-error",
		Sentence: "request rejected: it has no descriptors",
		Remedy:   "send at least one descriptor; Envoy sends no request without, so look for another client",
	},
	{
		Code: RequestsMalformed, Level: zapcore.WarnLevel, Docs: "docs/state.md#requests-that-get-an-error",
		Sentence: "request rejected: it is not a RateLimitRequest",
		Remedy:   "send envoy.service.ratelimit.v3.RateLimitRequest: protobuf over gRPC, or JSON to /json",
	},
	{
		Code: RequestsBeyondBounds, Level: zapcore.WarnLevel, Docs: "docs/reference.md#resource-limits",
		Sentence: "request rejected: it is beyond a bound",
		Remedy:   "send less, or raise the flag that the log names",
	},
	{
		Code: RequestsNotAllowed, Level: zapcore.WarnLevel, Docs: "docs/reference.md#tls-of-the-rate-limit-service-files-are-reloaded-when-they-change",
		Sentence: "request denied: --grpc-allow does not grant the domain to the client's certificate",
		Remedy:   "grant the domain to a name of the certificate with --grpc-allow, or correct the client's domain",
	},
	{
		Code: GRPCOnHTTPPort, Level: zapcore.WarnLevel, Docs: "docs/reference.md#ports",
		Sentence: "request rejected: it is gRPC, and came to a port of HTTP/1",
		Remedy:   "point Envoy's cluster at port 8081, or at the port of --grpc-addr if that is another",
	},
	{
		Code: Draining, Level: zapcore.InfoLevel, Docs: "docs/kubernetes.md#termination-of-a-pod",
		Sentence: "draining",
		Remedy:   "none is needed: the process ends by itself",
	},
	{
		Code: NoAnswer, Level: zapcore.ErrorLevel, Docs: "docs/state.md#several-replicas",
		Sentence: "a replica does not answer",
		Remedy:   "check that it runs, and that --addr names its debug listener",
	},
}

// Define returns the definition of a code.
func (c Code) Define() *Definition {
	i := slices.IndexFunc(Definitions, func(d Definition) bool { return d.Code == c })
	return &Definitions[i] // a test holds that each code has one
}
