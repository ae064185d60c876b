package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// TestRequestsHaveBounds sends requests at each bound and one beyond it, to each listener.
func TestRequestsHaveBounds(t *testing.T) {
	for _, test := range []struct {
		name    string
		bounds  answer.Bounds
		at      int                                        // the bound
		set     func(request *rls.RateLimitRequest, n int) // sets the bounded quantity to n
		message string
		count   func(*answer.Service) prometheus.Counter
		lookUp  bool // whether a query of /counters can also reach the bound
	}{
		{"descriptors", answer.Bounds{Descriptors: 3}, 3, setDescriptors, "the request has 4 descriptors: at most 3 are allowed", countDescriptors, false},
		{"entries", answer.Bounds{Entries: 3}, 3, setEntries, "a descriptor has 4 entries: at most 3 are allowed", countEntries, true},
		{"key", answer.Bounds{KeyBytes: 3}, 3, setKey, "a key has 4 bytes: at most 3 are allowed", countKey, true},
		{"message", answer.Bounds{MessageBytes: 300}, 300, setMessage, "the request has 301 bytes: --max-message allows 300", countMessage, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := service(t, answer.Settings{Bounds: test.bounds}, oneRule)
			r := serve(t, s, Options{})
			conn := r.dial(t)
			for n := test.at - 1; n <= test.at+1; n++ {
				request := simpleRequest()
				test.set(request, n)
				beyond := n > test.at

				_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request)
				want, message := codes.OK, ""
				if beyond {
					want, message = codes.ResourceExhausted, test.message
				}
				if got := status.Convert(err); got.Code() != want || got.Message() != message {
					t.Errorf("%d over gRPC: %v, want %v %q", n, err, want, message)
				}

				body, err := protojson.Marshal(request)
				if err != nil {
					t.Fatal(err)
				}
				wantCode := http.StatusOK
				if beyond {
					wantCode = http.StatusBadRequest
				}
				if code, text := send(t, http.MethodPost, "http://"+r.addr["http"]+"/json", string(body)); code != wantCode || !strings.Contains(text, message) {
					t.Errorf("%d over /json: %d %.200q, want %d with %q", n, code, text, wantCode, message)
				}

				if !test.lookUp {
					continue
				}
				query := url.Values{"domain": {"d"}, "descriptor": {descriptorText(request.GetDescriptors()[0])}}
				if code, text := get(t, "http://"+r.addr["debug"]+"/counters?"+query.Encode()); code != wantCode || !strings.Contains(text, message) {
					t.Errorf("%d over /counters: %d %.200q, want %d with %q", n, code, text, wantCode, message)
				}
			}
			if got := testutil.ToFloat64(test.count(s)); got != 2 {
				t.Errorf("%v requests counted as beyond the bound, want 2", got)
			}
		})
	}
}

func setDescriptors(r *rls.RateLimitRequest, n int) {
	r.Descriptors = many(n)
	for _, d := range r.GetDescriptors() {
		d.Entries = []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")}
	}
}

func setEntries(r *rls.RateLimitRequest, n int) {
	r.Descriptors[0].Entries = nil
	for i := range n {
		r.Descriptors[0].Entries = append(r.Descriptors[0].Entries, entry(fmt.Sprint("k", i), "v"))
	}
}

func setKey(r *rls.RateLimitRequest, n int) {
	r.Descriptors[0].Entries[0].Key = strings.Repeat("k", n)
}

// setMessage makes the encoded request n bytes long, by a long value.
func setMessage(r *rls.RateLimitRequest, n int) {
	e := r.GetDescriptors()[0].GetEntries()[0]
	for e.Value = ""; proto.Size(r) < n; e.Value += "v" {
	}
}

func countDescriptors(s *answer.Service) prometheus.Counter { return s.Metrics().Rejected.Descriptors }
func countEntries(s *answer.Service) prometheus.Counter     { return s.Metrics().Rejected.Entries }
func countKey(s *answer.Service) prometheus.Counter         { return s.Metrics().Rejected.KeyLength }
func countMessage(s *answer.Service) prometheus.Counter     { return s.Metrics().Rejected.Message }

// descriptorText returns a descriptor in the form k=v,k2=v2.
func descriptorText(d *rlcommon.RateLimitDescriptor) string {
	var parts []string
	for _, e := range d.GetEntries() {
		parts = append(parts, e.GetKey()+"="+e.GetValue())
	}
	return strings.Join(parts, ",")
}

// bytesCodec sends and receives raw bytes.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("not bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errors.New("not bytes")
	}
	*b = data.Materialize()
	return nil
}

func many(n int) []*rlcommon.RateLimitDescriptor {
	ds := make([]*rlcommon.RateLimitDescriptor, n)
	for i := range ds {
		ds[i] = &rlcommon.RateLimitDescriptor{}
	}
	return ds
}
