package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/live"
	"github.com/sluice-ratelimit/sluice/server/web"
)

// Debug is a client of the debug listener of a running sluice. Its methods may be called
// concurrently.
type Debug struct {
	// Addr is host:port or unix:///path.
	Addr string
	// TLS secures the connection. Nil means plain text.
	TLS *access.TLS
	// Token is sent with each request, unless it is empty. It requires TLS, except to this machine.
	Token string
	// Timeout bounds each request. Zero means no bound.
	Timeout time.Duration
	// DryRun is true if changes of tables are only checked. Other requests must not set it.
	DryRun bool
}

// ErrNotFound is wrapped by the error of a request about an object that the server does not have.
var ErrNotFound = errors.New("404 Not Found")

// State returns the current state. It contains at most maxLimits limits, the busiest ones.
func (c *Debug) State(ctx context.Context, maxLimits int) (*live.State, error) {
	var state live.State
	if err := c.request(ctx, http.MethodGet, admin.StatePath, url.Values{"max": {strconv.Itoa(maxLimits)}}, &state); err != nil {
		return nil, err
	}
	if state.Version != live.Version {
		return nil, fmt.Errorf("the server's state has version %d, but this sluice reads version %d: use the server's version of sluice", state.Version, live.Version)
	}
	return &state, nil
}

// ResetCounters resets counters, or returns a preview if reset is false.
func (c *Debug) ResetCounters(ctx context.Context, which live.Selection, reset bool) (*live.Reset, error) {
	method := http.MethodGet
	if reset {
		method = http.MethodPost
	}
	values := url.Values{}
	for name, value := range map[string]string{
		"domain": which.Domain, "rule": which.Rule, "key": which.Key, "descriptor": which.Descriptor, "limit": which.Limit,
	} {
		if value != "" {
			values.Set(name, value)
		}
	}
	var report live.Reset
	if err := c.request(ctx, method, admin.ResetPath, values, &report); err != nil {
		return nil, err
	}
	return &report, nil
}

// Unmask shows the values of the keys that are denied from now on, for the given time; see
// [live.Recorder.Unmask].
func (c *Debug) Unmask(ctx context.Context, d time.Duration) (*live.Unmasked, error) {
	var report live.Unmasked
	if err := c.request(ctx, http.MethodPost, admin.UnmaskPath, url.Values{"for": {d.String()}}, &report); err != nil {
		return nil, err
	}
	return &report, nil
}

// request sends a request and decodes the JSON response into the value to which into points.
func (c *Debug) request(ctx context.Context, method, path string, values url.Values, into any) error {
	return c.do(ctx, method, path, values, nil, into)
}

// do is request with a request body, which may be nil. path must be escaped. If into is an
// [io.Writer], the response is copied to it.
func (c *Debug) do(ctx context.Context, method, path string, values url.Values, requestBody io.Reader, into any) error {
	scheme := "http"
	host := c.Addr
	transport := &http.Transport{DisableKeepAlives: true}
	if path, ok := strings.CutPrefix(c.Addr, "unix:"); ok {
		host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(path, "//"))
		}
	}
	if c.TLS != nil {
		scheme = "https"
		transport.TLSClientConfig = c.TLS.HTTPClient()
	} else if c.Token != "" && !strings.HasPrefix(c.Addr, "unix:") && !web.IsLoopbackHost(c.Addr) {
		return errors.New("tokens are only sent over TLS, so that others on the network cannot read them: use --tls")
	}
	query := values.Encode()
	if c.DryRun {
		query += "&dry_run=true"
	}
	request, err := http.NewRequestWithContext(ctx, method, scheme+"://"+host+path+"?"+query, requestBody)
	if err != nil {
		return err
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := http.Client{
		Transport: transport, Timeout: c.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read from
	if to, ok := into.(io.Writer); ok && response.StatusCode == http.StatusOK {
		_, err := io.Copy(to, response.Body)
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return err
	}
	if response.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		return fmt.Errorf("%s: the descriptor is too long for a query", response.Status)
	}
	if c.TLS == nil && bytes.Contains(body, []byte("HTTP request to an HTTPS server")) {
		return errors.New("the server speaks TLS: use --tls")
	}
	if response.StatusCode != http.StatusOK {
		var failed struct{ Error string }
		_ = json.Unmarshal(body, &failed) // the response may be from another program
		if response.StatusCode == http.StatusNotFound && failed.Error != "" {
			return fmt.Errorf("%w: %s", ErrNotFound, failed.Error)
		}
		return fmt.Errorf("%s: %s", response.Status, cmp.Or(failed.Error, "this is not the debug listener of a sluice"))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("unexpected response of the debug listener: %w", err)
	}
	return nil
}
