package simulate

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/simulate/report"
)

// TestRecommendedNumbersAreTheSmallest compares the recommendations for limits of all algorithms
// with runs of all smaller numbers.
func TestRecommendedNumbersAreTheSmallest(t *testing.T) {
	limits := []string{
		"unit: minute",
		"unit: second",
		"unit: minute, algorithm: sliding_window",
		"unit: minute, algorithm: sliding_window, sub_windows: 1",
		"unit: minute, algorithm: sliding_log",
		"unit: minute, algorithm: token_bucket",
		"unit: minute, algorithm: token_bucket, burst: 3",
		"unit: minute, algorithm: leaky_bucket",
		"unit: minute, algorithm: leaky_bucket, slack: 1, max_wait: 2s",
		"unit: minute, count_refused: true",
	}
	log := burstyLog(3000, "u", 20)
	for _, limit := range limits {
		for _, percent := range []float64{90, 99.9, 100} {
			t.Run(fmt.Sprint(limit, " ", percent), func(t *testing.T) {
				with := func(n uint32) string {
					return fmt.Sprintf("{domain: shop, descriptors: [{key: user, rate_limit: { %s, requests_per_unit: %d }}]}", limit, n)
				}
				at := func(n uint32, recommend float64) report.Limit {
					return simulateUsers(t, func(o *Options) {
						o.Rules, o.Recommend, o.Timeout = compile(t, with(n)), recommend, time.Minute
					}, logOf("log", log)).Rules.Limits[0]
				}
				got := at(7, percent).Recommended
				if got == nil {
					t.Fatal("no recommendation")
				}
				if got.Reason != "" {
					if l := at(1<<31, 0); float64(l.Over) <= float64(l.Hits)*(100-percent)/100 {
						t.Fatalf("%s, but %d of %d hits are over at the maximum", got.Reason, l.Over, l.Hits)
					}
					return
				}
				most := uint64(float64(got.Hits)*(100-percent)/100 + 1e-6)
				if l := at(got.RequestsPerUnit, 0); l.Over != got.Over || l.Hits != got.Hits || l.Over > most || l.Limit != got.Limit {
					t.Errorf("%+v, but a run with %[4]s denies %[2]d of %[3]d hits; %[5]d may be denied", got, l.Over, l.Hits, l.Limit, most)
				}
				if got.RequestsPerUnit > 1 {
					if l := at(got.RequestsPerUnit-1, 0); l.Over <= most {
						t.Errorf("%+v, but the next smaller number denies %d of %d hits; %d may be denied", got, l.Over, l.Hits, most)
					}
				}
			})
		}
	}
}

// burstyLog has users with single requests and with bursts.
func burstyLog(lines int, prefix string, users int) string {
	random := rand.New(rand.NewPCG(3, 4))
	var b strings.Builder
	at := noon
	for range lines {
		if random.IntN(12) == 0 {
			at = at.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
		} else {
			at = at.Add(time.Duration(random.IntN(90)) * time.Millisecond)
		}
		b.WriteString(usersLine(at, 200, prefix+strconv.Itoa(min(random.IntN(users), random.IntN(users)))))
	}
	return b.String()
}

// TestNoRecommendation checks the reasons for which a limit has no recommendation.
func TestNoRecommendation(t *testing.T) {
	one := func(change func(*Options), log string) *report.Recommendation {
		return simulateUsers(t, func(o *Options) {
			o.Recommend = 99
			change(o)
		}, logOf("log", log)).Rules.Limits[0].Recommended
	}
	rules := func(limit string) func(*Options) {
		return func(o *Options) {
			o.Rules = compile(t, "{domain: shop, descriptors: [{key: user, rate_limit: {"+limit+"}}]}")
		}
	}
	requests := func(o *Options) { o.Format, o.Templates = "requests", nil }
	log := burstyLog(100, "u", 3)
	for _, test := range []struct {
		change    func(*Options)
		log, want string
	}{
		{rules("unit: minute, requests_per_unit: 0"), log, "a limit of 0 denies all hits"},
		{rules("unit: minute, requests_per_unit: 9, algorithm: leaky_bucket, slack: 0"), strings.Repeat(usersLine(noon, 200, "al"), 9), "no limit admits this share; the burst or slack is too small"},
		{rules("unit: day, requests_per_unit: 9, algorithm: sliding_log"), strings.Repeat(usersLine(noon, 200, "al"), 5000), "no limit admits this share; the maximum is 4096/day, algorithm: sliding_log"},
		{func(o *Options) {
			o.Rules = compile(t, "{domain: shop, descriptors: [{key: user, charge: first_with_room, rate_limits: [{unit: minute, requests_per_unit: 9}, {unit: hour, requests_per_unit: 9}]}]}")
		}, log, "a request is charged to one of several limits; try limits with --against"},
		{requests, fmt.Sprintf(`{"time":%d,"domain":"shop","descriptors":[{"entries":["x=y"],"limit":"5/hour"}]}`+"\n", noon.Unix()), "requests set their own limits"},
		{requests, fmt.Sprintf(`{"time":%d,"domain":"shop","descriptors":[{"entries":["user=al"],"hits":0}]}`+"\n", noon.Unix()), "all its requests were peeks"},
	} {
		if got := one(test.change, test.log); got == nil || got.Reason != test.want || got.Limit != "" {
			t.Errorf("recommendation %+v, want reason %q", got, test.want)
		}
	}
}

// TestRecommendEachLimitAlone has a list and a shadow rule. The recommendation for a limit must be
// the same without the other limits.
func TestRecommendEachLimitAlone(t *testing.T) {
	text := func(limits string) *descriptors.Set {
		return compile(t, "{domain: shop, descriptors: [{key: user, rate_limits: ["+limits+"]}]}")
	}
	const minute, hour, second = "{unit: minute, requests_per_unit: 2}", "{unit: hour, requests_per_unit: 5, algorithm: token_bucket}", "{unit: second, requests_per_unit: 1, shadow: true}"
	numbers := func(set *descriptors.Set) (all []uint32) {
		for _, l := range simulateUsers(t, func(o *Options) { o.Rules, o.Recommend = set, 98 }, logOf("log", burstyLog(2000, "u", 9))).Rules.Limits {
			all = append(all, l.Recommended.RequestsPerUnit)
		}
		return all
	}
	got := numbers(text(minute + "," + hour + "," + second))
	var want []uint32
	for _, one := range []string{minute, hour, strings.Replace(second, ", shadow: true", "", 1)} {
		want = append(want, numbers(text(one))...)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || got[0] < 3 {
		t.Errorf("recommended %d, want %d", got, want)
	}
}

// TestSmallestLimit compares smallestLimit with a linear search.
func TestSmallestLimit(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		var d demand
		windows := make([]uint64, 1+random.IntN(6))
		for i := range windows {
			windows[i] = 1 + uint64(random.IntN(40))
			if random.IntN(9) == 0 {
				windows[i] += 1024
			}
			d.add(windows[i])
		}
		most := uint64(random.IntN(60))
		want := uint64(0)
		for ; ; want++ {
			over := uint64(0)
			for _, hits := range windows {
				over += hits - min(hits, want)
			}
			if over <= most {
				break
			}
		}
		if got := d.smallestLimit(most); got != want {
			t.Fatalf("smallestLimit(%d) of %d = %d, want %d", most, windows, got, want)
		}
	}
}

// TestRecommendIgnoresRefunds has refunds among the hits, which need not be admitted.
func TestRecommendIgnoresRefunds(t *testing.T) {
	line := func(more string) string {
		return fmt.Sprintf(`{"time":%d,"domain":"shop","descriptors":[{"entries":["user=al"]%s}]}`+"\n", noon.Unix(), more)
	}
	log := strings.Repeat(line(""), 10) + line(`,"hits":4,"refund":true`) + strings.Repeat(line(""), 10) + strings.Repeat(line(`,"hits":50,"refund":true`), 9)
	got := simulateUsers(t, func(o *Options) { o.Format, o.Templates, o.Recommend = "requests", nil, 90 }, logOf("log", log)).Rules.Limits[0].Recommended
	if want := (report.Recommendation{Limit: "14/minute", RequestsPerUnit: 14, Hits: 20, Over: 2}); *got != want {
		t.Errorf("recommended %+v, want %+v", *got, want)
	}
}
