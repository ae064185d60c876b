// Package store decides charges in Redis or Valkey, where all replicas count together.
//
// A caller hands over a [limiter.Batch] and the names of its counters. One script, decide.lua,
// decides them in the store as a [limiter.Table] does: all algorithms, groups, refunds and
// peeks. Its reply is what each charge found, from which [limiter.Stored.Conclude] makes the same
// decisions here, by the code that decides in memory. A test holds script and table
// against each other on random charges with explicit times.
//
// A key that another program wrote, under a counter's name, costs the requests on that counter alone:
// the script finds it before it decides, names it, and leaves those requests out. The fallback decides
// them.
//
// # A batch
//
//	Decide      encodes the charges in the caller's goroutine, and queues them     wire.go
//	lane        two senders take what is queued, a millisecond of the store's time lane.go, run.go
//	            at most, as a message
//	client      sends it in one write, and reads the replies        commands.go, client.go, resp
//	lane        each caller's charges are concluded, and its waiter is told        found.go
//
// What needs no script, such as hits of fixed windows that count also when they are refused, goes as
// commands of the server's own in the same message: native.go says which, and why. A request that would
// take the store long goes in parts, between which others go: cost.go.
//
// No timer fills batches: what comes while two are under way is the next. So a busy counter costs
// the store one read and one write a batch. Only senders and the prober call the
// client, which waits for replies without looking at a deadline.
//
// # State
//
// Under each name is what expires by itself, and never a limit, so an edited limit keeps
// its counter:
//
//	fixed window    s1{...}f60_<start>  count
//	token, leaky    s1{...}t60, k60     TAT, decimal nanoseconds since 1970; sixteenths of them where
//	                                    the emission interval is below 1024 ns
//	sliding window  s1{...}r60.10       number of the newest sub-window, a double, and the counts of it
//	                                    and of those before it, uint32, each at its number modulo k+1;
//	                                    little-endian
//	sliding log     s1{...}l600         list of decimal nanoseconds, oldest first
//
// Whatever makes a key sets its expiry in the same run of the script, or in the same write. A fixed window's is a second after
// its end, for hits that are on their way then, and up to a minute of jitter, since keys that
// expire together stop a server. Lua's numbers are
// doubles, so times are seconds and nanoseconds apart, and hits are cut to 2^33.
//
// Buckets, sliding windows and logs go by the store's clock. A fixed window's start stands in
// its name, so it goes by this process's clock, corrected by what the replies tell.
//
// # Away
//
// When a batch fails, or the store has said nothing for [Options.Timeout] though somebody waits, the lane is
// away: whoever waits gets the [Fallback] at once, and whoever comes later too. One goroutine, the prober, closes
// the connection, dials anew and charges a counter of its own; an answer in time brings the lane back. A reply that
// comes after its caller got the fallback is dropped; its hits stay charged. A caller whose own
// deadline comes first gets the fallback alone.
//
// The table that [Local] decides in is a mirror: each reply's counters are written to it, of
// logs only the hits of this process. So an outage admits at most what was left when the store
// last told, and nobody gets a fresh allowance. What the fallback admitted is owed to the store (owed.go,
// owing.go): when it is back, repay.lua charges it with that before requests are sent again, and the mirror
// adopts what it says then (repay.go).
//
// # Primaries
//
// A fleet is the lanes of one store: one, or on a cluster one for each primary (fleet.go). Each second
// and after errors it asks who the primaries are: most of the Sentinels (sentinel.go), or
// a node that answers (cluster.go). Sentinels also tell of a failover while it goes on (heard.go). On a cluster a batch is one run of the script for each slot, all in
// one write, and MOVED, ASK and TRYAGAIN are followed (redirect.go).
//
// A request whose counters are in several slots is decided in each by itself (split.go). If one denies a
// group that has charges in others, those are given back, and nobody waits for that. So
// for a moment others may be denied by hits that come back, but no counter is ever beyond its
// limit. What a process that dies in between has taken stays until it expires.
//
// # Certain refusals
//
// What the store said within a second has no room is refused in the mirror, without asking, where
// refused hits do not count: see certain.go.
package store
