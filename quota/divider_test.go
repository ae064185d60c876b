package quota_test

import (
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/quota"
)

func TestTwoHoldersShare(t *testing.T) {
	d := quota.New(0, quota.Options{Fresh: true})
	limit := &quota.Limit{Hits: 100, Window: time.Second, Burst: 100 * time.Millisecond}
	report := func(now quota.Time, h quota.Holder) {
		d.Report(now, h, quota.Report{Bucket: quota.Bucket{1}, ID: []byte("id"), Limit: limit, Allowed: 1})
	}
	report(1, 1)
	d.Tick(1)
	if got := d.Ready(nil); len(got) != 1 || got[0] != 1 {
		t.Fatalf("Ready() = %v, want 1", got)
	}
	acts, seq, _ := d.Take(1, 1, nil, 10)
	if len(acts) != 1 || acts[0].Kind != quota.Assign || acts[0].Rate != 360000 || acts[0].ID != "id" {
		t.Fatalf("Take() = %+v, want the whole rate", acts)
	}
	d.Confirmed(2, 1, seq)
	report(3, 2)
	d.Tick(3)
	acts, seq, _ = d.Take(3, 1, nil, 10)
	if len(acts) != 1 || acts[0].Rate != 180000 {
		t.Fatalf("Take() = %+v, want half", acts)
	}
	d.Confirmed(4, 1, seq)
	d.Tick(4)
	acts, _, _ = d.Take(4, 2, nil, 10)
	if len(acts) != 1 || acts[0].Rate != 180000 {
		t.Fatalf("Take() = %+v, want half", acts)
	}
}
