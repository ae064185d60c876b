package transport

import "time"

// Limits bound the resources that one client can use. Each field has its flag, default and range as
// tags, which cmd/sluice reads. There are no other defaults. A hidden field is a constant, which only
// tests change.
type Limits struct {
	// MaxMessageBytes limits a request. A larger request gets an error, and Envoy then allows the
	// end client's request, so no end client may be able to reach the limit. An end client can fill
	// Envoy's 60 KiB of headers, which a route may repeat in each descriptor. The default is enough
	// for 68 entries that come from a header.
	MaxMessageBytes int `name:"max-message" type:"size" range:"1..2147483647" default:"4MiB" placeholder:"SIZE" help:"Maximum size of a request. A larger one gets an error, and Envoy then allows the request, so reserve 60KiB (its max_request_headers_kb) for each entry that comes from a header."`

	MaxConnections     int    `type:"count" range:"1..2147483647" default:"10000" placeholder:"N" help:"Maximum number of gRPC connections. Lowered to what the limit on open files permits."`
	MaxHTTPConnections int    `name:"max-http-connections" hidden:"" type:"count" default:"1000" placeholder:"N" help:"Maximum number of connections per HTTP listener; at most 100 for metrics and debugging. Lowered to what the limit on open files permits."`
	MaxStreams         uint32 `name:"max-streams" hidden:"" type:"count" default:"1024" placeholder:"N" help:"Maximum number of concurrent calls per connection."`
	// MaxHeaderBytes is counted as in RFC 9113, 6.5.2: the bytes of each header plus 32. The
	// headers of Envoy's call take 700 bytes, and those of a trace more.
	MaxHeaderBytes uint32 `name:"max-header-size" type:"size" range:"1KiB..16MiB" default:"128KiB" placeholder:"SIZE" help:"Maximum size of the headers of a call; more than twice the size may close the connection. Envoy forwards tracing headers of end clients, up to its max_request_headers_kb (60)."`

	ConnectionTimeout     time.Duration `name:"connection-timeout" hidden:"" default:"5s" placeholder:"TIME" help:"Time limit for the TLS handshake and the HTTP/2 preface."`
	MaxConnectionIdle     time.Duration `name:"max-connection-idle" hidden:"" default:"15m" placeholder:"TIME" help:"Close a connection after this time without calls."`
	MaxConnectionAge      time.Duration `range:"0s..87600h" default:"24h" placeholder:"TIME" help:"Close a connection after this time, plus or minus a tenth, so that clients spread over new replicas. 0 disables it."`
	MaxConnectionAgeGrace time.Duration `name:"GRPC_MAX_CONNECTION_AGE_GRACE" hidden:"" range:"0s..87600h" default:"1h" placeholder:"TIME" help:"Time for calls in flight to finish after --max-connection-age. 0 means no limit."`
	KeepaliveTime         time.Duration `name:"keepalive-time" hidden:"" default:"60s" placeholder:"TIME" help:"Ping a client after this time without activity."`
	KeepaliveTimeout      time.Duration `name:"keepalive-timeout" hidden:"" default:"10s" placeholder:"TIME" help:"Close the connection if a ping is not acknowledged within this time."`
	KeepaliveMinTime      time.Duration `name:"keepalive-min-time" hidden:"" default:"10s" placeholder:"TIME" help:"Minimum interval of a client's own pings. The connection of a client that pings more often is closed."`
}
