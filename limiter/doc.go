// Package limiter implements rate limit algorithms on an in-memory table of
// counters with bounded size.
//
// A caller fills a [Batch] with charges and passes it to [Table.Decide] together
// with the current time. Each [Charge] names a counter by its [identity.ID], the
// [Policy] to apply and the number of hits. Decide stores one [Decision] per charge
// in the Batch. All charges of a group are admitted or denied together.
//
// Time is always an argument: a table reads no clock and starts no goroutine. Once
// a Batch has grown to its working size, decisions do not allocate.
//
// # Table
//
// A [Table] consists of size classes, one for each counter size. A size class is an
// array of blocks without pointers. A block is two cache lines with eight slots; a
// slot is the two words of one counter. The ID of a counter selects two blocks, and
// the counter is in one of them:
//
//	ID.Hi                           ID.Lo
//	|       |           |           |
//	v       v           v           v
//	tag     block i     block j     low bits of both block numbers
//
//	tag     60 bits of the ID, algorithm 3, 1 if the slot is in block j
//
//	block   [tag word][tag word][tag word][tag word]   64 bytes
//	        [tag word][tag word][tag word][tag word]   64 bytes
//
// Counters that need more than one word have a note of two words and a fixed number
// of one-word cells, both stored in arrays parallel to the slots. The numbers below
// are bits:
//
//	                word                                        note              cells
//	fixed window    generation 1, end of window 30, hits 33     -                 -
//	token bucket,   generation 1, unit 1, theoretical arrival   -                 -
//	leaky bucket    time (TAT) 62
//	sliding window  lock 1, version 30, hits of the newest      end, sum of the   hits of older sub-
//	                sub-window 33                               older sub-windows windows, two per cell
//	sliding log     lock 1, version 30, next cell and number    end               times of hits
//	                of hits 33
//	concurrency     lock 1, version 30, cells in use 13,        end, first end,   expiry of permits and
//	                permits held 13                             leases granted    nonces of leases
//
// Reserved hits and penalties are stored in a companion counter under the same ID:
// reservations in a concurrency counter whose permits also record hits, penalties in
// a one-word counter (see penalty.go).
//
// The table stores no strings. A counter is identified by its tag and by the low
// bits of its block number, at least 12 bits for one-word counters in 64 MiB. Two of
// a million live counters share a slot with a probability of about 10^-10, or 10^-7
// in a partition, whose size classes start with two blocks. Clients cannot provoke
// collisions, since IDs are hashed with a secret key.
//
// A counter prefers one slot of its first block. Most counters are found there
// without a search, and [Table.Prefetch] can fetch that cache line in advance.
//
// # Expiry and eviction
//
// Each counter contains its expiry time, and an expired counter equals an absent
// one. No goroutine sweeps the table: an insert reuses the slot of an expired
// counter. If both blocks are full of live counters, one of them moves to its other
// block or the size class grows. Otherwise the least used counter is evicted and
// counted in [Stats]. A flood of new values therefore evicts mostly its own
// counters. Nothing is evicted up to a load factor of about 0.9.
//
// # Memory
//
// The size classes share one memory budget (budget.go), and resident memory follows
// the number of counters (grow.go). A [Partition] has size classes of its own.
//
// A counter changes its size class only if the limit of a log or a concurrency
// counter needs another size, and never its partition. A permit keeps its cell number,
// which is part of the lease; a counter therefore stays in its class while a permit
// beyond the new size is held.
//
// A snapshot copies the table block by block while decisions continue (snapshot.go).
//
// # Invariants
//
//   - A window admits at most the limit, for any order of times and any number of
//     goroutines, unless its counter was evicted.
//   - A counter never returns to an older window. A late hit counts in the newer window,
//     even if the counter was reclaimed and inserted again. A counter that began more
//     than an hour in the future was charged before the clock was set back; it starts
//     again (see begunAhead).
//   - A counter has at most one slot, and only charges with its tag change that slot.
//   - A denied group leaves no charge, except on limits that count denied hits. A
//     request with a denied group acquires no permit and reserves no hits.
//   - Of a choice, at most one charge is made. It is the first that had room at the
//     moment it was tried, after each one before it had none.
//   - A lease is valid only for the counter that granted it, and only until it is
//     returned or expires. An old lease matches a newer one of the same permit with a
//     probability of 1/65,536.
//   - A reservation is admitted only if used and reserved hits stay within the limit.
//   - A peek, a denied charge that does not count, and a refund of an absent counter
//     write nothing and take no slot.
//
// # Concurrency
//
// A charge on a fixed window or a bucket is a compare-and-swap of its word, and so is
// a charge on a sliding window in the newest sub-window. Other charges on counters
// with cells set the lock bit of the word while they write the cells; other callers
// of that counter wait. A denied charge only loads, so a counter that is hit far
// beyond its limit causes no shared writes. Readers of cells load the word before and
// after, and compare its version.
//
// A counter is inserted under the locks of its two blocks. A counter that moves is
// frozen under the locks of its old and new blocks.
//
// Batch.decideTogether decides a group of several charges. A denial can be spurious
// only while another group, itself denied, is about to undo a charge.
//
// A denial and the penalty that it starts are two steps, as are the reads of a penalty
// and of its counter. When several requests are denied at once, exactly one of them
// starts the penalty. A request that read the penalty before it started can still be
// admitted afterwards.
//
// # Cost
//
// A counter takes 16 bytes plus its note and cells; see [CounterBytes]. A decision
// takes 40 to 90 ns if the counter is in the cache, a few hundred ns among a million
// counters, and less than a microsecond for a new counter. Two limits in a group take
// three to four times as long as one. [Policy.Prepare] halves the time of policies
// that are used often. The time of a charge is bounded by sixteen slots and the cells
// of the counter; a group of n charges takes O(n log n).
//
// # Limitations
//
// Tables are not shared between processes; [Table.Save] and [Load] carry counters over
// a restart, without leases. A batch is not atomic for observers: another goroutine may
// see one counter charged and the next not yet. If the clock was ahead, counters stay
// ahead of it by up to an hour after it is corrected.
package limiter
