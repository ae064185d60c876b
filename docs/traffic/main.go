// Traffic writes an access log of generated traffic in Envoy's default format, for
// docs/simulate.md:
//
//	go run ./docs/traffic > access.log
//
// The output is always the same. With -limit N it includes the denials of a limit of N requests per
// minute for each address.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"
)

func main() {
	limit := flag.Int("limit", 0, "requests per minute that an address may make; 0 for no limit")
	flag.Parse()
	if err := Write(os.Stdout, *limit); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

const (
	// addresses is the number of clients, and minutes the length of the log.
	addresses = 900
	minutes   = 40
)

var begin = time.Date(2026, 11, 21, 8, 50, 0, 0, time.UTC)

type request struct {
	at    time.Time
	took  time.Duration
	from  string
	path  string
	agent string
}

// Write writes the log.
func Write(w io.Writer, limit int) error {
	all := requests(rand.New(rand.NewPCG(1, 2))) //nolint:gosec // reproducible
	denied := map[int]bool{}
	if limit > 0 {
		count := map[string]int{}
		slices.SortStableFunc(all, func(a, b request) int { return a.at.Compare(b.at) })
		for i, r := range all {
			key := fmt.Sprint(r.from, r.at.Unix()/60)
			if count[key]++; count[key] > limit {
				denied[i] = true
			}
		}
	}
	// Envoy logs a request when it ends.
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(all[a].at.Add(all[a].took).UnixNano(), all[b].at.Add(all[b].took).UnixNano())
	})
	out := bufio.NewWriter(w)
	for _, i := range order {
		r := all[i]
		status := 200
		flags := "-"
		upstream := "10.0.0.7:8080"
		took := strconv.FormatInt(r.took.Milliseconds(), 10)
		if denied[i] {
			status = 429
			flags = "RL"
			upstream = "-"
			took = "-"
		}
		fmt.Fprintf(out, "[%s] \"GET %s HTTP/1.1\" %d %s 0 512 %d %s \"%s\" \"%s\" \"%08x\" \"shop.example\" \"%s\"\n",
			r.at.Format("2006-01-02T15:04:05.000Z"), r.path, status, flags, r.took.Milliseconds(), took, r.from, r.agent, i, upstream)
	}
	return out.Flush()
}

// requests returns the requests of people, who view a few pages, of offices with many people behind
// one address, and of a program that fetches pages as fast as it can.
func requests(random *rand.Rand) []request {
	var all []request
	add := func(at time.Duration, from, agent string) {
		path := fmt.Sprintf("/item/%d", random.IntN(500))
		if random.IntN(4) == 0 {
			path = fmt.Sprintf("/search?q=%d", random.IntN(2000))
		}
		took := time.Millisecond * time.Duration(2+random.IntN(40)+random.IntN(2)*random.IntN(900))
		all = append(all, request{begin.Add(at).Truncate(time.Millisecond), took, from, path, agent})
	}
	whole := minutes * time.Minute
	for i := range addresses {
		from := fmt.Sprintf("198.51.%d.%d", 100+i/250, 1+i%250)
		visits := 1 + random.IntN(6)
		if i%60 == 0 { // an office
			visits = 150 + random.IntN(250)
		}
		for range visits {
			at := time.Duration(random.Int64N(int64(whole)))
			for range 1 + random.IntN(12) {
				if at += time.Duration(random.Int64N(int64(8 * time.Second))); at < whole {
					add(at, from, "Mozilla/5.0")
				}
			}
		}
	}
	for at := 13 * time.Minute; at < 19*time.Minute; at += time.Duration(random.Int64N(int64(100 * time.Millisecond))) {
		add(at, "203.0.113.9", "python-requests/2.32")
	}
	return all
}
