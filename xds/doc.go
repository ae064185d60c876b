// Package xds is a source of rules: a management server, such as Envoy Gateway,
// pushes them, a resource for each domain.
//
// It speaks the aggregated discovery service (ADS), state of the world, for the
// type [TypeURL], and subscribes to all resources. What a response holds is the
// whole of the rules, so that a domain which is no longer among them is removed. A
// response either comes into force as a whole and is acknowledged (ACK), or it is
// refused with every error (NACK) and what was in force stays. Resources become
// [descriptors.Config], and compile as files do.
//
// The rules also stay while there is no connection. [Source.Run] connects again:
// each [Options.RetryInterval] while no connection comes about, after a
// [Options.Backoff] where a stream has ended. A server that is gone without a word
// is noticed by pings after five minutes, since grpc-go's servers close connections
// on which they are more frequent.
package xds
