package admin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// ResetPath is the path for resetting counters by selection.
const ResetPath = "/api/v1/reset"

// resetEndpoint returns the endpoint of [ResetPath]: GET returns a preview, and POST resets.
func (a *API) resetEndpoint() endpoint {
	return endpoint{
		methods: map[string]access.Right{http.MethodGet: access.Write, http.MethodPost: access.Write},
		answer:  func(r *http.Request, by string) (any, error) { return a.answerReset(r, by) },
	}
}

func (a *API) answerReset(r *http.Request, by string) (*live.Reset, error) {
	which, err := parseSelection(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if which.Descriptor != "" {
		d, err := parseDescriptor(which.Descriptor, which.Limit)
		if err := cmp.Or(err, a.service.Settings().Bounds.Check(d.Entries)); err != nil {
			return nil, err
		}
	}
	now, _ := a.clock.Now()
	var report *live.Reset
	ctx := r.Context()
	cpu.FromContext(ctx).Wait(func() { // for a store
		report, err = a.ResetCounters(ctx, now, which, r.Method == http.MethodPost)
	})
	if report != nil && report.Done && report.Counters > 0 {
		a.metrics.CounterResets.Add(float64(report.Counters))
		a.logger.Info("counters reset", zap.String("by", by), zap.String("selection", report.Selection),
			zap.Int("counters", report.Counters), zap.Uint64("used", report.Used))
		if err != nil {
			return nil, newRequestError(http.StatusServiceUnavailable,
				"%d counters were reset, then an error occurred: %v", report.Counters, err)
		}
	}
	switch {
	case err != nil:
		return nil, newRequestError(http.StatusServiceUnavailable, "%v", err)
	case report.Counters == 0 && report.NotReset > 0:
		return nil, newRequestError(http.StatusConflict, "%s: cannot reset %d counters: their names in the store contain client values, as in envoyproxy/ratelimit, and these are not recorded; reset the counters one by one with sluice reset --descriptor K=V", which, report.NotReset)
	case report.Counters == 0:
		return nil, newRequestError(http.StatusNotFound, "nothing to reset: %s: %s", which, a.whyNothing(which))
	}
	return report, nil
}

// whyNothing returns why a selection has no counters.
func (a *API) whyNothing(which live.Selection) string {
	active, err := a.service.Active()
	switch {
	case err == nil && !slices.Contains(active.Set.Domains(), which.Domain):
		return "the rules have no such domain" + rules.DidYouMean(which.Domain, active.Set.Domains())
	case which.Descriptor != "":
		return "no limit applies to it (see sluice explain)"
	default:
		return "no such key is denied"
	}
}

// parseSelection parses the query of a reset.
func parseSelection(query string) (which live.Selection, err error) {
	values, err := readQuery(query, "domain", "rule", "key", "descriptor", "limit")
	if err != nil {
		return which, err
	}
	// Keys are displayed with a number sign.
	which = live.Selection{
		Domain: values.Get("domain"), Rule: values.Get("rule"), Key: strings.TrimPrefix(values.Get("key"), "#"), Descriptor: values.Get("descriptor"), Limit: values.Get("limit"),
	}
	if which.Domain == "" {
		return which, errors.New("parameter domain is missing: write ?domain=D, and &rule=PATH or &key=HASH for some of its keys")
	}
	for _, name := range []string{"rule", "key", "descriptor"} {
		if values.Has(name) && strings.TrimPrefix(values.Get(name), "#") == "" {
			return which, fmt.Errorf("parameter %s is empty: omit it to reset all denied keys", name)
		}
	}
	return which, which.Check()
}
