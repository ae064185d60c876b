// Package rlqs is the rate limit quota service: Envoys count by themselves, report what they admitted and denied, and are
// told which rate each of them may admit. Package quota divides; this package has its bytes, rules and streams.
//
// A [Service] has the streams of all transports, which feed a [Stream] with the bytes of reports, are told when there is
// something to send, and take it as bytes. What a client sends costs no more than the memory of its buckets, which
// are bounded: a bucket that is beyond a bound, or of no rule, gets no assignment, and an error ends a stream only
// for what no end client of an Envoy can cause, or for a client that takes up a slot and neither reports nor reads.
//
// Slots and memory are divided among clients, not among streams: a client gets more while it has less than is free. No lock
// is held for more than a bounded amount of work, whatever clients have reported, so calls on the connection of a stream,
// rule changes, metrics and states wait for a few thousand buckets at most.
//
// A bucket without a rule is ignored while it has requests: an Envoy that is told to abandon it would report it again
// at once. A bucket whose id is not valid UTF-8 gets no assignment, because Envoy would reset the stream at an action
// that names it.
//
// # Several sluices
//
// With a store, one of several sluices divides a domain (role.go). Its role is a key that expires. The sluice stops
// before that, by a monotonic clock that it read before it asked for the role, and checks the role before each message.
// Its successor counts the whole limit as in use until assignments of the predecessor have expired. So the bound does
// not depend on the store's memory, only on the store not giving one role to two sluices that both keep it.
package rlqs
