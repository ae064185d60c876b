package blocks_test

import (
	"fmt"
	"time"
)

// zone is a time zone that never changes its offset from UTC.
type zone struct {
	name   string
	offset time.Duration
}

// zones are one for each hour of the day, and others.
var zones = func() (all []zone) {
	for h := -12; h <= 14; h++ {
		all = append(all, zone{fmt.Sprintf("Etc/GMT%+d", -h), time.Duration(h) * time.Hour})
	}
	return append(all,
		zone{"Asia/Kolkata", 5*time.Hour + 30*time.Minute},
		zone{"Asia/Kathmandu", 5*time.Hour + 45*time.Minute},
		zone{"Australia/Eucla", 8*time.Hour + 45*time.Minute},
		zone{"Pacific/Marquesas", -9*time.Hour - 30*time.Minute})
}()
