// Package quota divides a limit among those who enforce it: Envoys with the filter rate_limit_quota
// (RLQS), which admit by token buckets of their own, report every five seconds what they admitted and
// denied, and are told the rate that each of them may admit.
//
// A [Divider] is fed with events: reports, ends of streams, confirmations, new limits. It says what
// each stream is to be told: [Action]. It starts no goroutine, reads no clock and does no I/O, so all
// that it does is a function of events and times. The package imports nothing but the standard library.
//
// What holds at every moment: the rates that may be in force at all holders of a bucket add up to no
// more than its limit. A rate may be in force from the moment that it is taken out of the divider until
// a later one is confirmed, or its time to live has passed. So the ledger of a bucket has for each
// holder the greatest rate that may be in force, and what streams that ended may still act on.
//
// A Divider has no lock. Its methods run in one goroutine at a time.
package quota
