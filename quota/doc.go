// Package quota divides a limit among those who enforce it: Envoys with the filter rate_limit_quota
// (RLQS), which admit by token buckets of their own, report every five seconds what they admitted and
// denied, and are told the rate that each of them may admit.
//
// A [Divider] is fed with events: reports, ends of streams, confirmations, new limits. It says what
// each stream is to be told: [Action]. It starts no goroutine, reads no clock and does no I/O, so all
// that it does is a function of events and times. It imports only internal/heap and the standard library.
//
// # What holds
//
// At every moment the rates that may be in force at all holders of a bucket add up to no more than its
// limit. A rate may be in force from the moment that it is taken out of the divider until a later one is
// confirmed, or its time to live has passed since. So the ledger of a bucket has the greatest rate that
// may be in force at each holder, and what streams that ended may still act on. A holder gets more only
// out of what that leaves. If a limit changes, assignments of the old one that were not taken yet are
// withdrawn, and if it is lowered, no holder gets more until the sum is below it.
//
// So what is admitted in any interval is at most the limit's rate times its length, and
//   - what token buckets hold at its begin: at most [Limit].Burst x the limit's rate, and [Limit].MinTokens
//     for each holder;
//   - what they get in it because they become larger or begin anew: Envoy carries the fraction to which
//     a token bucket is full over to the next one, and fills it where there was none;
//   - requests that the filter lets pass before it is told anything, as its no_assignment_behavior says.
//
// It rests on these: confirmations are true; time is a steady clock; an Envoy applies nothing later than
// [Options].Delta after its stream has ended; and [Options].Fresh is. A divider that is not Fresh learns,
// in which time more may be in force.
//
// # How it divides
//
// Demand is what a holder admitted and denied in an interval of the divider's clock, or of the holder's
// where a report was read late. Each client gets its demand; where that is too much in all, those that
// want most get the same (max-min fairness). The streams of a client divide its part alike. So a client
// that lies about its demand, or opens many streams, gets a fair share at most. What is left goes to
// all, so all of the limit is assigned always.
//
// Envoys cannot be asked what they have, and report five seconds late. So a holder whose demand fell while
// somebody is denied is told to abandon the bucket: its next request reports it at once, and if none comes
// its share is free.
//
// # Reconnects and restarts
//
// An Envoy is known only by its stream and its client. If a client never had two streams at once, its next stream takes
// over the rate of its last one. Otherwise the rates of the ended stream stay in the ledger until they expire. After a
// restart, a reporting Envoy keeps the rate at which it admitted, out of the limit, and new buckets wait until all
// Envoys can have reported.
//
// # What it costs
//
// A bucket is divided after an event that changes it, and at a time at which something of it ends. Without
// events nothing is divided any more: a holder that never takes or never confirms its actions costs nothing
// but memory. A [Divider.Tick] looks at [Options.TickShares] shares and returns, so that its caller can
// release a lock. Report, Relimit and View are linear in the holders of one bucket at most, Confirmed in
// the actions that it confirms, and Take, Each and Survey in the number that their caller gives. Opened and
// Closed do not depend on the number of buckets. A bucket of more than eight holders is divided once in 4 ms
// for each holder at most, or once a second.
//
// Only the newest action of a bucket is kept for its holder. A holder that has nothing in force and has
// reported nothing for a TTL is forgotten, with its actions.
//
// A Divider has no lock. Its methods run in one goroutine at a time.
package quota
