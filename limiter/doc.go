// Package limiter decides rate limits in memory: many counters in one table of
// fixed size, all charges of one request decided together.
//
// A caller fills a [Batch] with charges, each naming a counter by its [ID], the
// [Policy] it counts under and the hits, and passes it to [Table.Decide] with
// the time. One [Decision] per charge comes back in the same Batch.
//
// A program that has one limit and needs no table holds a [Single]: one counter, of
// the same algorithms.
//
// Time is always an argument; a table reads no clock ([Clock] is for its callers),
// starts no goroutine and, once a Batch has grown to its working size, allocates
// nothing.
//
// # The table
//
// A [Table] is memory of fixed size without pointers, in size classes, one for each
// size of counter. A size class is an array of blocks of two cache lines with eight
// slots each. A counter is the two words of a slot, in one of two blocks that its
// ID chooses:
//
//	ID.Hi                        ID.Lo
//	|                            |           |
//	v                            v           v
//	tag: 60 bits, algorithm      block i     block j
//
//	block   [tag word][tag word][tag word][tag word]   64 bytes
//	        [tag word][tag word][tag word][tag word]   64 bytes
//
// Sliding windows and logs need more than a word: beside each slot of their
// size classes are a note, two words, and so many cells of one word. What is in them
// depends on the algorithm:
//
//	                 word                                          note              cells
//	fixed window     life 1, end of window 30, hits 33 bits        -                 -
//	token bucket,    life 1, unit 1, time at which all that was    -                 -
//	leaky bucket     admitted has drained 62 bits
//	sliding window   lock 1, version 30, hits of the newest        end, sum of the   hits of those
//	                 sub-window 33 bits                            ones before       before, two a cell
//	sliding log      lock 1, version 30, next cell and number      end               times of hits
//	                 of hits 33 bits
//
// The common partition has size classes for the algorithms that [Options] names; others are
// made from a reserve when they are first needed. A [Partition] has size classes of its own.
// Only a log whose limit needs another size moves from size class to size class.
//
// Of a block, a counter takes the slot that its ID prefers if that is free: most are
// found at the first look, without a search that a processor would have to guess the
// end of, and [Table.Prefetch] knows which line of memory to ask for.
//
// No string is kept: the 128 bits of the ID are the identity. Two of a million
// live counters share a slot with a probability of about 10^-12, and since IDs
// are hashed with a secret key, no client can bring it about.
//
// A counter says by itself when it has expired, and an expired one equals an
// absent one, so nothing sweeps the table: whoever needs a slot for a new counter
// takes an expired one, in place. When both blocks are full of live counters, the
// one that has used least is given up (forgotten), so that a flood of new values
// pushes out its own and counters that are well used stay; [Stats] counts it. Up
// to about six live counters in ten slots that does not happen.
//
// # Invariants
//
//   - A window of a counter admits at most the limit, whatever the order of the
//     times and however many goroutines ask, unless the counter was given up.
//   - A counter never goes back to an older window. Who comes late is counted in
//     the newer one, also if the counter was reclaimed and comes anew. Late means
//     up to a year; beyond that the clock is taken to have been set back.
//   - A counter has at most one slot, and a slot's hits are those of its tag.
//   - Of a group that refuses nothing stays charged, but for limits that count
//     refused hits.
//   - A look, a refused charge that does not count, and a refund of an absent
//     counter write nothing and take no slot.
//
// # Concurrency
//
// A charge on a fixed window or a bucket that has a slot is a compare-and-swap of
// its word, and so is one on a sliding window that was hit in this sub-window
// already. The first hit in a sub-window, and every one on a log, holds a lock bit
// in the word for as long as it takes to write the cells; others that want this
// counter wait, those of other counters do not. One that is refused is only loads,
// so a counter that is hammered beyond its limit costs its callers no shared
// writes; cells are read between two loads of the word, whose version tells
// whether they have changed.
//
// A counter without a slot is inserted under the locks of its two blocks. Groups of
// several charges look at all counters, then reserve in one order for all batches
// and give back when one has no room any more. Each counter keeps its bound at every
// step, so admissions are always legal; a refusal can be spurious only while
// another request, refused itself, holds a reservation.
//
// # Cost
//
// Sixteen bytes a counter, and what it has of cells; see [CounterBytes]. A decision
// on a counter in cache takes some twenty nanoseconds, of a log forty; on one of a
// million counters a few hundred, a new counter less than a microsecond; two limits
// together take little more than twice the time of one. Policies that are used often
// should be prepared; see [Policy.Prepare]. Time per charge is
// bounded by sixteen slots and the cells of a counter; n charges in a group cost
// n log n.
//
// # What it does not do
//
// It does not share counters with other processes, keep them over a restart, or
// grow: a table has the size it was made with. It does not make batches atomic to
// onlookers: another goroutine may see one counter charged and the next not yet.
// A clock that runs ahead takes counters with it until it is reached again.
package limiter
