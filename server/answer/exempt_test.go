package answer

import (
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// TestExemptReply checks the replies and metrics of exempt requests, and that their refunds reach
// the counter.
func TestExemptReply(t *testing.T) {
	s := service(t, Settings{DynamicMetadata: true, ResponseHeaders: true, RequestHeaders: true, RetryAfterHeader: true}, `
domain: d
denied_response: text
exempt: [{ key: remote_address, cidr: [10.0.0.0/8] }]
descriptors:
  - { key: user, metadata: { a: b }, rate_limit: { unit: hour, requests_per_unit: 1, name: users, count_refused: false } }
  - { key: remote_address, rate_limit: { unlimited: true } }
`)
	call := func(address string, refund bool) *rls.RateLimitResponse {
		t.Helper()
		user := &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("user", "u")}}
		if refund {
			user.HitsAddend, user.IsNegativeHits = wrapperspb.UInt64(1), true
		}
		other := &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("remote_address", address)}}
		unknown := &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("unknown", "x")}}
		var x Exchange
		b, _, err := s.Answer(noon, 0, &x, marshal(t, &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{user, other, unknown}}))
		must.OK(t, err)
		var reply rls.RateLimitResponse
		must.OK(t, proto.Unmarshal(b, &reply))
		return &reply
	}
	for range 3 {
		reply := call("10.2.3.4", false)
		if reply.GetOverallCode() != rls.RateLimitResponse_OK || len(reply.GetStatuses()) != 3 || len(reply.GetResponseHeadersToAdd())+len(reply.GetRequestHeadersToAdd()) > 0 ||
			reply.GetDynamicMetadata().GetFields()["metadata"] != nil {
			t.Errorf("the reply is %v", reply)
		}
		for _, status := range reply.GetStatuses() {
			if !proto.Equal(status, &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}) {
				t.Errorf("the status is %v, want OK without a limit", status)
			}
		}
	}
	if n := len(s.live.Unmatched()["d"]); n > 0 {
		t.Errorf("%d unmatched descriptors are recorded", n)
	}
	want := func(address string, refund bool, code rls.RateLimitResponse_Code) {
		t.Helper()
		if got := call(address, refund).GetOverallCode(); got != code {
			t.Errorf("%s is %v, want %v", address, got, code)
		}
	}
	want("203.0.113.9", false, rls.RateLimitResponse_OK) // the exempt requests charged nothing
	want("203.0.113.9, 10.2.3.4", false, rls.RateLimitResponse_OVER_LIMIT)
	want("10.2.3.4", true, rls.RateLimitResponse_OK)
	want("203.0.113.9", false, rls.RateLimitResponse_OK) // the refund was subtracted
	want("203.0.113.9", false, rls.RateLimitResponse_OVER_LIMIT)
	if got := gathered(t, s, "sluice_exempt_requests_total"); got != 4 {
		t.Errorf("%v requests are exempt, want 4", got)
	}
}
