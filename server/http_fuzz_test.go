package server

import (
	"bytes"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// FuzzJSON posts any body to /json. The status matches the decision and there is a status for each
// descriptor, or the body is rejected with 400 or, if too large, with 413.
func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`,
		`{"domain":"d","hits_addend":3,"descriptors":[{"entries":[{"key":"k","value":"\u00e4"}],"hitsAddend":"7"},{}]}`,
		`{"domain":"d","descriptors":[{"entries":[{"key":"k"}],"limit":{"requestsPerUnit":5,"unit":"HOUR"},"isNegativeHits":true}]}`,
		`{"domain":"","descriptors":[]}`, `{"domains":"d"}`, `[]`, `{"domain":"d","descriptors":[{"limit":{"unit":99}}]}`, "", "\xff",
	} {
		f.Add([]byte(body))
	}
	const maxBytes = 4 << 10
	// Mutations are unlikely to exceed a bound.
	s := service(f, answer.Settings{Bounds: answer.Bounds{Descriptors: math.MaxInt, Entries: math.MaxInt, KeyBytes: math.MaxInt}}, "{domain: d, descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 5}}]}")
	h := newJSONHandler(answer.NewHandler(s, zap.NewNop(), nil, false), maxBytes)
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", bytes.NewReader(body)))
		var request rls.RateLimitRequest
		malformed := protojson.Unmarshal(body, &request)
		switch w.Code {
		case http.StatusOK, http.StatusTooManyRequests:
			var reply rls.RateLimitResponse
			if err := protojson.Unmarshal(w.Body.Bytes(), &reply); err != nil {
				t.Fatalf("the response to %q is not a RateLimitResponse: %v", body, err)
			}
			over := reply.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT
			if over != (w.Code == http.StatusTooManyRequests) || malformed != nil || len(reply.GetStatuses()) != len(request.GetDescriptors()) {
				t.Errorf("the response to %q is %d %v, decoded with error %v", body, w.Code, &reply, malformed)
			}
		case http.StatusBadRequest:
			if malformed == nil && request.GetDomain() != "" && len(request.GetDescriptors()) > 0 && len(request.GetDescriptors()) <= 1000 {
				t.Errorf("%q is rejected: %s", body, w.Body)
			}
		case http.StatusRequestEntityTooLarge:
			if len(body) <= maxBytes {
				t.Errorf("%d bytes are rejected as too large", len(body))
			}
		default:
			t.Errorf("the response to %q is %d %s", body, w.Code, w.Body)
		}
	})
}
