// Package xds is a source of rules: a management server, such as Envoy Gateway,
// pushes them, a resource for each domain.
//
// It speaks the aggregated discovery service (ADS), state of the world, for the type
// [TypeURL], and subscribes to all resources. A response contains all rules: a domain that
// it lacks is removed. A response either comes into force as a whole and is acknowledged
// (ACK), or it is rejected with every error (NACK) and what is in force stays. Resources
// become [rules.Config] values and compile as files do.
//
// The rules also stay while there is no connection. [Source.Run] connects again: every
// [Options.RetryInterval] while it cannot connect, and after [Options.Backoff] when a
// stream has ended. If a server vanishes without closing its connection, pings notice that
// after five minutes. grpc-go's servers close connections on which pings are more frequent.
package xds
