package simulate

import "github.com/sluice-ratelimit/sluice/simulate/report"

// maxBins is the maximum number of bins. A bin is one second long at first, and doubles when the
// log exceeds the timeline.
const maxBins = 240

// timeline divides the log's time into bins, shared by all limits.
type timeline struct {
	// width is the length of a bin, and start the time of the first, both in seconds.
	width, start int64
	// now is the current bin, and until its end.
	now   int
	until int64
	// factor is the factor by which bins must grow.
	factor int
}

// advance sets the current time in seconds. If it returns true, the caller must fold all bins and
// then call setBin.
func (t *timeline) advance(second int64) bool {
	if second < t.until {
		return false
	}
	if t.width == 0 {
		t.width = 1
		t.start = second
	}
	for t.factor = 1; (second-t.start)/(t.width*int64(t.factor)) >= maxBins; {
		t.factor *= 2
	}
	if t.factor > 1 {
		return true
	}
	t.setBin(second)
	return false
}

// fold merges the bins of a limit.
func (t *timeline) fold(bins []report.Bin) {
	for i, b := range bins {
		bins[i] = report.Bin{}
		to := &bins[i/t.factor]
		addTo(b.Hits, &to.Hits)
		addTo(b.Over, &to.Over)
	}
}

func (t *timeline) setBin(second int64) {
	t.width *= int64(t.factor)
	t.factor = 1
	t.now = int((second - t.start) / t.width)
	t.until = t.start + int64(t.now+1)*t.width
}
