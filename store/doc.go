// Package store decides charges in Redis or Valkey, where all replicas share the counters.
//
// A caller passes a [limiter.Batch] and the names of its counters to [Store.Decide]. The store
// decides as a [limiter.Table] does: all algorithms, groups, refunds and peeks. It replies with the
// state of each counter before the charge, and [limiter.Stored.Decide] derives the decisions with
// the code that decides in memory. A test compares the store with a table on random charges at
// explicit times.
//
// Package redis is a connection to one server, script encodes charges as commands and Lua scripts,
// sentinel finds a primary.
//
// # Life of a request
//
//	Decide  encodes the charges in the caller's goroutine and queues a     store.go, split.go
//	        request at a shard
//	shard   keeps the pending requests in order of arrival, and a timer    shard.go, request.go
//	        for their deadlines
//	sender  takes as many requests as the store decides in a               sender.go
//	        millisecond, sends them in one write, and decides each by
//	        the reply
//	prober  connects, and checks each second that the server answers       prober.go
//
// A shard has one connection to a primary, several senders and one prober. There is no batching
// timer: requests that arrive while two batches are in flight, or more if the round trip is long,
// form the next batch. So a busy counter costs the store one read and one write per batch.
//
// The connection is also used by [Store.AcquireLeadership], which elects a leader among processes
// and is unrelated to counters (leadership.go), and by the prober of another shard: when a slot
// moves from a node to another, it syncs hits on both (sync.go).
//
// # Keys
//
// A key contains a counter and no limit, so an edited limit keeps its counter. Every key expires by
// itself:
//
//	fixed window    s1{...}f60_<start>  count
//	token, leaky    s1{...}t60, k60     TAT, decimal nanoseconds since 1970; with sixteenths if the
//	                                    emission interval is below 1024 ns
//	sliding window  s1{...}r60.10       little-endian: the number of the newest sub-window (double), and
//	                                    a ring of the counts (uint32) of the newest k+1 sub-windows, each
//	                                    at its number modulo k+1
//	sliding log     s1{...}l600         list of decimal nanoseconds, oldest first
//	concurrency     s1{...}p600         sorted set of leases by expiry, in milliseconds. A negative score
//	                                    is a tombstone: a lease that a replica granted without the store,
//	                                    and that has been released
//	reserved        the counter's, h    hash: for each lease its expiry in milliseconds and its hits, 0
//	                                    for a tombstone or after a reset; in the field s the sum of all
//	                                    hits, the earliest expiry and the number of tombstones. The name
//	                                    lacks the start of a fixed window
//	penalty         the counter's, y    its step, and when it is forgotten, in milliseconds. The name
//	                                    lacks the start of a fixed window
//
// The script run, or the write, that creates a key also sets its expiry. The key of a fixed window
// expires a second after the window, for hits that are still in flight, plus up to a minute of
// jitter, because many simultaneous expirations stall a server.
//
// Buckets, sliding windows and logs use the store's clock. The key of a fixed window contains the
// start of the window, so this process must know the store's time before it sends the charge: it
// corrects its own clock by the server times in replies. On a cluster it uses the clock of the
// counter's node. If the start decides which node that is, it uses the clock of the node with the
// first slots, and corrects the expiry of the key.
//
// # Outages
//
// A shard becomes unavailable when a batch fails, or when its server has sent nothing for
// [Options.Timeout] while a request waits. The [Fallback] then decides all waiting requests, and
// all new ones until the shard recovers. The prober reconnects and charges a counter of its own;
// the shard recovers when the server answers in time. If a caller's own deadline comes first, the
// fallback decides that request alone. A reply that arrives afterwards changes nothing for the
// caller: its hits stay in the store, its leases do not (see below).
//
// [Local] decides in a table that mirrors the store: each reply updates the counters in it, except
// that a log has only the hits of this process. So an outage admits at most what was left at the
// store's last reply. Hits that the fallback admits are unsynced (ledger.go, unsynced.go). The
// prober charges them to the store before the shard is used again, and the mirror adopts the
// counters of that reply (sync.go).
//
// For a concurrency limit the mirror knows how many permits are held, but not by which leases
// (leases.go): any lease of the counter releases one there. Leases that were acquired or released
// meanwhile are recorded one by one and synced.
//
// The number of a lease shows whether the store granted it, or a replica without the store. If the
// fallback decides a request, the caller gets a lease of the replica. If the store decides the
// request too, perhaps later, no caller knows the lease that it grants: it is a stray lease, which
// must be released. The outcome of a request that was sent determines the hits and leases to record:
//
//	pending    no reply yet: unsynced hits and stray leases are kept with the request
//	counted    the reply has come. Hits that the store admitted are in the store; those that it
//	           denied are synced. The store's leases are released; those of the fallback are synced
//	uncounted  the connection ended without a reply: hits are synced and may count twice.
//	           The lease that the request proposed is released, in case the store holds it
//
// The store remembers the lease of a replica after its release, as a tombstone. So syncing a lease
// twice, because a reply was lost, or after its release at another replica, does not acquire it
// again.
//
// Before a shard ends, it syncs its hits, for two seconds at most.
//
// # Blocks
//
// With [Options.Blocks], a replica charges hits of a hot counter in advance: a block. It admits
// requests from the block without the store; blocks.go has the rules and why limits stay exact. One
// atomic word has the number of unused hits of a block and their window, so each hit is used once.
// Unused hits are subtracted from the word before they are returned, and the return is sent once, on
// the connection of the block. A new connection may lead to another server, so its INFO is compared
// first. If the data are not the same, all blocks end, and the hits used since the last block was
// charged go to the ledger.
//
// # Topology
//
// A backend is one store, with one shard, or on a cluster one for each primary (backend.go). Each
// second, and after errors, it asks which servers are the primaries (topology.go). On a cluster the
// charges of a batch in one slot are one run of the script, and all runs are one write. MOVED, ASK
// and TRYAGAIN are followed (redirect.go).
//
// A request whose counters are in several slots, or that would take the store too long, is decided
// in parts (split.go). If one part denies a group that has charges in other parts, those are
// refunded in the background. If one part fails, the request fails, and the other parts refund hits
// that count only if the request is admitted. So other requests may be denied for a moment by hits
// that are being refunded, but no counter exceeds its limit.
//
// # Invariants
//
//   - Each request is decided once: by the goroutine that removes it from the shard's open
//     requests.
//   - Each waiter is notified once, within its deadline or [Options.Timeout], however the server
//     behaves.
//   - Hits that a caller was granted are in the store, or in the ledger, or counted as dropped.
//     Hits of a connection that ended without a readable reply may count twice.
//   - A lease that the store holds and no caller has is recorded for release. Commands of an
//     abandoned connection run before those of the next one, or never, unless a proxy delivers them
//     later.
//   - A shard has two messages in flight at most, or one for each 5 ms of the shortest round trip,
//     up to 32. A run takes the store a millisecond at most, by estimate.
//   - A key of another program affects only requests on its counter. The fallback decides them, and
//     the hits on their other counters are unsynced, or already counted by INCRBY. The key is not
//     changed, but a fixed window with count_refused gives it an expiry.
//
// # Concurrency
//
// No lock is held while waiting for a server. The locks, and the data that they protect:
//
//	backend.mu         the set of shards; the map of slots is immutable, and replaced atomically
//	backend.outcomeMu  outcome, unsynced, strays and foreign of all requests of the backend
//	backend.ledger.mu  the ledger
//	shard.mu           the shard's queue, open requests, connection and timer
//	shard.offsets.mu   the range of the offset of the server's clock
//
// Order: backend.mu before shard.mu, to ask whether a shard is available; backend.outcomeMu before
// backend.ledger.mu. No other lock is acquired under one of them. Functions whose names end in
// Locked need the lock of their receiver, and those of requests backend.outcomeMu.
//
// A request belongs to the goroutine that removed it from the open requests of its shard:
// endings.go describes what it does with the request and its batch. The sender of a request reads
// it until its outcome is known, so a request that was sent and then decided by the fallback is not
// reused. A panic fails only the request in which it happens.
//
// # Cost
//
// A decision allocates nothing once its memory is pooled, by the store or by the fallback. If the
// store has reported that a counter is full, hits are denied from memory for a second, unless
// denied hits count (denials.go).
//
// # Limitations
//
// The package does not read from replicas of the store, and does not count in several stores at
// once. If this process dies, or the store becomes unavailable, between two parts of a request, the
// charges of a denied group in other slots stay until they expire. A failover of the store loses
// the hits that the new primary has not received.
package store
