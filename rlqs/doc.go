// Package rlqs implements Envoy's rate limit quota service (RLQS). Envoys count requests
// themselves, report how many they admitted and denied, and are assigned the rate that each of them
// may admit. Package division divides the limits; this package handles the messages, rules and
// streams.
//
// A [Service] has the streams of all transports. A transport feeds a [Stream] with the bytes of
// reports, is notified when there are messages to send, and reads them as bytes. The memory that
// clients can use is bounded. A bucket beyond a bound or without a rule gets no assignment. A
// stream fails only because of errors that an Envoy's downstream clients cannot cause, or if the
// Envoy occupies a slot and neither reports nor reads.
//
// Slots and memory are divided among clients, not among streams: a client may use more as long as
// it uses less than is free. Each lock is held for a bounded amount of work, whatever clients have
// reported. Calls on the connection of a stream, rule changes, metrics and state queries therefore
// wait while at most a few thousand buckets are processed.
//
// A bucket without a rule is ignored while it has requests: if the Envoy abandoned it, the next
// request would make the Envoy report it again at once. A bucket whose ID is not valid UTF-8 gets
// no assignment, because Envoy resets a stream on which an action contains such an ID.
//
// # Several replicas
//
// With a store, one replica is the leader of each domain and divides its limits (leader.go). The
// leadership is a key that expires. The leader stops before the key expires, by a monotonic clock
// that it read before it acquired the key, and checks that time before each message. Its successor
// counts the complete limit as in effect until the assignments of the predecessor have expired. The
// limit therefore does not depend on the durability of the store, but only on the store not
// granting one key to two replicas at the same time.
package rlqs
