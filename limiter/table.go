package limiter

// Options configures a [Table]. The zero value is usable.
type Options struct {
	// Bytes bounds the memory of the counters. 0 means 64 MiB; the least is 4 KiB.
	Bytes int64
}

// Stats are a table's totals.
type Stats struct {
	// Capacity is how many one-word counters fit.
	Capacity int64
	// Bytes is the memory that the counters may take; all of it is reserved.
	Bytes int64
	// Reclaimed counts the slots of expired counters that were used again.
	Reclaimed uint64
	// GivenUp counts the live counters that were forgotten for want of room.
	GivenUp uint64
}

// Table holds the counters. All methods may be called concurrently.
type Table struct{}

// New returns an empty table.
func New(opt Options) (*Table, error) { return &Table{}, nil }

// Decide decides all charges of b at the time now, together. b.Charges must be
// filled; the answers are in b.Decisions and b.Refused.
func (t *Table) Decide(now Time, b *Batch) {}

// Stats returns the totals so far.
func (t *Table) Stats() Stats { return Stats{} }

// Live counts the counters that a decision at now could still see. It walks the
// whole table, so it is for metrics, not for requests.
func (t *Table) Live(now Time) int64 { return 0 }
