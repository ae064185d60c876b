package ruleset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/descriptors/tables"
	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/telemetry"
)

// Options configures a [Loader].
type Options struct {
	Service *answer.Service
	// Tables contains the tables to which rules may refer. TableMetrics contains the metrics of
	// each table, from [NewTableMetrics].
	Tables       *tables.Registry
	TableMetrics map[string]*telemetry.Table
	Metrics      *telemetry.Metrics
	Logger       *zap.Logger
	// Now returns the wall clock.
	Now func() limiter.Time

	// DefaultsFile is the path of the file of defaults, for errors; empty if there is none.
	DefaultsFile string
	// AllowEmptyTables accepts a file without rows for a table that has rows.
	AllowEmptyTables bool
	// ExitOnBadStart makes Follow return an error if rules or tables fail to load at the start.
	ExitOnBadStart bool

	// The following settings are only used for warnings about rules that conflict with them. Allow
	// is nil if all clients may request all domains.
	Allow        *access.AllowList
	DrainTimeout time.Duration
	SharedStore  bool // counters are in Redis or Valkey
	GRPCGo       bool // grpc-go serves the calls
}

// Loader activates rules and rows of tables. Its methods may be called concurrently.
type Loader struct {
	opt     Options
	service *answer.Service
	tables  *tables.Registry
	logger  *zap.Logger

	// waiting contains the versions that have loaded and are not active. The lock of tables
	// protects it.
	waiting versions
}

// New returns a Loader. It must be called before tables are changed row by row.
func New(o Options) *Loader {
	l := &Loader{opt: o, service: o.Service, tables: o.Tables, logger: o.Logger, waiting: versions{}}
	l.tables.OnRelease(l.retry)
	return l
}

// LogDiagnostics logs the warnings among the given diagnostics, and notes at the level debug.
func (l *Loader) LogDiagnostics(found rules.Diagnostics) {
	for _, d := range found {
		switch d.Severity {
		case rules.Warning:
			l.logger.Warn("rules: " + d.String())
		case rules.Note:
			l.logger.Debug("rules: " + d.String())
		default: // ReportRejected logs errors
		}
	}
}

// ReportRejected logs and counts rules that failed to load. subject is the path of the file of
// defaults for the rules of a management server, and empty for others.
func (l *Loader) ReportRejected(subject string, err error) {
	l.opt.Metrics.ConfigRejected()
	telemetry.RaiseWithLines(l.logger, rejectedCode(l.service.Rules()), subject, "rules: ",
		trimmedLines(RulesError(err, l.opt.DefaultsFile)))
}

// rejectedCode returns the code of the condition that rules failed to load. active is nil if no
// rules are active.
func rejectedCode(active *descriptors.Set) telemetry.Code {
	if active == nil {
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

// reportActivated logs and counts the activation of set. before is the set that it replaces, nil
// for none.
func (l *Loader) reportActivated(set, before *descriptors.Set) {
	if set == before {
		l.opt.Metrics.ConfigRestored()
		l.logger.Info("rules reverted to the active ones", zap.String("hash", set.Hash),
			telemetry.Clear("", telemetry.RulesRejected))
		return
	}
	l.logAdvice(set)
	l.opt.Metrics.ConfigLoaded(set.Hash, float64(l.opt.Now()/limiter.Time(time.Millisecond))/1e3)
	fields := []zap.Field{
		zap.String("hash", set.Hash), zap.Int("limits", len(set.Limits)), zap.Strings("domains", set.Domains()),
	}
	if before != nil {
		c := set.Changes(before)
		l.opt.Metrics.ConfigChanged(c.Added, c.Removed, c.Changed)
		fields = append(fields, zap.Int("changes", c.Total()), zap.Strings("changed", c.First))
	}
	l.logger.Info("rules loaded", append(fields, telemetry.Clear("", rejectedCode(before)))...)
	if set.Empty() {
		l.logger.Warn("no rules configured; all requests are allowed")
	}
}

// logAdvice logs warnings about rules that conflict with other settings.
func (l *Loader) logAdvice(set *descriptors.Set) {
	for _, limit := range set.Limits {
		if limit.Policy.MaxWait > l.opt.DrainTimeout && !limit.Candidate {
			l.logger.Warn("rules: " + limit.Pos.String() +
				": max_wait exceeds --drain-timeout; responses delayed at SIGTERM may be cut off")
		}
	}
	if l.opt.SharedStore {
		l.LogDiagnostics(descriptors.StoreAdvice(set))
	}
	if l.opt.GRPCGo && set.GrantsLeases() {
		l.logger.Warn("rules: with --grpc-transport=grpc-go, leases of clients that disconnect are not released early; " +
			"they stay until the window of the limit, or the ttl of its reserve, ends")
	}
	if set.HasReports() && !l.service.Settings().NamesSoftLimits() {
		l.logger.Warn("rules: Envoy does not receive the names of limits with soft or notify_at, so only metrics and the log report them; " +
			"set --denied-by or --soft-header")
	}
	for _, text := range AllowListAdvice(l.opt.Allow, set.Domains()) {
		l.logger.Warn("rules: " + text)
	}
}

// AllowListAdvice returns a warning for each domain that is only in the allow list, or only in the
// rules. Its name may be misspelt. allow may be nil.
func AllowListAdvice(allow *access.AllowList, domains []string) []string {
	if allow == nil {
		return nil
	}
	var advice []string
	granted := allow.Domains()
	for _, d := range granted {
		if !slices.Contains(domains, d) {
			advice = append(advice, fmt.Sprintf("--grpc-allow names domain %q, which has no rules", d))
		}
	}
	for _, d := range domains {
		if !allow.AllowsAnyDomain() && !slices.Contains(granted, d) {
			advice = append(advice,
				fmt.Sprintf("--grpc-allow grants domain %q to no client: all requests for it are rejected", d))
		}
	}
	return advice
}
