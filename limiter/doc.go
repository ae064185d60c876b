// Package limiter decides rate limits in memory: many counters in one table of
// bounded size, all charges of one request decided together.
//
// A caller fills a [Batch] with charges, each naming a counter by its
// [identity.ID], the [Policy] it counts under and the hits, and passes it to
// [Table.Decide] with the time. One [Decision] per charge comes back in the same
// Batch.
//
// Time is always an argument. A table reads no clock (package clock is for its
// callers) and starts no goroutine. Once a Batch has grown to its working size,
// decisions allocate nothing.
//
// # The table
//
// A [Table] is memory without pointers, in size classes, one for each size of counter.
// A size class is an array of blocks of two cache lines with eight slots each. A counter
// is the two words of a slot, in one of two blocks that its ID chooses:
//
//	ID.Hi                           ID.Lo
//	|       |           |           |
//	v       v           v           v
//	tag     block i     block j     low bits of both
//
//	tag     60 bits of the ID, algorithm 3, whether the slot is in block j 1
//
//	block   [tag word][tag word][tag word][tag word]   64 bytes
//	        [tag word][tag word][tag word][tag word]   64 bytes
//
// Sliding windows and logs need more than a word. Beside each slot of their size
// classes are a note, two words, and so many cells of one word. What is in them
// depends on the algorithm (of a word, with the bits of each part):
//
//	                word                                        note             cells
//	fixed window    generation 1, end of window 30, hits 33     -                -
//	token bucket,   generation 1, unit 1, theoretical arrival   -                -
//	leaky bucket    time (TAT) 62
//	sliding window  lock 1, version 30, hits of the newest      end, sum of the  hits of those
//	                sub-window 33                               ones before      before, two a cell
//	sliding log     lock 1, version 30, next cell and number    end              times of hits
//	                of hits 33
//	concurrency     lock 1, version 30, cells that may be in    end, first end,  ends of places and
//	                use 13, places held 13                      leases given     nonces of leases
//
// Hits that are reserved are held by a second counter under the same ID, one of concurrency whose places
// have a cell more, for their hits. A penalty is a second counter too, of one word: see penalty.go.
//
// A size class is made when it is first needed, and takes memory from the table's one
// budget, a block at a time, while it is used. Without a budget left it may take memory
// from other size classes; see budget.go. A [Partition] has size classes of its own. Only
// a log or a limit of requests at once whose limit needs another size moves to another size class, and a counter
// whose partition changes. The cells of places keep their numbers, which are in leases; so one stays where it is
// while a place beyond the new size is held.
//
// A counter takes the slot of a block that its ID prefers, if that is free. So most are
// found in the first slot, without a search whose end a processor would have to guess,
// and [Table.Prefetch] knows which line of memory to ask for.
//
// No string is kept: 60 bits of the ID and the low bits of the block's number, as many as
// the size class has at least (12 of one-word counters in 64 MiB), are the identity. Two of
// a million live counters share a slot with a probability of about 10^-10; of those of one
// partition, which begins with two blocks, 10^-7. No client can bring it about, since IDs
// are hashed with a secret key.
//
// A counter says by itself when it has expired, and an expired one equals an
// absent one. So nothing sweeps the table: an insert takes the slot of an expired
// counter. If both blocks are full of live counters, one of these moves to its other
// block, or the size class grows. If neither is possible, the one that has used least is
// evicted, and [Stats] counts it. So a flood of new values evicts its own, and counters
// that are well used stay. Up to about nine live counters in ten slots nothing is evicted.
//
// # Memory
//
// The size classes share one budget and take it block by block, by linear hashing: a new block takes the counters of
// the block it is split from whose hash has one more bit set. Each class reserves addresses for the whole budget, and
// resident memory follows the number of counters. When the budget is used up, a class first gets blocks that can be
// merged without evicting a live counter, then blocks of the largest class if it is smaller than that one, and else it
// evicts the least used counter of the two blocks. So a flood of counters of one size leaves room for other sizes.
//
// A snapshot copies the table block by block, each under its lock, while requests go on; a goroutine that moves a
// counter meanwhile hands it to the snapshot (passage.go). A slot has only a part of its counter's identity, and the
// number of its block has the rest. So the file records the least number of blocks of each class, and the table that
// loads it has the same.
//
// # Algorithms
//
// Each algorithm has a file of its own and is an implementation of one interface,
// algorithm. The table, the groups and the inserts call that and know nothing else. A new
// algorithm is a constant, a file and a line in rows. Each layer above has a row for each
// algorithm too, and does not compile without: [Algorithms] is their length.
//
// # Invariants
//
//   - A window of a counter admits at most the limit, whatever the order of the
//     times and however many goroutines ask, unless the counter was evicted.
//   - A counter never goes back to an older window. A late hit is counted in the newer
//     one, also if the counter was reclaimed and comes anew. Late means up to an hour:
//     a counter that began later than that was charged by a clock that was set back, and begins again; see begunAhead.
//   - A counter has at most one slot, and a slot's hits are those of its tag.
//   - A denied group leaves no charge, but for limits that count denied hits. A request of which any group is
//     denied holds no place and reserves nothing.
//   - A lease is known once, until its end, to the counter that gave it. No other lease tells it, and one that has
//     ended is taken for a newer one of the same place with a chance of one in 65,536.
//   - What is used and reserved of a counter is within its limit whenever a reservation is admitted.
//   - A peek, a denied charge that does not count, and a refund of an absent
//     counter write nothing and take no slot.
//
// # Concurrency
//
// A charge on a fixed window or a bucket that has a slot is a compare-and-swap of
// its word. So is one on a sliding window that was hit in this sub-window already. The
// first hit in a sub-window, every one on a log, and every place that is taken or given back hold a lock bit in the
// word while they write the cells. Others that want this counter wait for it; those that
// want other counters do not. A denied charge only loads, so a counter that is hammered
// beyond its limit costs its callers no shared writes. Cells are read between two
// loads of the word, whose version tells whether they have changed.
//
// A counter without a slot is inserted under the locks of its two blocks. One that moves is
// frozen meanwhile, under the locks of the blocks that it leaves and enters. A group of
// several charges peeks at all its counters, then reserves them in one order for all
// batches, and gives back what it reserved if one has no room any more. Each counter
// keeps its bound at every step, so admissions are always legal. A denial can be
// spurious only while another request, denied itself, holds a reservation.
//
// A denial and the penalty that it begins are two steps, and so are the looks at a penalty and at its counter. Of
// several who are denied at once one begins a penalty. Who looked before it began may be admitted after.
//
// Who reserves holds the hits first and looks at the counter then; who settles charges the counter first and drops
// the hold then. So whoever looks sees what is about to be charged in one of the two places, or in both, and is
// denied rather than admitted beyond the limit.
//
// # Cost
//
// Sixteen bytes a counter, and what it has of cells; see [CounterBytes]. A decision
// on a counter in cache takes forty to ninety nanoseconds, and on one of a million counters a few
// hundred. A new counter takes less than a microsecond. Two limits together take three to
// four times the time of one. Policies that
// are used often should be prepared; see [Policy.Prepare]. Time per charge is bounded
// by sixteen slots and the cells of a counter; n charges in a group cost n log n.
//
// # What it does not do
//
// It does not share counters with other processes. [Table.Save] and [Load] let them outlive
// theirs, and what is held under leases if [Options.RestoreLeases] is set. It does not make batches atomic to onlookers: another goroutine may see one counter charged and
// the next not yet. A clock that runs ahead takes counters with it, by an hour at most when it
// is back.
package limiter
