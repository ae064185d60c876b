package simulate

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// fuzzReader reads arbitrary bytes as lines of a format. Each line must be a request, be bad, or
// have no descriptor.
func fuzzReader(f *testing.F, format string, sample, descriptor string, more ...string) {
	f.Helper()
	o := &Options{Rules: compile(f, perUser), Format: format, Now: now, Templates: []*Template{newTemplate(f, descriptor)}, Logs: []accesslog.Log{logOf("log", sample)}}
	o.setDefaults()
	r, err := newReadPlan(o)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range append(more, sample, sample+sample, strings.ReplaceAll(sample, `"`, `""`), strings.ReplaceAll(sample, "a", "\x00"),
		strings.ReplaceAll(sample, "2026", "2099"), sample[:len(sample)/2], strings.Repeat(`" "`, 100), "\n\n\r\n", strings.Repeat("[", 100), strings.Repeat(`{"a":`, 100)) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		b := newWorker(r).readChunk(accesslog.Chunk{Bytes: bytes.Clone(text)})
		unknown := 0
		for _, n := range b.unknown {
			unknown += n
		}
		if got := len(b.requests) + b.Bad + b.NoRequest + b.withoutDescriptor + b.outsideRange + unknown; got != b.Read {
			t.Errorf("%d decided, %d bad, %d without a request, %d without a descriptor, %d outside the time range and %d unknown, of %d lines of %q", len(b.requests), b.Bad, b.NoRequest, b.withoutDescriptor, b.outsideRange, unknown, b.Read, text)
		}
		var rec record
		run := run{}
		for _, w := range b.requests {
			if w.at < 0 || w.at > now.UnixNano() {
				t.Errorf("time %d of %q", w.at, text)
			}
			rec.read(b.arena[w.offset:])
			for range rec.calls {
				rec.nextCall(&run.req)
				if len(run.req.Domain) == 0 || len(run.req.Descriptors) == 0 {
					t.Errorf("the request of %[2]q is %+[1]v", run.req, text)
				}
			}
		}
	})
}

func FuzzText(f *testing.F) {
	fuzzReader(f, "auto", `[2026-11-21T09:00:00.123Z] "GET /a?b HTTP/1.1" 200 - 0 28 1 0 "192.0.2.1" "curl/8" "id" "a.example" "10.0.0.1:80"`+"\n", "user={user-agent}")
}

func FuzzFormat(f *testing.F) {
	fuzzReader(f, `%START_TIME(%s.%3f)%;%REQ(A)%;%RESPONSE_CODE% %DYNAMIC_METADATA(envoy.filters.http.ratelimit)%`, `1763715600.123;a;200 {"domain":"d","descriptors":[{"entries":["a=b"],"hitsAddend":2,"limit":"requests_per_unit:5 unit:HOUR"}]}`+"\n", "user={a}")
}

func FuzzJSON(f *testing.F) {
	fuzzReader(f, "auto", `{"start_time":"2026-11-21T09:00:00.123Z","user-agent":"a\u0041","response_code":200,"x":[{"y":null}]}`+"\n", "user={user-agent}")
}

func FuzzRequests(f *testing.F) {
	fuzzReader(f, "requests", `{"time":"2026-11-21T09:00:00Z","domain":"d","hits":2,"descriptors":[{"entries":[["a","b"]],"hits":3,"refund":true,"limit":"5/hour"}]}`+"\n", "user={a}")
}

func FuzzVariables(f *testing.F) {
	fuzzReader(f, "auto", `192.0.2.7, 10.0.0.1 - al [21/Nov/2026:09:00:00 +0000] "GET /\"a HTTP/1.1" 200 5 "-" "a \"b\" \\"`+"\n", "user={user-agent},path={:path}")
}
