// Package xds receives rules from a management server, such as Envoy Gateway, which sends a
// resource for each domain.
//
// It uses the aggregated discovery service (ADS), state of the world, for the type [TypeURL], and
// subscribes to all resources. A response contains all rules: a domain that it lacks is removed. A
// response is activated as a whole and acknowledged (ACK), or it is rejected with all errors (NACK)
// and the active rules stay. Resources become [rules.Config] values and are compiled like files.
//
// The rules also stay while there is no connection. [Source.Run] reconnects: every
// [Options.RetryInterval] while it cannot connect, and after [Options.Backoff] when a stream has
// ended. If a server disappears without closing its connection, pings detect that after five
// minutes; grpc-go's servers close connections with more frequent pings.
package xds
