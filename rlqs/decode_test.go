package rlqs

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-ratelimit/sluice/internal/must"
)

// recorder is a visitor that records the contents of a report.
type recorder struct {
	domains []string
	buckets []string
	faults  []fault
}

func (s *recorder) visitDomain(name []byte) error {
	s.domains = append(s.domains, string(name))
	return nil
}

func (s *recorder) visitBucket(u *usage) {
	s.faults = append(s.faults, u.fault)
	if u.fault == faultTooLarge {
		s.buckets = append(s.buckets, "large")
		return
	}
	var b strings.Builder
	for _, e := range u.entries {
		fmt.Fprintf(&b, "%q=%q ", e.key, e.value)
	}
	fmt.Fprintf(&b, "%d %d %v", u.allowed, u.denied, u.elapsed)
	s.buckets = append(s.buckets, b.String())
}

// decodePieces decodes a report in pieces of the given size.
func decodePieces(report []byte, size int) (*recorder, error) {
	s, d := &recorder{}, &decoder{scratch: new(decoderScratch)}
	for len(report) > size {
		if err := d.feed(report[:size], false, s); err != nil {
			return s, err
		}
		report = report[size:]
	}
	return s, d.feed(report, true, s)
}

// expected returns the contents of a report as protobuf decodes it.
func expected(m *rlqsv3.RateLimitQuotaUsageReports) (s recorder) {
	for _, u := range m.GetBucketQuotaUsages() {
		var b strings.Builder
		size, id := 0, u.GetBucketId().GetBucket()
		for _, k := range slices.Sorted(maps.Keys(id)) {
			fmt.Fprintf(&b, "%q=%q ", k, id[k])
			size += len(k) + len(id[k])
		}
		elapsed := time.Duration(min(uint64(u.GetTimeElapsed().GetSeconds()), uint64(maxElapsed/time.Second))) * time.Second
		fmt.Fprintf(&b, "%d %d %v", u.GetNumRequestsAllowed(), u.GetNumRequestsDenied(), elapsed)
		text := b.String()
		if size > maxIDBytes || len(id) > maxEntries {
			text = "large"
		}
		s.buckets = append(s.buckets, text)
	}
	return s
}

func report(usages ...*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage) *rlqsv3.RateLimitQuotaUsageReports {
	return &rlqsv3.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: usages}
}

func newUsage(allowed, denied uint64, elapsed time.Duration, id ...string) *rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage {
	b := map[string]string{}
	for i := 0; i < len(id); i += 2 {
		b[id[i]] = id[i+1]
	}
	return &rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: &rlqsv3.BucketId{Bucket: b}, TimeElapsed: durationpb.New(elapsed), NumRequestsAllowed: allowed, NumRequestsDenied: denied,
	}
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	must.OK(tb, err)
	return b
}

// TestDecode compares the decoder, fed in pieces of all sizes, with protobuf's.
func TestDecode(t *testing.T) {
	many := make([]string, 0, 2*maxEntries+2)
	for i := range maxEntries + 1 {
		many = append(many, strconv.Itoa(i), "x")
	}
	for _, m := range []*rlqsv3.RateLimitQuotaUsageReports{
		{},
		report(), report(newUsage(0, 0, 0)),
		report(newUsage(1, 2, 5*time.Second, "sluice", "b,a", "a", "1", "b", ""), newUsage(1<<63, 1<<64-1, 0, "", "")),
		report(newUsage(1, 0, 0, "z", strings.Repeat("z", maxIDBytes-1)), newUsage(2, 0, 0, "z", strings.Repeat("z", maxIDBytes)), newUsage(3, 0, 0, "y", strings.Repeat("y", 100_000)), newUsage(4, 0, 0, "x", "x")),
		report(newUsage(1, 0, -time.Second, many[2:]...), newUsage(1, 0, 1<<62, many...)),
	} {
		b := marshal(t, m)
		for size := 1; size <= len(b)+1; size += 1 + size/50 {
			got, err := decodePieces(b, size)
			if w := expected(m); err != nil || !slices.Equal(got.buckets, w.buckets) || len(got.domains) != len(m.GetDomain()) {
				t.Fatalf("in pieces of %d bytes: %v, %v, want %v", size, got, err, w)
			}
		}
	}
}

// TestDecodeInvalidUTF8 decodes an ID that is not valid UTF-8: only that bucket has a fault.
func TestDecodeInvalidUTF8(t *testing.T) {
	b := marshal(t, report(newUsage(1, 0, 0, "k", "good"), newUsage(2, 0, 0, "k", "bad?"), newUsage(3, 0, 0, "k", "fine")))
	b = bytes.Replace(b, []byte("bad?"), []byte("bad\xff"), 1)
	if err := proto.Unmarshal(b, new(rlqsv3.RateLimitQuotaUsageReports)); err == nil {
		t.Fatal("protobuf accepts the invalid UTF-8")
	}
	got, err := decodePieces(b, 7)
	if err != nil || !slices.Equal(got.faults, []fault{faultNone, faultInvalidUTF8, faultNone}) {
		t.Errorf("decoded %v, %v; want a fault in the second bucket", got, err)
	}
}

// TestDecodeSkipsOversizedFields decodes a field beyond maxFieldBytes without buffering it.
func TestDecodeSkipsOversizedFields(t *testing.T) {
	b := marshal(t, report(newUsage(1, 0, 0, "k", strings.Repeat("x", 1<<20))))
	s, d := &recorder{}, &decoder{scratch: new(decoderScratch)}
	for len(b) > 0 {
		n := min(len(b), 1000)
		must.OK(t, d.feed(b[:n], n == len(b), s))
		if b = b[n:]; cap(d.partial) > 2*maxFieldBytes {
			t.Fatalf("%d bytes are buffered", cap(d.partial))
		}
	}
	if !slices.Equal(s.faults, []fault{faultTooLarge}) {
		t.Errorf("the faults are %v, want one for an oversized field", s.faults)
	}
}

func TestDecodeFaults(t *testing.T) {
	for name, b := range map[string]string{
		"field number 0":           "\x00\x00",
		"field number of 30 bits":  "\x12\x06\x80\x80\x80\x80\x10\x00",
		"a group":                  "\x1b\x1c",
		"a long varint":            "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a long tag":               "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"an end within a tag":      "\xff",
		"an end within a size":     "\x12\xff",
		"an end within a bucket":   "\x12\x05\x18",
		"an end within a fixed32":  "\x1d\x00",
		"a bucket that ends early": "\x12\x02\x0a\x01",
		"an id that ends early":    "\x12\x04\x0a\x02\x0a\x01",
		"a size beyond 4 GiB":      "\x12\xff\xff\xff\xff\x7f",
		"a large domain":           "\x0a\x81\x08" + strings.Repeat("d", 1025),
		"a larger domain":          "\x0a\x81\x80\x01" + strings.Repeat("d", 16385),
	} {
		for _, size := range []int{1, 2, 100, 100_000} {
			if s, err := decodePieces([]byte(b), size); err == nil {
				t.Errorf("%s: %v in pieces of %d", name, s, size)
			}
		}
	}
}

// FuzzDecode compares the decoder with protobuf's, and a report in pieces with the complete one.
func FuzzDecode(f *testing.F) {
	f.Add(marshal(f, report(newUsage(1, 2, 5*time.Second, "sluice", "b,a", "a", "1", "b", ""))), 3)
	f.Add([]byte("\x12\x08\x0a\x06\x0a\x04\x0a\x01k\x1d\x12\x0c\x0a\x04\x0a\x02\x0a\x00\x0a\x04\x0a\x02\x12\x01"), 1)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		whole, err := decodePieces(b, len(b)+1)
		pieces, pieceErr := decodePieces(b, 1+size&63)
		if (err == nil) != (pieceErr == nil) || err == nil && fmt.Sprint(whole) != fmt.Sprint(pieces) {
			t.Fatalf("complete: %v, %v; in pieces: %v, %v", whole, err, pieces, pieceErr)
		}
		var m rlqsv3.RateLimitQuotaUsageReports
		switch wantErr := proto.Unmarshal(b, &m); {
		case slices.Contains(whole.faults, faultInvalidUTF8), slices.Contains(whole.faults, faultTooLarge): // protobuf differs
		case err == nil && wantErr != nil && !strings.Contains(wantErr.Error(), "UTF-8"):
			t.Fatalf("%q is accepted, but protobuf returns %v", b, wantErr)
		case err != nil && wantErr == nil && len(m.GetDomain()) <= maxIDBytes && !bytes.ContainsFunc(b, func(r rune) bool { return r&7 == 3 || r&7 == 4 }):
			t.Fatalf("%q: %v, but protobuf accepts it", b, err)
		case err == nil && wantErr == nil:
			if w := expected(&m); !slices.Equal(whole.buckets, w.buckets) {
				t.Fatalf("%q has %q, want %q", b, whole.buckets, w.buckets)
			}
		}
	})
}
