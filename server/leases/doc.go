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
// Each event ends a granted lease. The first four require no further action. The others revoke the
// lease: a [Decider] releases its hits, as the end call would have. If that takes longer than a
// second, the lease expires in its counter instead.
//
//	returned      the end call returned the lease, or the request was cancelled while its response was delayed
//	expired       its counter has released it at its expiry
//	counterReset  an operator has reset its counter
//	displaced     the same number was granted again, or 65,536 leases were granted and this one expires first
//	callReset     Envoy has reset the call that acquired it, so there will be no end call
//	clientDead    its client was condemned for the grace period; see below
//	limitRemoved  a reload has removed or renamed the limit that granted it; see review.go
//
// # Clients
//
// A client is an Envoy. It can return a lease over any of its connections, so a closed connection
// means little: an Envoy closes connections by age, by number of calls, and when a cluster changes,
// while requests continue. Leases are revoked only if a client has lost its last connection, seems
// dead, and does not connect within the grace period (--lease-grace).
//
// The presence of a client:
//
//	                 Connect                          the last Close, suspected within the grace
//	new, forgotten ---------> connected ---------------------------------------> condemned
//	                           ^  |  ^                                             |   |
//	                           |  |  +----------------- Connect -------------------+   |
//	                           |  |                                                    |
//	                   Connect |  | the last Close                                     | the grace is over:
//	                           |  v                                                    | its leases are revoked
//	                       disconnected <----------------------------------------------+
//
// A client that is not connected and has no leases is forgotten, unless its leases were revoked
// because it seemed dead: then it may turn out to be a client that drops connections (evidence.go).
// At most 1,024 such clients are remembered.
//
// The trust in a client:
//
//	         Close: Unresponsive, or Abrupt or AfterReply if the client seems dead
//	trusted -------------------------------------------------------------------------> suspected
//	        <-------------------------------------------------------------------------
//	         a call over a connection that it opened after that; Close: Graceful
//
// Connections without calls that acquire or return leases are ignored. The rules by which a client
// seems dead are in evidence.go.
//
// # Locks
//
//   - Lessor.mu protects the leases, the clients and the connections. It is never held while
//     waiting: leases are ended with it and revoked after it is released. A review releases it
//     every 64 leases.
//   - reviews.mu protects the state of reviews. It is never held together with Lessor.mu.
//
// Lessor.slots bounds the leases that are being revoked by the deaths of clients and by reloads.
//
// # Cost
//
// Granting a lease acquires the lock twice and pushes an element to a heap. It does not allocate if
// the memory of an ended lease can be reused. A lease uses about 300 bytes. Its origin, the names
// of its limit and request, is extra; all origins use at most 16 MiB.
package leases
