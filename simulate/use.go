package simulate

import (
	"math"
	"strconv"
)

// Use is in how many windows of its keys a limit was used so much.
type Use struct {
	// From and UpTo are shares of the limit: more than From, up to UpTo. The last has no
	// end, and UpTo 0.
	From    float64 `json:"more_than"`
	UpTo    float64 `json:"up_to,omitempty"`
	Windows uint64  `json:"windows"`
}

// shares are the borders of a histogram.
var shares = [...]float64{1. / 64, 1. / 16, 1. / 4, 1. / 2, 3. / 4, 1, 2, 4, 16, 64}

// histogram sorts windows by what was asked for.
func (d *demand) histogram(limit uint64) []Use {
	all := make([]Use, len(shares)+1)
	from := 0.0
	for i, s := range shares {
		all[i] = Use{From: from, UpTo: s}
		from = s
	}
	all[len(shares)].From = from
	d.each(func(hits, windows uint64) bool {
		share := math.Inf(1)
		if limit > 0 {
			share = float64(hits) / float64(limit)
		} else if hits == 0 {
			share = 0
		}
		i := 0
		for i < len(shares) && share > shares[i] {
			i++
		}
		all[i].Windows += windows
		return true
	})
	return all
}

// label is a bar's name.
func (u Use) label() string {
	switch {
	case u.UpTo == 0:
		return "more"
	case u.UpTo < 1:
		return strconv.FormatFloat(math.Round(u.UpTo*100), 'f', 0, 64) + " %"
	default:
		return "x " + strconv.FormatFloat(u.UpTo, 'f', 0, 64)
	}
}
