package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sluice-ratelimit/sluice/server/admin"
)

// CounterQuery names the descriptor whose counters [Debug.Counters] asks for. The tags are flags.
type CounterQuery struct {
	Domain     string `short:"d" help:"Domain of the request."`
	Descriptor string `placeholder:"K=V,K2=V2" sep:"none" help:"Entries of the descriptor, in order. A backslash escapes the next character."`
	Limit      string `placeholder:"5/hour" help:"With --addr: limit override of the request."`
	Reset      bool   `help:"With --addr: reset the counters."`
}

// Counters looks counters up, or resets them.
func (c *Debug) Counters(ctx context.Context, q CounterQuery) (*admin.CounterReport, error) {
	values := url.Values{"domain": {q.Domain}, "descriptor": {q.Descriptor}}
	if q.Limit != "" {
		values.Set("limit", q.Limit)
	}
	method := http.MethodGet
	if q.Reset {
		method = http.MethodDelete
	}
	var report admin.CounterReport
	if err := c.ask(ctx, method, admin.CountersPath, values, &report); err != nil {
		return nil, err
	}
	return &report, nil
}
