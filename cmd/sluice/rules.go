package main

import (
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/store"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// keeper activates rules and rows that sources have read, and logs it.
type keeper struct {
	service *answer.Service
	table   *limiter.Table
	tables  *tables.Registry
	// tableMetrics are by the names of tables.
	tableMetrics map[string]*telemetry.Table
	metrics      *telemetry.Metrics
	logger       *zap.Logger
	// drainTimeout bounds how long held calls wait at the end.
	drainTimeout time.Duration
	// defaults is the name of their file, for errors.
	defaults string
	// allow is the list of --grpc-allow, nil if the flag is not given.
	allow *access.AllowList
	// shared is the store that has the counters, nil if they are in memory. grpcGo says that grpc-go carries calls.
	shared *store.Store
	grpcGo bool

	// waiting are parts that load and are not active. The lock of tables is held.
	waiting parts
}

// advise warns of what rules mean beside other settings.
func (r *keeper) advise(set *descriptors.Set) {
	for _, l := range set.Limits {
		if l.Policy.MaxWait > r.drainTimeout && !l.Candidate {
			r.logger.Warn("rules: " + l.Pos.String() + ": max_wait is longer than --drain-timeout: calls held at a SIGTERM may be cut off")
		}
	}
	if r.shared != nil {
		r.warn(descriptors.StoreAdvice(set))
	}
	if r.grpcGo && set.GivesLeases() {
		r.logger.Warn("rules: some limits hold something until a request ends; with --grpc-transport=grpc-go leases of clients that go away " +
			"are not returned early: they stay taken for the limit's window, or the ttl of its reserve")
	}
	for _, odd := range adviseAllow(r.allow, set.Domains()) {
		r.logger.Warn("rules: " + odd)
	}
}

// warn logs the warnings about rules, and the notes for those who debug.
func (r *keeper) warn(found rules.Diagnostics) {
	for _, d := range found {
		switch d.Severity {
		case rules.Warning:
			r.logger.Warn("rules: " + d.String())
		case rules.Note:
			r.logger.Debug("rules: " + d.String())
		default: // reject logs errors
		}
	}
}

// unwatched warns that files are only polled.
func (r *keeper) unwatched(err error) {
	r.logger.Warn("rule files cannot be watched and are read each second instead", zap.Error(err))
}

// reject reports why rules do not load. Subject is the file of defaults of a management server's rules, and else empty.
func (r *keeper) reject(subject string, err error) {
	r.metrics.ConfigRejected()
	telemetry.RaiseWithLines(r.logger, rulesCode(r.service.Rules()), subject, "rules: ", trimmedLines(loadError(err, r.defaults)))
}

// rulesCode returns the code of rules that do not load after others, which may be nil.
func rulesCode(before *descriptors.Set) telemetry.Code {
	if before == nil {
		return telemetry.RulesMissing
	}
	return telemetry.RulesRejected
}

func trimmedLines(err error) (lines []string) {
	for line := range strings.Lines(err.Error()) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// now is the wall clock. A request's own time is read where it comes in.
func now() limiter.Time { return limiter.Time(time.Now().UnixNano()) }
