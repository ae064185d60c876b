package admin

import (
	"errors"
	"net/http"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/cpu"
)

// CountersPath is the path for the counters of a descriptor.
const CountersPath = "/counters"

// countersEndpoint returns the endpoint of [CountersPath]. GET looks up the counters of a
// descriptor, DELETE resets them.
func (a *API) countersEndpoint() endpoint {
	return endpoint{
		methods:     map[string]access.Right{http.MethodGet: access.Read, http.MethodDelete: access.Write},
		methodsText: "GET to look up or DELETE to reset",
		answer:      func(r *http.Request, by string) (any, error) { return a.answerCounters(r, by) },
	}
}

func (a *API) answerCounters(r *http.Request, by string) (*CounterReport, error) {
	domain, text, d, err := parseCounterQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if err := a.service.Settings().Bounds.Check(d.Entries); err != nil {
		return nil, err
	}
	now, _ := a.clock.Now()
	var onReset func(rule, limit string, used uint64)
	if r.Method == http.MethodDelete {
		onReset = func(rule, limit string, used uint64) {
			a.metrics.CounterResets.Inc()
			a.logger.Info("counter reset", zap.String("domain", domain), zap.String("rule", rule),
				zap.String("limit", limit), zap.Uint64("used", used), zap.String("by", by))
		}
	}
	var report *CounterReport
	ctx := r.Context()
	cpu.FromContext(ctx).Wait(func() { // for a store
		report, err = a.Counters(ctx, now, domain, text, d, onReset)
	})
	switch {
	case err != nil:
		return nil, newRequestError(http.StatusServiceUnavailable, "%v", err)
	case onReset != nil && len(report.Counters) == 0:
		return nil, newRequestError(http.StatusNotFound, "there is no counter to reset: %s", report.Reason)
	}
	return report, nil
}

// parseCounterQuery parses a query and its descriptor.
func parseCounterQuery(query string) (domain, text string, d descriptors.Descriptor, err error) {
	values, err := readQuery(query, "domain", "descriptor", "limit")
	if err != nil {
		return "", "", d, err
	}
	domain, text = values.Get("domain"), values.Get("descriptor")
	switch {
	case domain == "":
		return "", "", d, errors.New("parameter domain is missing: write ?domain=D&descriptor=k=v,k2=v2")
	case !values.Has("descriptor"):
		return "", "", d, errors.New("parameter descriptor is missing: write ?domain=D&descriptor=k=v,k2=v2")
	}
	if d.Entries, err = descriptors.ParseEntries(text); err == nil && values.Get("limit") != "" {
		d.HasOverride = true
		d.Override, err = descriptors.ParseOverride(values.Get("limit"))
	}
	return domain, text, d, err
}
