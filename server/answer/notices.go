package answer

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/limiter/identity"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

const (
	// noticesPerSecond is the maximum number of notices in any second.
	noticesPerSecond = 100
	// maxRecentNotices is the number of recent notices that are not repeated.
	maxRecentNotices = 1 << 16
)

// notices writes a line to the log when a counter reaches a share of its limit (notify_at). Its
// methods may be called concurrently.
type notices struct {
	logger  *zap.Logger // set by [NewHandler]; nil without one
	dropped prometheus.Counter

	mu    sync.Mutex
	times [noticesPerSecond]limiter.Time // times of the last notices, a ring
	next  int                            // index of the oldest
	// until has the times until which notices are not repeated, and recent their keys, a ring.
	until  map[noticeKey]limiter.Time
	recent []noticeKey
	oldest int
}

// noticeKey identifies the notices of a counter and a share.
type noticeKey struct {
	counter identity.ID
	share   float64
}

// A notice describes a counter whose hits have changed.
type notice struct {
	limit *descriptors.Limit
	// counter is the counter's ID, and policy the policy in force.
	counter identity.ID
	policy  *limiter.Policy
	// entries are those of the descriptor, or of a shared counter.
	entries []descriptors.Entry
	// end is the end of a fixed window.
	end limiter.Time
}

// reaches reports whether the change from before to after used hits reaches a share of the limit.
func (n *notice) reaches(share float64, before, after uint64) bool {
	capacity := n.policy.Capacity()
	return descriptors.IsUsedTo(share, after, capacity) && !descriptors.IsUsedTo(share, before, capacity)
}

// repeats reports whether the count may reach a share several times in a window without a refund.
func (n *notice) repeats() bool {
	return n.policy.Algorithm != limiter.FixedWindow || n.policy.Reserve != nil
}

// writeNotices writes notices of the charges of a decided request.
func (s *Service) writeNotices(x *Exchange) {
	b := &x.plan.Batch
	for at, l := range x.plan.Limits {
		c := &b.Charges[at]
		d := &b.Decisions[at]
		if !l.NotifyAt.Exist() || c.Refund || d.Charged == 0 {
			continue
		}
		n := notice{limit: l, counter: c.ID, policy: c.Policy, end: x.time + limiter.Time(d.Reset)}
		if i := x.descriptorOf(at); i >= 0 {
			n.entries = l.CounterEntries(x.decoder.req.Descriptors[i].Entries)
		}
		s.writeNotice(x.time, &n, limiter.SaturatingAdd(d.Before, b.Precharged(at)),
			limiter.SaturatingAdd(d.Before, d.Charged))
	}
}

// ObserveBlock implements [limiter.BlockObserver].
func (x *Exchange) ObserveBlock(charge int) func(now, end limiter.Time, before, after uint64) {
	l := x.plan.Limits[charge]
	i := x.descriptorOf(charge)
	if !l.NotifyAt.Exist() || i < 0 {
		return nil
	}
	s := x.service
	c := &x.plan.Batch.Charges[charge]
	kept := *l
	terms := *l.Terms
	policy := c.Policy.Clone(nil) // the memory of a row's policy belongs to the plan
	kept.Terms = &terms
	var entries []descriptors.Entry
	if s.live.StoresValues() {
		for _, e := range x.decoder.req.Descriptors[i].Entries {
			entries = append(entries,
				descriptors.Entry{Key: append([]byte{}, e.Key...), Value: append([]byte{}, e.Value...)})
		}
	}
	n := notice{limit: &kept, counter: c.ID, policy: &policy, entries: entries}
	return func(now, end limiter.Time, before, after uint64) {
		n.end = end
		s.writeNotice(now, &n, before, after)
	}
}

// writeNotice writes a line for each share that the change from before to after used hits reaches.
func (s *Service) writeNotice(now limiter.Time, n *notice, before, after uint64) {
	if s.notices.logger == nil {
		return
	}
	end := n.end
	if n.repeats() {
		end = now + limiter.Time(n.policy.Window)
	}
	for _, share := range n.limit.NotifyAt.All() {
		if !n.reaches(share, before, after) || !s.notices.admit(now, noticeKey{n.counter, share}, end, n.repeats()) {
			continue
		}
		fields := []zap.Field{
			zap.String("domain", n.limit.Rule.Domain()), zap.String("rule", n.limit.Rule.Path()),
			zap.String("name", n.limit.Name), zap.String("limit", rules.RateText(n.policy)), zap.Float64("share", share), zap.Uint64("used", after),
		}
		key, descriptor := s.live.Describe(n.counter, n.entries)
		if key != "" {
			fields = append(fields, zap.String("key", key))
		}
		if descriptor != "" {
			fields = append(fields, zap.String("descriptor", descriptor))
		}
		s.notices.logger.Info(telemetry.NoticeMessage,
			append(fields, zap.Time("window_end", time.Unix(0, int64(end)).UTC()))...)
	}
}

// admit reports whether to write a notice at the time now. If once is set, the notice is not written
// again before until. If there are too many notices, it counts a dropped one.
func (n *notices) admit(now limiter.Time, key noticeKey, until limiter.Time, once bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last, ok := n.until[key]; once && ok && now < last {
		return false
	}
	// A much later time means that the clock was set back.
	if since := now - n.times[n.next]; since < limiter.Time(time.Second) && since > -limiter.Time(time.Second) {
		n.dropped.Inc()
		return false
	}
	n.times[n.next] = now
	n.next = (n.next + 1) % noticesPerSecond
	if once {
		n.rememberLocked(key, until)
	}
	return true
}

// rememberLocked remembers a notice, in place of the oldest if there are many.
func (n *notices) rememberLocked(key noticeKey, until limiter.Time) {
	if n.until == nil {
		n.until = map[noticeKey]limiter.Time{}
	}
	if _, known := n.until[key]; !known {
		if len(n.recent) < maxRecentNotices {
			n.recent = append(n.recent, key)
		} else {
			delete(n.until, n.recent[n.oldest])
			n.recent[n.oldest] = key
			n.oldest = (n.oldest + 1) % maxRecentNotices
		}
	}
	n.until[key] = until
}
