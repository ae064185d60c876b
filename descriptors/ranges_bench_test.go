package descriptors

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/internal/must"
)

// randomRanges returns n different ranges, half of them IPv6.
func randomRanges(n int) []rules.Range {
	r := rand.New(rand.NewPCG(3, 4))
	known := map[netip.Prefix]bool{}
	all := make([]rules.Range, 0, n)
	for len(all) < n {
		var b [16]byte
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte(b[:4])), 12+r.IntN(21))
		if len(all)%2 == 0 {
			b[0], b[1] = 0x20, 0x01
			p = netip.PrefixFrom(netip.AddrFrom16(b), 20+r.IntN(109))
		}
		if p = p.Masked(); !known[p] {
			known[p] = true
			all = append(all, rules.Range{Prefix: p})
		}
	}
	return all
}

func BenchmarkRanges(b *testing.B) {
	const n = 100_000
	ranges := randomRanges(n)
	config := func() []rules.Config {
		return []rules.Config{{Domain: "d", Descriptors: []rules.Descriptor{{Key: "a", Set: &rules.ValueSet{Ranges: ranges}}}}}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, ds := Compile(config(), Options{})
	must.OK(b, ds.Err())
	runtime.GC()
	runtime.ReadMemStats(&after)
	d := s.domains["d"]
	r := rand.New(rand.NewPCG(5, 6))
	for _, kind := range []string{"v4", "v6", "garbage"} {
		requests := make([][]Entry, 1<<14)
		for i := range requests {
			p := ranges[r.IntN(n)]
			for kind != "garbage" && p.Addr().Is4() != (kind == "v4") {
				p = ranges[r.IntN(n)]
			}
			value := p.Addr().String()
			if kind == "garbage" {
				value += ", 10.1.2.3"
			}
			requests[i] = desc("a", value).Entries
		}
		b.Run(fmt.Sprintf("lookup=%s/ranges=%d", kind, n), func(b *testing.B) {
			b.ReportAllocs()
			addresses := addressReader{}
			for i := 0; b.Loop(); i++ {
				if (d.match(requests[i&(1<<14-1)], &addresses) == nil) != (kind == "garbage") {
					b.Fatal("wrong match")
				}
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
		})
	}
	b.Run(fmt.Sprintf("compile/ranges=%d", n), func(b *testing.B) {
		for b.Loop() {
			if _, ds := Compile(config(), Options{}); ds.HasErrors() {
				b.Fatal(ds)
			}
		}
	})
}
