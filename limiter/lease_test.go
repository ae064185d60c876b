package limiter

import (
	"testing"
	"time"
)

// TestCloneOutlivesItsPolicy reuses the memory of a policy after it was cloned.
func TestCloneOutlivesItsPolicy(t *testing.T) {
	for _, memory := range []*Reserve{nil, NewReserve(7, time.Second, false)} {
		r := NewReserve(5, time.Minute, true)
		p := Policy{Algorithm: FixedWindow, Limit: 100, Window: time.Hour, NoBlocks: true, Reserve: r}
		p.Prepare()
		bare := p.Clone(memory)
		p, *r = Policy{}, Reserve{}
		if bare.Limit != 100 || bare.Window != time.Hour || !bare.NoBlocks || bare.isPrepared() || bare.Validate() != nil {
			t.Errorf("the copy is %+v", bare)
		}
		own := bare.Reserve
		if own == r || memory != nil && own != memory || own.Life() != time.Minute || own.MaxReservations() != 5 || !own.ReleasesWithoutCost() || own.HoldPolicy().isPrepared() {
			t.Errorf("the copy has the reserve %+v", own)
		}
	}
	none := (&Policy{Algorithm: FixedWindow, Limit: 1, Window: time.Hour}).Clone(NewReserve(7, time.Second, false))
	if none.Reserve != nil {
		t.Error("the copy of a policy without a reserve has one")
	}
}
