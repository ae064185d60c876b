package limiter

// UseTestNonces gives t a fixed secret, with which hundreds of consecutive leases of a counter differ
// if its ID and the time are those of the histories. Otherwise 1 of 65,536 leases equals the previous
// one of its permit, and a history that returns both by that number is not linearizable.
func (t *Table) UseTestNonces() { t.nonces = testNonces }

// Live returns the number of live counters, also of pinned ones.
func (t *Table) Live(now Time) (n int64) {
	for p := range t.allPartitions() {
		n += p.live(now)
	}
	return n
}

func (p *Partition) live(now Time) (n int64) {
	for s := range p.sizeClasses() {
		n += s.countLive(now)
	}
	return n
}
