// Package division divides a rate limit among the Envoys that enforce it with the filter
// rate_limit_quota (RLQS). Each Envoy admits requests by a token bucket of its own and reports
// every five seconds how many it admitted and denied. The service answers with an assignment: the
// rate that the Envoy may admit.
//
// A [Divider] is fed with events: reports, opened and closed streams, confirmations, new limits. It
// returns the [Action] values to send to each stream. It starts no goroutine, reads no clock and
// does no I/O, so its behavior is a function of events and times. The package imports only
// internal/heap and the standard library.
//
// # Invariant
//
// At every moment the rates that may be in effect at all streams of a bucket add up to at most its
// limit. A rate may be in effect from the moment [Divider.TakeActions] returns it until a later one
// is confirmed, or until its time to live has passed. The ledger of a bucket therefore records the
// greatest rate that may be in effect for each stream, and the rates of closed streams that have
// not expired. A stream gets more only from the rest of the limit. When a limit changes,
// assignments that were not taken yet are withdrawn. When it is lowered, no stream gets more until
// the sum is below the new limit.
//
// The requests admitted in any interval are therefore at most the limit's rate times its length,
// plus
//   - the tokens in token buckets at the start: at most [Limit].Burst x the limit's rate, and
//     [Limit].MinTokens per stream;
//   - the tokens that buckets gain when they grow or are created: Envoy keeps the fraction to which
//     a token bucket is full when it replaces it, and starts a new one full;
//   - requests that the filter admits before its first assignment, according to its
//     no_assignment_behavior.
//
// The bound assumes that confirmations are true, that time is a monotonic clock, that an Envoy
// applies nothing later than [ExpiryMargin] after its stream has ended, and that no predecessor has
// assigned rates. Otherwise the limit may be exceeded while the divider learns them: see [New].
//
// # Division
//
// The demand of a stream is the number of requests per second that its Envoy admitted and denied.
// The interval is measured by the divider's clock, or by Envoy's if a report was read late. Each
// client gets its demand. If the total exceeds the limit, the largest demands are capped at an
// equal share (max-min fairness). The streams of a client divide its share in the same way. A
// client that overstates its demand or opens many streams therefore gains at most a fair share. The
// rest of the limit is spread over all streams, so the complete limit is always assigned. A rate is
// raised if it grows by a tenth, or if the Envoy denied requests.
//
// The service cannot query an Envoy, and reports are up to five seconds old. If the demand of one
// stream falls while another Envoy denies requests, the divider probes the first: it sends that
// Envoy an Abandon. The next request makes the Envoy report the bucket at once. If there is none,
// the share becomes free.
//
// # Reconnects and restarts
//
// An Envoy is identified only by its streams and their peer, an address. If a peer has only one
// stream at a time, its next stream inherits the rates of its last one, if that one confirmed any.
// Otherwise the rates of the closed stream stay in the ledger until they expire. After a restart, an
// Envoy that reports a bucket again keeps the rate at which it admitted requests, up to half of the
// limit. The rest, and new buckets, wait until all Envoys have had time to report.
//
// # Cost
//
// A bucket is divided after an event that changes it, and when one of its rates or timeouts
// expires. Without events no bucket is divided: a stream that never takes or confirms its actions
// costs only memory. A [Divider.Tick] visits a few thousand shares and returns, so that its
// caller can release a lock. Report, SetLimit and View are linear in the streams of one bucket,
// Confirm in the actions that it confirms, and TakeActions and EachBucket in the number that the
// caller passes. OpenStream and CloseStream do not depend on the number of buckets. A bucket is
// divided at most ten times in a second, however often streams open, report and close.
//
// Only the newest action of a bucket is kept for each stream. A stream with no rate in effect that
// has reported nothing for a TTL is removed from the bucket, with its actions.
//
// A Divider has no lock; its methods must be called by one goroutine at a time.
package division
