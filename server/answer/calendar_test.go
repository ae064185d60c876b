package answer

import (
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/limiter"
)

// A limit of the calendar begins anew at the instant that the reply says, in the zone of the rule: through the end of
// summer time, on the last day of a short month, and where the clocks leave out midnight.
func TestCalendarResets(t *testing.T) {
	for _, test := range []struct{ words, at, reset string }{
		{"unit: month", "2026-11-23T12:00:00Z", "2026-12-01T00:00:00Z"},
		{"unit: month, timezone: Europe/Berlin", "2026-10-31T22:59:59.5Z", "2026-10-31T23:00:00Z"},
		{"unit: month, timezone: America/New_York, anchor_day: 31", "2026-02-15T00:00:00Z", "2026-02-28T05:00:00Z"},
		{"unit: month, timezone: America/New_York, anchor_day: 31", "2026-02-28T05:00:00Z", "2026-03-31T04:00:00Z"},
		{"unit: day, timezone: Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"unit: day, timezone: America/Sao_Paulo", "2018-11-03T20:00:00Z", "2018-11-04T03:00:00Z"},
		{"unit: week", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"unit: year, timezone: Asia/Kathmandu", "2024-06-01T00:00:00Z", "2024-12-31T18:15:00Z"},
	} {
		at, reset := instant(t, test.at), instant(t, test.reset)
		s := service(t, Settings{}, "{domain: d, descriptors: [{key: k, rate_limit: {"+test.words+", calendar: true, requests_per_unit: 1}}]}")
		expect := func(at time.Time, code rls.RateLimitResponse_Code) {
			t.Helper()
			st := ask(t, s, at)
			if left := reset.Sub(at); left > 0 {
				if got, want := st.GetDurationUntilReset().AsDuration(), (left + time.Second - 1).Truncate(time.Second); got != want {
					t.Errorf("%s at %v: reset in %v, want %v", test.words, at, got, want)
				}
			}
			if st.GetCode() != code {
				t.Errorf("%s at %v: %v, want %v", test.words, at, st.GetCode(), code)
			}
		}
		expect(at, rls.RateLimitResponse_OK)
		expect(at, rls.RateLimitResponse_OVER_LIMIT)
		expect(reset.Add(-1), rls.RateLimitResponse_OVER_LIMIT)
		expect(reset, rls.RateLimitResponse_OK)
		expect(reset, rls.RateLimitResponse_OVER_LIMIT)
	}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// ask returns the status of one hit on (k, v) of the domain d.
func ask(t *testing.T, s *Service, at time.Time) *rls.RateLimitResponse_DescriptorStatus {
	t.Helper()
	request := &rls.RateLimitRequest{Domain: "d", Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries: []*rlcommon.RateLimitDescriptor_Entry{entry("k", "v")},
	}}}
	b, _, err := s.Answer(limiter.Time(at.UnixNano()), 0, new(Exchange), marshal(t, request))
	if err != nil {
		t.Fatal(err)
	}
	var reply rls.RateLimitResponse
	if err := proto.Unmarshal(b, &reply); err != nil {
		t.Fatal(err)
	}
	return reply.GetStatuses()[0]
}
