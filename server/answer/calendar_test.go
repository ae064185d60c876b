package answer

import (
	"fmt"
	"testing"
	"time"
	_ "time/tzdata" // independent of the machine's time zones

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// TestCalendarResets checks that a calendar limit resets at the instant that the reply reports, in
// the rule's time zone: at the end of summer time, on the last day of a short month, and where the
// clock skips midnight.
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
			st := requestStatus(t, s, at)
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

// requestStatus returns the status of one hit on the descriptor (k, v) of the domain d.
func requestStatus(t *testing.T, s *Service, at time.Time) *rls.RateLimitResponse_DescriptorStatus {
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

// TestReloadOfACalendar checks that a reload that enables or disables the calendar, or changes its
// zone or day, starts a new counter, and that another number does not.
func TestReloadOfACalendar(t *testing.T) {
	rules := func(words string, number int) *descriptors.Set {
		return compile(t, fmt.Sprintf("{domain: d, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: %d%s}}]}", number, words))
	}
	s := service(t, Settings{}, "")
	at := instant(t, "2026-11-23T12:00:00Z")
	for i, step := range []struct {
		words  string
		number int
		left   uint32
	}{
		{"", 9, 8},
		{", calendar: true", 9, 8},
		{", calendar: true", 20, 18},
		{", calendar: true, timezone: Europe/Berlin", 9, 8},
		{", calendar: true, timezone: Europe/Berlin, anchor_day: 15", 9, 8},
		{", calendar: true, timezone: UTC", 9, 6}, // UTC is the default: the same calendar and counter
		{"", 9, 7},
	} {
		if err := s.SetRules(0, rules(step.words, step.number)); err != nil {
			t.Fatal(err)
		}
		if left := requestStatus(t, s, at).GetLimitRemaining(); left != step.left {
			t.Errorf("step %d, %q: %d left, want %d", i, step.words, left, step.left)
		}
	}
}

// TestCalendarOfDefaults checks that calendar fields can come from a file of defaults, for rules
// over xDS.
func TestCalendarOfDefaults(t *testing.T) {
	configs, ds := rulefile.Parse("rules.yaml", []byte("{domain: d, descriptors: [{key: k, rate_limit: {unit: month, requests_per_unit: 1}}]}"))
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	defaults, ds := rulefile.ParseDefaults("defaults.yaml", []byte("{domain: '*', defaults: [{rate_limit: {calendar: true, timezone: Asia/Tokyo, anchor_day: 5}}]}"))
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	set, ds := descriptors.Compile(configs, descriptors.Options{Defaults: defaults})
	if err := ds.Err(); err != nil {
		t.Fatal(err)
	}
	s := service(t, Settings{}, "")
	if err := s.SetRules(0, set); err != nil {
		t.Fatal(err)
	}
	at, want := instant(t, "2026-11-23T12:00:00Z"), instant(t, "2026-12-04T15:00:00Z")
	if got := requestStatus(t, s, at).GetDurationUntilReset().AsDuration(); got != want.Sub(at) {
		t.Errorf("reset in %v, want %v", got, want.Sub(at))
	}
}
