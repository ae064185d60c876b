// Package leases tracks the leases that this process has granted: which client can return each, and
// when it expires. It revokes leases that will not be returned, and counts those that expired.
//
// A request that acquires a permit of a concurrency limit, or reserves hits, is granted a lease: a
// number that Envoy returns in an end call. Package limiter grants the number and package answer
// charges the end call; a [Lessor] only tracks the leases. Requests without leases do not use this
// package. The vocabulary is that of etcd's lessor.
//
// # Leases
//
//	   Grant
//	     |
//	     v
//	+---------+   returned: Return            +-------+
//	| granted |-- expired: Expire, Grant ---->| ended |
//	+---------+   counterReset: Forget        +-------+
//	     |        displaced: Grant                ^
//	     |                                        |
//	     |        callReset: ResetCall        +---------+
//	     +------- clientDead: the grace ----->| revoked |
//	              limitRemoved: Review        +---------+
//
// Each event ends a granted lease. The first four events require no further action. The others
// revoke the lease: a [Decider] releases its hits, as the end call would have. If the release takes
// longer than a second, the lease stays in its counter until it expires.
//
//	returned      the end call returned the lease, or the request was cancelled while its response was delayed
//	expired       its counter released it at its expiry
//	counterReset  an operator has reset its counter
//	displaced     the same number was granted again, or 65,536 leases were granted and this one expires first
//	callReset     Envoy has reset the call that acquired it, so there will be no end call
//	clientDead    its client was condemned for the grace period; see below
//	limitRemoved  a reload has removed or renamed the limit that granted it; see review.go
//
// # Clients
//
// A client is an Envoy. It can return a lease over any of its connections, so a closed connection
// does not mean that its leases are lost: an Envoy closes connections by age, by number of calls,
// and when a cluster changes, while requests continue. Leases are revoked only if a client has lost
// its last connection, seems dead, and does not connect within the grace period (--lease-grace).
//
// The presence of a client:
//
//	                 Connect                          last Close, suspected in the last grace period
//	new, forgotten ---------> connected ---------------------------------------> condemned
//	                           ^  |  ^                                             |   |
//	                           |  |  +----------------- Connect -------------------+   |
//	                           |  |                                                    |
//	                   Connect |  | the last Close                                     | the grace is over:
//	                           |  v                                                    | its leases are revoked
//	                       disconnected <----------------------------------------------+
//
// A client that is not connected and has no leases is forgotten, unless leases were revoked because
// it seemed dead. Such a client may later return a lease and thereby show that its requests outlive
// its connections (evidence.go). At most 1,024 clients are remembered for this.
//
// The trust in a client:
//
//	         Close: Unresponsive, or Abrupt or AfterReply if the client seems dead
//	trusted -------------------------------------------------------------------------> suspected
//	        <-------------------------------------------------------------------------
//	         a call over a connection that it opened later; Close: Graceful
//
// Connections without calls that acquire or return leases are ignored. File evidence.go contains
// the rules for when a client seems dead.
//
// # Locks
//
//   - Lessor.mu protects the leases, the clients and the connections. It is never held while
//     waiting for a store: leases are ended while it is held, and revoked after it is released. A
//     review releases it every 64 leases.
//   - reviews.mu protects the state of reviews. It is never held together with Lessor.mu.
//
// Lessor.slots bounds the number of leases that are being revoked because of dead clients and
// reloads.
//
// # Cost
//
// Granting a lease acquires the lock twice and pushes an element to a heap. It does not allocate if
// the memory of an ended lease can be reused. A lease uses about 300 bytes, plus its origin: the
// names of its limit and request. All origins use at most 16 MiB.
package leases
