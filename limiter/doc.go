// Package limiter decides rate limits in memory: many counters in one table of
// fixed size, hit without locks, all charges of one request decided together.
//
// A caller fills a [Batch] with charges, each naming a counter by its [ID], the
// [Policy] it counts under and the hits, and passes it to [Table.Decide] with
// the time. One [Decision] per charge comes back in the same Batch.
//
// Time is always an argument; the package reads no clock, starts no goroutine
// and, once a Batch has grown to its working size, allocates nothing.
package limiter
