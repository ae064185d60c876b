package simulate

import "github.com/sluice-ratelimit/sluice/simulate/report"

// maxBins is how many whiles a timeline has. Each is a second at first; they become
// longer as the log does.
const maxBins = 240

// timeline parts the log's time into bins, the same for all limits.
type timeline struct {
	// width is how long a bin is, in seconds, and start where the first begins.
	width, start int64
	// now is the bin of the current time, and until where it ends.
	now   int
	until int64
	// factor is by how much bins have to become longer.
	factor int
}

// advance makes a time, in seconds, the current one. It reports whether bins are to be folded,
// after which settle is to be called.
func (t *timeline) advance(second int64) bool {
	if second < t.until {
		return false
	}
	if t.width == 0 {
		t.width, t.start = 1, second
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

// fold makes a limit's bins longer.
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
