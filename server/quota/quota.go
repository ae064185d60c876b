// Package quota is what the server knows of Envoy's rate limit quota service (RLQS): the interface
// between the transports, which carry the streams, and the tree rlqs, which divides limits. The
// server works without an implementation; the program's file quotas.go adds it.
package quota

import (
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// ServiceName is the full name of the gRPC service, and MethodName the name of its only method.
const (
	ServiceName = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"
	MethodName  = "StreamRateLimitQuotas"
)

// Options configure a service.
type Options struct {
	// Elapsed returns the time of a monotonic clock.
	Elapsed func() time.Duration
	// Rules returns the active rules, or nil.
	Rules func() *descriptors.Set
	// ShadowMode admits every request.
	ShadowMode bool
	// Allow restricts the domains that a client may use. Nil allows all.
	Allow *access.AllowList
	// Count is called with the numbers of requests that an Envoy reported for a bucket. set and r
	// are the bucket's rule and the set that contains it; entries are the entries of the bucket's
	// descriptor. shadowDenied is the number of allowed requests that a limit in shadow mode would
	// have denied.
	Count func(
		set *descriptors.Set, r *descriptors.Rule, entries []descriptors.Entry, allowed, denied, shadowDenied uint64,
	)
	Metrics *telemetry.Metrics
	// Elector, if not nil, elects the replica that divides a domain. Name is the name of this
	// replica in messages.
	Elector Elector
	Name    string
	// LeaderChanged, if not nil, is called when this replica becomes or ceases to be the leader of
	// a domain, or when another leader becomes known; leader is its name, empty if unknown.
	LeaderChanged func(domain string, leads bool, leader string)
	// Panics counts and logs panics of the service's own goroutines.
	Panics *telemetry.Panics
}

// Elector elects the replica that divides a domain, such as a store that replicas share.
type Elector interface {
	// AcquireLeadership makes candidate the leader of each domain for ttl, or renews its
	// leadership, unless the domain has another leader. If ttl is 0, it releases the leaderships of
	// candidate instead. It calls report with the index and the previous leader of each domain, ""
	// for none; if it does not, the leader of the domain is unknown. AcquireLeadership may block
	// forever.
	AcquireLeadership(candidate string, ttl time.Duration, domains []string, report func(i int, previous string))
}

// Service divides limits among the Envoys that report to it. Its methods may be called
// concurrently.
type Service interface {
	// Open adds a stream. wake is called, by any goroutine, when there may be a message to send or
	// the stream has failed. It must not block.
	Open(p Peer, wake func()) (Stream, error)
	// RulesChanged applies the active rules to all buckets before it returns.
	RulesChanged()
	// DividedDomains returns the domains with divided limits, and whether this server divides them.
	DividedDomains() map[string]bool
	// MemoryBytes returns the memory that the service uses.
	MemoryBytes() int64
	// Largest returns the buckets with the most demand, in descending order, and the numbers of
	// streams and buckets.
	Largest() (views []View, streams, buckets int)
	// View returns a snapshot of the bucket of a descriptor. ok is false if no Envoy has it.
	View(domain string, entries []descriptors.Entry) (v View, ok bool)
	// AssignedRatios returns the assigned part of each divided limit.
	AssignedRatios() map[*descriptors.Rule]float64
	// Resign gives up the leadership of all domains, so that another replica takes over.
	Resign()
	// Close stops the service. Its streams must be closed by their transports.
	Close()
}

// Peer is the client that opens a stream.
type Peer struct {
	// Client is nil if the client presented no certificate.
	Client *access.Client
	// Identity names the client: see [access.IdentityOf].
	Identity string
	// Address is the address of the client's machine. It is empty if several machines may share it,
	// as over a Unix socket.
	Address string
}

// Stream is an Envoy's stream. Feed and AppendMessage must each be called by one goroutine at a
// time; all other methods may be called concurrently.
type Stream interface {
	// Feed processes the next bytes of a report; last is true at its end. After an error the stream
	// has failed.
	Feed(p []byte, last bool) error
	// AppendMessage appends the next message to b and returns its sequence number, 0 if there is
	// none, and whether there may be more.
	AppendMessage(b []byte) (message []byte, seq uint64, more bool)
	// Confirm tells that the client has received the messages up to seq.
	Confirm(seq uint64)
	// MarkSent tells that the messages up to seq were passed to a transport that cannot confirm
	// them. ConfirmByReports, called after each report, then confirms them.
	MarkSent(seq uint64)
	ConfirmByReports()
	// Err returns the error with which the stream has failed, or nil. The transport must check it
	// whenever wake is called.
	Err() error
	// Close removes the stream. It may be called more than once.
	Close()
}

// View is a snapshot of a bucket that is divided. Rates are in requests per second.
type View struct {
	Rule    *descriptors.Rule
	Entries []descriptors.Entry // entries of its descriptor
	Key     identity.ID

	Limit, Assigned, Unconfirmed, Lost float64

	LostFor  time.Duration // how long the lost rate stays reserved
	Learning time.Duration // how long the division still learns the demands, 0 if it does not
	Shares   []Share
}

// Share is the share of a stream.
type Share struct {
	Stream       uint64
	Address      string // address of the stream's machine; "" if unknown
	Rate, Demand float64
	Confirmed    bool
}
