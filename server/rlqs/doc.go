// Package rlqs implements Envoy's rate limit quota service (RLQS). Envoys count requests
// themselves, report how many they admitted and denied, and are assigned the rate that each of them
// may admit. Package quota divides the limits; this package handles the messages, rules and
// streams.
//
// A [Service] has the streams of all transports. A transport feeds a [Stream] with the bytes of
// reports, is notified when there are messages to send, and reads them as bytes. The memory that
// clients can use is bounded. A bucket beyond a bound or without a rule gets no assignment. A
// stream fails only for causes that no end client of an Envoy can produce, or if its client
// occupies a slot and neither reports nor reads.
//
// Slots and memory are divided among clients, not among streams: a client may have more while it
// has less than is free. No lock is held for more than a bounded amount of work, whatever clients
// have reported, so calls on the connection of a stream, rule changes, metrics and state queries
// wait for a few thousand buckets at most.
//
// A bucket without a rule is ignored while it has requests: an Envoy that was told to abandon it
// would report it again at once. A bucket whose ID is not valid UTF-8 gets no assignment, because
// Envoy resets a stream on which an action contains such an ID.
//
// # Several replicas
//
// With a store, one replica is the leader of each domain and divides its limits (leader.go). The
// leadership is a key that expires. The leader stops before that, by a monotonic clock that it read
// before it acquired the key, and checks this before each message. Its successor counts the
// complete limit as in effect until the assignments of the predecessor have expired. The bound
// therefore does not depend on the durability of the store, only on the store not granting one key
// to two replicas at the same time.
package rlqs
