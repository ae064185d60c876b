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
	"strconv"
	"strings"

	"github.com/sluice-ratelimit/sluice/server/live"
)

// AskState asks the debug listener at addr, host:port or unix:///path, what is so now. An error says why
// there is no answer. It has the limits that were hit in the last five minutes, at most so many.
func AskState(ctx context.Context, addr string, most int) (*live.State, error) {
	var state live.State
	if err := askDebug(ctx, addr, http.MethodGet, statePath, url.Values{"rules": {"active"}, "most": {strconv.Itoa(most)}}, &state); err != nil {
		return nil, err
	}
	if state.Version != live.Version {
		return nil, fmt.Errorf("its state has version %d, and this sluice reads version %d: use the sluice of that version", state.Version, live.Version)
	}
	return &state, nil
}

// ResetDenied asks the debug listener at addr to reset the counters of keys that are denied. Without a token, the answer
// says what it would do, and has the token that does it.
func ResetDenied(ctx context.Context, addr string, which live.Selection, token string) (*live.Reset, error) {
	values := url.Values{}
	for name, value := range map[string]string{"domain": which.Domain, "rule": which.Rule, "key": which.Key, "token": token} {
		if value != "" {
			values.Set(name, value)
		}
	}
	var report live.Reset
	if err := askDebug(ctx, addr, http.MethodPost, resetPath, values, &report); err != nil {
		return nil, err
	}
	return &report, nil
}

// askDebug asks the debug listener at addr and puts its answer in JSON into what into points to.
func askDebug(ctx context.Context, addr, method, path string, values url.Values, into any) error {
	host, transport := addr, &http.Transport{DisableKeepAlives: true}
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(path, "//"))
		}
	}
	to := url.URL{Scheme: "http", Host: host, Path: path, RawQuery: values.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read from
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return err
	}
	if response.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		return fmt.Errorf("%s: the descriptor is longer than what can be asked for", response.Status)
	}
	if response.StatusCode != http.StatusOK {
		var failed struct{ Error string }
		_ = json.Unmarshal(body, &failed) // it may be no sluice
		return fmt.Errorf("%s: %s", response.Status, cmp.Or(failed.Error, "no debug listener of sluice answers there"))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer is not that of a debug listener: %w", err)
	}
	return nil
}
