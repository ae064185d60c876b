// Package store decides charges in Redis or Valkey, where all replicas count together.
//
// A caller hands over a [limiter.Batch] and the names of its counters to [Store.Decide]. The store decides the charges as
// a [limiter.Table] does: all algorithms, groups, refunds and peeks. It replies with the state of each counter before the
// charge, and [limiter.Stored.Decide] makes the decisions from that here, by the code that decides in memory. A
// test holds the store and a table against each other on random charges with explicit times.
//
// Below this package: redis is a connection to one server, script has charges as words of Redis and Lua, sentinel finds
// a primary.
//
// # A batch
//
//	Decide      encodes the charges in the caller's goroutine, and queues them on a lane    store.go, split.go
//	lane        keeps who waits, in the order of arrival, and a timer for their deadlines   lane.go, ask.go
//	sender      takes from the queue what the store decides in a millisecond, sends it in   sender.go
//	            one write, and concludes each caller's charges when the reply is there
//	prober      connects, and looks each second whether the server is there                 away.go
//
// A lane has two senders and one prober. Two others use its connection: the prober of another lane, for debts of a slot that
// moves between their nodes (repay.go), and [Store.AcquireLeadership], which has nothing to do with
// counters: it says which of several processes does what only one may do (role.go). No timer fills batches: what comes while
// two are under way is the next. So a busy counter costs the store one read and one write a batch.
//
// # State
//
// A key holds a counter and no limit, so an edited limit keeps its counter. Every key expires by itself:
//
//	fixed window    s1{...}f60_<start>  count
//	token, leaky    s1{...}t60, k60     TAT, decimal nanoseconds since 1970; sixteenths of them where
//	                                    the emission interval is below 1024 ns
//	sliding window  s1{...}r60.10       number of the newest sub-window, a double, and the counts of it
//	                                    and of those before it, uint32, each at its number modulo k+1;
//	                                    little-endian
//	sliding log     s1{...}l600         list of decimal nanoseconds, oldest first
//	concurrency     s1{...}p600         sorted set of leases, by when each place is free by itself, in
//	                                    milliseconds; negative of one that a replica gave without the
//	                                    store, and that has been given back
//	reserved        the counter's, h    hash of leases, each with when it ends, in milliseconds, and its
//	                                    hits, 0 of one that a replica gave without the store, and that has
//	                                    been given back; and s, the sum of all, when the first ends, and
//	                                    how many of those there are. It lacks the start of a fixed window
//	penalty         the counter's, y    its step, and when it is forgotten, in milliseconds. It lacks the
//	                                    start of a fixed window
//
// A key gets its expiry in the run or the write that makes it. The key of a fixed window expires a second after the
// window's end, for hits that are on their way then, and up to a minute of jitter later, since keys that expire together
// stop a server.
//
// Buckets, sliding windows and logs go by the store's clock. The start of a fixed window stands in its name, so a fixed
// window goes by this process's clock, corrected by the time that replies tell. On a cluster that is the time of the
// counter's node, by which its key expires. Where the slot depends on the window's start, it is that of the node with the first
// slots, and the key's expiry is corrected.
//
// # Away
//
// A lane goes away when a batch fails, or when its server has said nothing for [Options.Timeout] though somebody waits.
// Then those who wait get the [Fallback] at once, and so does whoever comes until the lane is back. The prober dials
// anew and charges a counter of its own; the lane is back when the server answers in time. A reply that comes after its
// caller got the fallback is dropped, and the store keeps its hits, but not what it holds under a lease (see below). A caller
// whose own deadline comes first gets the fallback alone.
//
// [Local] decides in a table that is a mirror: the counters of each reply are written to it, but of logs only the hits
// of this process. So an outage admits at most what was left when the store last replied. What the fallback admits is
// owed to the store (ledger.go, owing.go). The prober charges the store with it before the lane is back, and the mirror
// adopts the counters that the store replies then (repay.go).
//
// Of places the mirror knows how many are held, and not under which leases (leases.go): any lease of the counter
// gives one back there. What was taken and what was given back meanwhile is owed, lease by lease.
//
// A lease is either one that the store gives or one that a replica gives without it. So a caller that got the fallback has
// no lease of the store's, and what the store holds for it is to be given back, whether it ran the request before or after the
// caller was answered. An ask that was sent has a fate, which says what is owed:
//
//	underWay    no reply has come yet: debts and strays of the ask wait in it
//	counted     the reply has come: its hits are in the store. What it gave under a lease is given back, and
//	            what the fallback gave under one is owed
//	uncounted   the connection ended without a reply: hits are owed and may count twice, and the lease that
//	            the ask proposed is given back, if the store holds it
//
// A lease that a replica gave stays known in the store after it was given back. So a debt that is charged twice, since no
// reply came, or that comes after the lease was given back elsewhere, holds nothing.
//
// A lane that ends charges what is owed first, for two seconds at most.
//
// # Primaries
//
// A fleet has the lanes of one store: one, or on a cluster one for each primary (fleet.go). Each second, and after
// errors, it asks where the primaries are (primaries.go). On a cluster the calls of a batch for one slot are one run of
// the script, and all runs are one write. MOVED, ASK and TRYAGAIN are followed (redirect.go).
//
// A request whose counters are in several slots, or which would take the store too long, is decided in parts
// (split.go). If one part denies a group that has charges in other parts, those are given back, and nobody waits for
// that. If one part fails, so does the request, and all others give back what they took on the condition that it is admitted.
// So others may be denied for a moment by hits that come back, but no counter is ever beyond its limit. A request on a key that
// another program wrote is decided in parts, too, one for each counter.
//
// # Invariants
//
//   - Each ask is decided once: by whoever removes it from the open asks of its lane.
//   - A waiter is told once, and has its answer within its deadline or [Options.Timeout], whatever the server does.
//   - Hits that a caller was granted are in the store, or owed to it, or counted as forgotten. Hits of a connection that
//     ended without a readable reply may count twice.
//   - What the store holds under a lease that no caller has is owed to be given back. Commands of a connection that was given
//     up run before those of the next one, or never, unless a proxy delivers them later.
//   - A lane makes at most two messages at a time, and a run takes the store a millisecond at most, by an estimate that
//     follows the server's speed (slowness.go).
//   - A key of another program affects the limit on its counter alone: the fallback decides that one, and the store the other
//     limits of a request (apart.go). With [Error] there is no decision of the request, which takes nothing then. If the
//     deadline of a request comes first, the fallback decides all of it, and the hits on its other counters are owed. The key
//     stays; a fixed window that counts refused hits gives it an expiry.
//
// # Concurrency
//
// Locks, none of which is held while anything waits for the server:
//
//	fleet.mu          the set of lanes; the chart of slots is immutable, and replaced
//	fleet.fates       fate, debts, strays and foreign of all asks of a fleet
//	fleet.owed.mu     the ledger
//	lane.mu           the lane's queue, open asks, client and timer
//	lane.offsets.mu   the range of the offset of the server's clock
//	lane.slowness.mu  how long the last runs took
//
// Their order is fleet.mu before lane.mu, to ask whether a lane is up, and fleet.fates before fleet.owed.mu. No other lock is
// taken under one of them. Functions whose names end in Locked need the lock of their receiver; those of asks need fleet.fates.
//
// An ask belongs to whoever has removed it from the open asks of its lane; one that was sent is also
// read by its sender until its fate is settled, so it is not used again if another has decided it. A panic costs the request
// that it is in.
//
// # Cost
//
// A decision by the store allocates nothing once its memory is pooled, and neither does one by the fallback.
// A counter that the store said is full is refused in memory for a second, where refused hits do not count (certain.go).
//
// # What it does not do
//
// It asks replicas of the store nothing, and counts nothing in several stores at once. A process that dies in between, or
// a store that goes away then, leaves charged what a denied group took in other slots, until that expires. A failover of the
// store forgets the hits that the new primary has not seen.
package store
