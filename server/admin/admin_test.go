package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newAPI returns the API of a service.
func newAPI(tb testing.TB, s *answer.Service, logger *zap.Logger) *admin.API {
	tb.Helper()
	h := answer.NewHandler(s, logger, nil, false)
	return admin.New(h, nil, admin.Rights{})
}

// listen serves an API on loopback.
func listen(t *testing.T, a *admin.API) (addr string) {
	t.Helper()
	srv := httptest.NewServer(a.Handler(nil))
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// debugServer serves the API of a service on loopback, and returns its log.
func debugServer(t *testing.T, s *answer.Service) (addr string, logs *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	return listen(t, newAPI(t, s, zap.New(core))), logs
}
