package own

// mostParked is what requests on their way may hold in all, as over grpc-go.
const mostParked = 96 << 20

// parks tells how many bytes the connection holds of what is on its way, at the end of each turn and while
// a message is inflated. If
// all connections together hold more than they may, those that hold the most are closed. No call is
// answered with an error for it: Envoy would let it pass.
func (c *connection) parks(bytes int64) {
	grown := bytes - c.parked.Swap(bytes)
	if w := c.transport; grown != 0 && w.parked.Add(grown) > mostParked && grown > 0 {
		w.shed()
	}
}

// parksLocked tells so of all that is on its way, and of the bytes of a message that is being inflated.
func (c *connection) parksLocked(inflating int) {
	c.parks(int64(c.h2.Parked() + c.rest + c.later + inflating))
}

// shed closes connections until the others hold no more than they may.
func (w *Transport) shed() {
	// Of two goroutines, the second must see what the first has freed. Otherwise it would close
	// one connection more than is needed.
	w.shedding.Lock()
	defer w.shedding.Unlock()
	for w.parked.Load() > mostParked {
		var worst *connection
		for _, c := range w.all() {
			if worst == nil || c.parked.Load() > worst.parked.Load() {
				worst = c
			}
		}
		if worst == nil {
			return
		}
		w.parked.Add(-worst.parked.Swap(0))
		worst.end(errHoldsMost)
	}
}
