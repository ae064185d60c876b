package top

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Unmask shows the values of denied keys for the given time at each replica, and describes what each
// has done. The error contains those of all replicas.
func (s *Service) Unmask(ctx context.Context, d time.Duration) (done []string, err error) {
	snapshot, err := s.Fetch(ctx)
	if snapshot == nil {
		return nil, err
	}
	for _, r := range snapshot.Replicas {
		one, cancel := s.bound(ctx)
		report, failed := r.Unmask(one, d)
		cancel()
		switch {
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", r.Addr, failed))
		case report.Until == nil:
			done = append(done, r.Addr+": values of denied keys are no longer shown")
		default:
			done = append(done, r.Addr+": values of denied keys are shown until "+report.Until.Local().Format(time.TimeOnly+" MST"))
		}
	}
	return done, err
}
