package live

import (
	"cmp"
	"slices"
	"time"
)

// MostQuotaBuckets and MostQuotaShares bound a [Quota].
const (
	MostQuotaBuckets = 20
	MostQuotaShares  = 20
)

// Quota is what Envoys divide by the rate limit quota service.
type Quota struct {
	// Streams are those of Envoys, one for each domain. Buckets is how many are divided.
	Streams int `json:"streams"`
	Buckets int `json:"buckets"`
	// Largest are the buckets with the most demand, the greatest first, at most [MostQuotaBuckets].
	Largest []QuotaBucket `json:"largest"`
}

// QuotaBucket is a limit that Envoys divide. Rates are requests a second.
type QuotaBucket struct {
	// Replica is the address that says it, of several.
	Replica string `json:"replica,omitempty"`
	Domain  string `json:"domain"`
	Rule    string `json:"rule"`
	Limit   string `json:"limit"`
	// Hash stands for the bucket, and Descriptor is its descriptor; see [Key].
	Hash       string `json:"hash,omitempty"`
	Descriptor string `json:"descriptor,omitempty"`
	// LimitRate is what is divided, and DemandRate what all Envoys are taken to want.
	LimitRate  float64 `json:"limit_per_second"`
	DemandRate float64 `json:"demand_per_second"`
	// Assigned is what Envoys may act by, Unconfirmed how much of it waits for Envoys to confirm that they have less, and
	// Lost how much is held by Envoys that are gone, the last of it until LostUntil.
	Assigned    float64    `json:"assigned_per_second"`
	Unconfirmed float64    `json:"unconfirmed_per_second"`
	Lost        float64    `json:"lost_per_second"`
	LostUntil   *time.Time `json:"lost_until,omitempty"`
	// LearningUntil is there while it is not known what this process' predecessor assigned.
	LearningUntil *time.Time `json:"learning_until,omitempty"`
	// Holders is how many streams of Envoys have the bucket. Shares are those with the greatest shares, at most
	// [MostQuotaShares].
	Holders int          `json:"holders"`
	Shares  []QuotaShare `json:"shares"`
}

// QuotaShare is the share of an Envoy.
type QuotaShare struct {
	// Address is that of the Envoy's machine, empty if it is not known. Stream tells streams apart.
	Address string `json:"address,omitempty"`
	Stream  uint64 `json:"stream"`
	// Share is the rate that it was told, and Demand what it is taken to want.
	Share  float64 `json:"share_per_second"`
	Demand float64 `json:"demand_per_second"`
	// Confirmed says that its share has arrived.
	Confirmed bool `json:"confirmed"`
}

// plus returns the sum of what two replicas say, each of which may be nil. The second's address is replica.
func (q *Quota) plus(o *Quota, replica string) *Quota {
	if o == nil {
		return q
	}
	sum := &Quota{}
	if q != nil {
		*sum = *q
	}
	sum.Streams += o.Streams
	sum.Buckets += o.Buckets
	sum.Largest = slices.Clone(sum.Largest)
	for _, b := range o.Largest {
		b.Replica = replica
		sum.Largest = append(sum.Largest, b)
	}
	slices.SortStableFunc(sum.Largest, func(a, b QuotaBucket) int { return cmp.Compare(b.DemandRate, a.DemandRate) })
	sum.Largest = sum.Largest[:min(len(sum.Largest), MostQuotaBuckets)]
	return sum
}
