package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// Get returns the body of a page or fails the test; it may be called in a cleanup. It closes its
// connection, so that it does not affect counts of sluice's files and goroutines. It tries again if
// sluice closes the connection, because on a busy machine a request may exceed its timeout of 5 s.
func Get(tb testing.TB, page string) []byte {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	for {
		text, err := get(ctx, page)
		if err == nil {
			return text
		}
		closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
		if !closed {
			tb.Fatal(err)
		}
	}
}

func get(ctx context.Context, page string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", page, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %.500s", page, response.Status, text)
	}
	return text, nil
}

// EnvoyStats returns Envoy's integer statistics whose names match a pattern.
func EnvoyStats(tb testing.TB, e *envoy.Envoy, pattern string) map[string]int {
	tb.Helper()
	stats := make(map[string]int)
	for line := range strings.Lines(string(Get(tb, "http://"+e.Admin+"/stats?filter="+url.QueryEscape(pattern)))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.Atoi(value); err == nil {
			stats[name] = n
		}
	}
	return stats
}

// Page is a response of /metrics.
type Page string

// Metrics returns the metrics of sluice.
func Metrics(tb testing.TB, s *sluice.Sluice) Page {
	tb.Helper()
	return Page(Get(tb, "http://"+s.Addr("metrics")+"/metrics"))
}

// Sum returns the sum of the series with the given name and labels (name="value"), or 0 if there
// are none, because most series are created by the first event.
func (p Page) Sum(name string, labels ...string) (sum float64) {
	if strings.Contains(name, "{") {
		panic("labels are given apart from the name: " + name) // the sum would silently be 0
	}
	for line := range strings.Lines(string(p)) {
		// A label value may contain spaces, a number does not.
		at := strings.LastIndexByte(line, ' ')
		series, set, _ := strings.Cut(line[:max(at, 0)], "{")
		if series == name && hasAll(set, labels) {
			if v, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64); err == nil {
				sum += v
			}
		}
	}
	return sum
}

func hasAll(set string, labels []string) bool {
	for _, label := range labels {
		if !strings.Contains(set, label) {
			return false
		}
	}
	return true
}
