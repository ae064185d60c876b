package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// CounterQuery names the descriptor whose counters [AskCounters] asks for. The tags are flags.
type CounterQuery struct {
	Domain     string `short:"d" help:"The request's domain."`
	Descriptor string `placeholder:"K=V,K2=V2" sep:"none" help:"The descriptor's entries in order. A backslash makes the next character part of a key or value."`
	Limit      string `placeholder:"5/hour" help:"With --addr: the limit that the request itself carries."`
	Reset      bool   `help:"With --addr: reset the counters."`
}

// AskCounters asks the debug listener at addr, host:port or unix:///path. An error says why there
// is no report.
func AskCounters(ctx context.Context, addr string, q CounterQuery) (*answer.CounterReport, error) {
	values := url.Values{"domain": {q.Domain}, "descriptor": {q.Descriptor}}
	if q.Limit != "" {
		values.Set("limit", q.Limit)
	}
	host, transport := addr, &http.Transport{DisableKeepAlives: true}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(path, "//"))
		}
	}
	method := http.MethodGet
	if q.Reset {
		method = http.MethodDelete
	}
	to := url.URL{Scheme: "http", Host: host, Path: "/counters", RawQuery: values.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // only read from
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		return nil, fmt.Errorf("%s: the descriptor is longer than what can be asked for", response.Status)
	}
	if response.StatusCode != http.StatusOK {
		var failed struct{ Error string }
		_ = json.Unmarshal(body, &failed) // it may be no sluice
		return nil, fmt.Errorf("%s: %s", response.Status, cmp.Or(failed.Error, "no debug listener of sluice answers there"))
	}
	var report answer.CounterReport
	if err := json.Unmarshal(body, &report); err != nil {
		return nil, fmt.Errorf("the answer is not that of a debug listener: %w", err)
	}
	return &report, nil
}
