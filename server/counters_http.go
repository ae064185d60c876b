package server

import (
	"errors"
	"net/http"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// countersEndpoint is /counters. GET looks up the counters of a descriptor, DELETE resets them.
func countersEndpoint(h *answer.Handler) endpoint {
	return endpoint{
		methods: map[string]access.Right{http.MethodGet: access.Read, http.MethodDelete: access.Write},
		must:    "GET to look up or DELETE to reset",
		answer:  func(r *http.Request, by string) (any, error) { return answerCounters(h, r, by) },
	}
}

func answerCounters(h *answer.Handler, r *http.Request, by string) (*answer.CounterReport, error) {
	q, d, err := parseCounterQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if err := h.Service.CheckEntries(d.Entries); err != nil {
		return nil, err
	}
	now, _ := h.Clock.Now()
	reset := r.Method == http.MethodDelete
	report, err := h.Service.Counters(r.Context(), now, q.Domain, q.Descriptor, d, reset)
	switch {
	case err != nil:
		return nil, reject(http.StatusServiceUnavailable, "%v", err)
	case !reset:
		return report, nil
	case len(report.Counters) == 0:
		return nil, reject(http.StatusNotFound, "there is no counter to reset: %s", report.Reason)
	}
	for _, c := range report.Counters {
		h.Metrics.CounterResets.Inc()
		h.Logger.Info("counter reset", zap.String("domain", q.Domain), zap.String("rule", report.Rule),
			zap.String("limit", c.Limit), zap.Uint64("used", c.Forgotten), zap.String("by", by))
	}
	return report, nil
}

// parseCounterQuery reads a query and the descriptor that it names.
func parseCounterQuery(query string) (q CounterQuery, d descriptors.Descriptor, err error) {
	values, err := readQuery(query, "domain", "descriptor", "limit")
	if err != nil {
		return q, d, err
	}
	q = CounterQuery{Domain: values.Get("domain"), Descriptor: values.Get("descriptor"), Limit: values.Get("limit")}
	switch {
	case q.Domain == "":
		return q, d, errors.New("parameter domain is missing: write ?domain=D&descriptor=k=v,k2=v2")
	case !values.Has("descriptor"):
		return q, d, errors.New("parameter descriptor is missing: write ?domain=D&descriptor=k=v,k2=v2")
	}
	if d.Entries, err = descriptors.ParseEntries(q.Descriptor); err == nil && q.Limit != "" {
		d.HasOverride = true
		d.Override, err = descriptors.ParseOverride(q.Limit)
	}
	return q, d, err
}
