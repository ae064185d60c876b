package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sluice-ratelimit/sluice/server/admin"
)

// CounterQuery selects the counters of a descriptor for [Debug.Counters]. The tags define flags.
type CounterQuery struct {
	Domain     string `short:"d" placeholder:"DOMAIN" help:"Domain of the request."`
	Descriptor string `placeholder:"K=V,K2=V2" sep:"none" help:"Entries of the descriptor, in order. A backslash escapes the next character."`
	Limit      string `placeholder:"5/hour" help:"With --addr: limit override of the request."`
}

// Counters looks up counters.
func (c *Debug) Counters(ctx context.Context, q CounterQuery) (*admin.CounterReport, error) {
	values := url.Values{"domain": {q.Domain}, "descriptor": {q.Descriptor}}
	if q.Limit != "" {
		values.Set("limit", q.Limit)
	}
	var report admin.CounterReport
	if err := c.request(ctx, http.MethodGet, admin.CountersPath, values, &report); err != nil {
		return nil, err
	}
	return &report, nil
}
