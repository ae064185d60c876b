// Package leases tracks the leases that this process has granted: who can return each, and when it expires. It revokes
// those that will not be returned, and counts those that were not.
//
// A request that takes a slot of a concurrency limit, or reserves hits, takes a lease: a number that Envoy returns in an
// end call. Package limiter grants the number and package answer charges the end call; a [Lessor] only tracks the leases.
// Requests without leases do not come here. The vocabulary is that of etcd's lessor.
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
// Each event ends a granted lease. The first four leave nothing to do: the counter has what the lease held, or holds it
// until it expires. The others revoke the lease: a [Decider] returns what it held, as the end call would have. It has a
// second to do so; after that, the lease expires in its counter.
//
//	returned      the end call has brought the lease, or the request was cancelled while its response was delayed
//	expired       its time is over; its counter no longer holds it
//	counterReset  an operator has reset its counter
//	displaced     the same number was granted again, or 65,536 leases were granted and this one expires first
//	callReset     Envoy has reset the call that took it, so the end call will not come
//	clientDead    its client was condemned for the grace; see below
//	limitRemoved  a reload has removed or renamed the limit that granted it; see review.go
//
// # Clients
//
// A client is an Envoy. It returns a lease over any of its connections, so a connection that ends says little: an Envoy
// closes connections by age, by number of calls, and when a cluster changes, while requests go on. Leases are revoked only if a
// client has lost its last connection, seems dead, and does not connect within the grace (--lease-grace).
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
// A client that is not connected and has no leases is forgotten, unless it has lost leases in this way: then it may be found
// to drop connections (evidence.go). At most 1,024 such clients are remembered.
//
// The trust in a client:
//
//	         Close: Unresponsive, or Abrupt or AfterReply where that seems its death
//	trusted -------------------------------------------------------------------------> suspected
//	        <-------------------------------------------------------------------------
//	         a call over a connection that it opened after that; Close: Graceful
//
// Connections without calls that take or return leases say nothing. Evidence.go has what makes the end of a connection seem the
// death of a client.
//
// # Locks
//
//   - Lessor.mu protects the leases, the clients and the connections. It is never held while something waits: leases are
//     ended under it and revoked after it. A review releases it every 64 leases.
//   - reviews.mu protects which reviews run and are due. It is never held together with Lessor.mu.
//
// Lessor.slots bounds the leases that are being revoked by the deaths of clients and by reloads.
//
// # Cost
//
// Granting a lease takes the lock twice and a place in a heap; it allocates nothing once there is memory of ended
// leases. A lease takes about 300 bytes, and what names its limit and request at most 16 MiB in all.
package leases
