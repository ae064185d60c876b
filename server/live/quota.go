package live

import "time"

// MaxQuotaBuckets and MaxQuotaShares bound the size of a [Quota].
const (
	MaxQuotaBuckets = 20
	MaxQuotaShares  = 20
)

// Quota is the state of the rate limit quota service.
type Quota struct {
	// Streams is the number of streams of Envoys, one per Envoy and domain. Buckets is the number
	// of divided limits.
	Streams int `json:"streams"`
	Buckets int `json:"buckets"`
	// Largest contains the buckets with the highest demand, in descending order, at most
	// [MaxQuotaBuckets].
	Largest []QuotaBucket `json:"largest"`
}

// QuotaBucket is a limit that is divided among Envoys. Rates are in requests per second.
type QuotaBucket struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	// Hash identifies the bucket, and Descriptor is its descriptor; see [Key].
	Hash       string `json:"hash,omitempty"`
	Descriptor string `json:"descriptor,omitempty"`
	// LimitRate is the divided rate, and DemandRate the estimated total demand of all Envoys.
	LimitRate  float64 `json:"limit_per_second"`
	DemandRate float64 `json:"demand_per_second"`
	// Assigned is the rate that Envoys may be using. It includes Unconfirmed, the part that Envoys
	// may use until they confirm lower rates, and Lost, the part that disconnected Envoys may use
	// until LostUntil.
	Assigned    float64    `json:"assigned_per_second"`
	Unconfirmed float64    `json:"unconfirmed_per_second"`
	Lost        float64    `json:"lost_per_second"`
	LostUntil   *time.Time `json:"lost_until,omitempty"`
	// LearningUntil is set while the assignments of this process' predecessor are unknown.
	LearningUntil *time.Time `json:"learning_until,omitempty"`
	// Holders is the number of streams with a share. Shares contains the largest shares, at most
	// [MaxQuotaShares].
	Holders int          `json:"holders"`
	Shares  []QuotaShare `json:"shares"`
}

// QuotaShare is an Envoy's share of a bucket.
type QuotaShare struct {
	// Address is the IP address of the Envoy, empty if unknown. Stream identifies the stream.
	Address string `json:"address,omitempty"`
	Stream  uint64 `json:"stream"`
	// Share is the assigned rate, and Demand the Envoy's estimated demand.
	Share  float64 `json:"share_per_second"`
	Demand float64 `json:"demand_per_second"`
	// Confirmed is true if the Envoy has received its share.
	Confirmed bool `json:"confirmed"`
}
