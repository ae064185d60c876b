package admin

import (
	"errors"
	"net/http"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/cpu"
)

// CountersPath is the path for the counters of a descriptor.
const CountersPath = "/counters"

// countersEndpoint returns the endpoint of [CountersPath].
func (a *API) countersEndpoint() endpoint {
	return endpoint{
		methods: map[string]access.Right{http.MethodGet: access.Read},
		answer:  func(r *http.Request, _ string) (any, error) { return a.answerCounters(r) },
	}
}

func (a *API) answerCounters(r *http.Request) (report *CounterReport, err error) {
	domain, text, d, err := parseCounterQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if err := a.service.Settings().Bounds.Check(d.Entries); err != nil {
		return nil, err
	}
	now, _ := a.clock.Now()
	cpu.FromContext(r.Context()).Wait(func() { // for a store
		report, err = a.Counters(now, domain, text, d)
	})
	if err != nil {
		return nil, newRequestError(http.StatusServiceUnavailable, "%v", err)
	}
	return report, nil
}

func parseCounterQuery(query string) (domain, text string, d descriptors.Descriptor, err error) {
	values, err := readQuery(query, "domain", "descriptor", "limit")
	if err != nil {
		return "", "", d, err
	}
	domain = values.Get("domain")
	text = values.Get("descriptor")
	switch {
	case domain == "":
		return "", "", d, errors.New("parameter domain is missing: write ?domain=D&descriptor=k=v,k2=v2")
	case !values.Has("descriptor"):
		return "", "", d, errors.New("parameter descriptor is missing: write ?domain=D&descriptor=k=v,k2=v2")
	}
	d, err = parseDescriptor(text, values.Get("limit"))
	return domain, text, d, err
}

// parseDescriptor parses a descriptor and its limit override, which may be empty.
func parseDescriptor(text, limit string) (d descriptors.Descriptor, err error) {
	if d.Entries, err = descriptors.ParseEntries(text); err == nil && limit != "" {
		d.HasOverride = true
		d.Override, err = descriptors.ParseOverride(limit)
	}
	return d, err
}
