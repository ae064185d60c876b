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
package rlqs
