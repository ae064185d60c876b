package builtin

import (
	"bytes"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
	"github.com/sluice-ratelimit/sluice/server/transport"
)

// script is what a client sends. Each frame is a step: the next is sent once the transport has done all that the steps
// before it cause.
type script struct {
	tb    testing.TB
	limit transport.Limits
	text  bytes.Buffer
	write *http2.Framer // to text
	block bytes.Buffer
	coder *hpack.Encoder

	steps    []step
	requests map[uint32]*request
}

// step is what is sent at once, or a wait.
type step struct {
	bytes []byte
	waits time.Duration
}

// request is what a script sends on a stream.
type request struct {
	fields []hpack.HeaderField
	ended  bool
	endsAt int // the step
}

func newScript(tb testing.TB) *script {
	tb.Helper()
	s := &script{tb: tb, requests: map[uint32]*request{}}
	s.write = http2.NewFramer(&s.text, nil)
	s.write.AllowIllegalWrites = true
	s.coder = hpack.NewEncoder(&s.block)
	return s
}

// begin exchanges SETTINGS.
func (s *script) begin(settings ...http2.Setting) {
	s.text.WriteString(http2.ClientPreface)
	s.frame(s.write.WriteSettings(settings...))
	s.frame(s.write.WriteSettingsAck())
}

// frame ends a step.
func (s *script) frame(err error) {
	must.OK(s.tb, err)
	s.steps = append(s.steps, step{bytes: bytes.Clone(s.text.Bytes())})
	s.text.Reset()
}

func (s *script) wait(d time.Duration) { s.steps = append(s.steps, step{waits: d}) }

// fields makes header fields of names and values.
func fields(texts ...string) (all []hpack.HeaderField) {
	for i := 0; i < len(texts); i += 2 {
		all = append(all, hpack.HeaderField{Name: texts[i], Value: texts[i+1]})
	}
	return all
}

// headers sends a header block, in as many frames as it takes.
func (s *script) headers(stream uint32, end bool, all ...hpack.HeaderField) {
	s.note(stream, end, all)
	s.block.Reset()
	for _, f := range all {
		must.OK(s.tb, s.coder.WriteField(f))
	}
	s.blocks(stream, end, s.block.Bytes())
}

const mostFrame = 16 << 10

// blocks sends a header block that is encoded already.
func (s *script) blocks(stream uint32, end bool, block []byte) {
	n := min(len(block), mostFrame)
	err := s.write.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: end, EndHeaders: n == len(block), BlockFragment: block[:n]})
	for block = block[n:]; err == nil && len(block) > 0; block = block[n:] {
		n = min(len(block), mostFrame)
		err = s.write.WriteContinuation(stream, n == len(block), block[:n])
	}
	s.frame(err)
}

// note remembers what a stream's headers are.
func (s *script) note(stream uint32, end bool, all []hpack.HeaderField) {
	r := s.requests[stream]
	switch {
	case r == nil:
		s.requests[stream] = &request{fields: all, ended: end, endsAt: len(s.steps)}
	case !r.ended:
		r.ended, r.endsAt = end, len(s.steps)
	}
}

// update sends a WINDOW_UPDATE of a stream.
func (s *script) update(stream, n uint32) {
	s.frame(s.write.WriteWindowUpdate(stream, n))
}

// data sends DATA.
func (s *script) data(stream uint32, end bool, p []byte) {
	if r := s.requests[stream]; r != nil && !r.ended {
		r.ended, r.endsAt = end, len(s.steps)
	}
	s.frame(s.write.WriteData(stream, end, p))
}

// The paths of the calls.
const (
	limitPath  = "/" + answer.ServiceName + "/ShouldRateLimit"
	healthPath = "/grpc.health.v1.Health/Check"
)

// ordinary are the headers of a call, with others beside them, or in their place, or without those
// whose value is left.
func ordinary(more ...string) []hpack.HeaderField {
	all := fields(":method", "POST", ":scheme", "http", ":path", limitPath, ":authority", "sluice", "content-type", "application/grpc", "te", "trailers")
	for _, f := range fields(more...) {
		at := slices.IndexFunc(all, func(o hpack.HeaderField) bool { return o.Name == f.Name })
		switch {
		case at < 0:
			all = append(all, f)
		case f.Value == left:
			all = slices.Delete(all, at, at+1)
		default:
			all[at] = f
		}
	}
	return all
}

// left is the value of a header that is left out.
const left = "\x00left out"

// prefixed is a message as gRPC sends it.
func prefixed(flag byte, message []byte) []byte {
	n := len(message)
	return append([]byte{flag, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, message...)
}

// ask is a whole call with these headers.
func (s *script) ask(stream uint32, more ...string) {
	s.headers(stream, false, ordinary(more...)...)
	s.data(stream, true, s.simple(stream))
}

// simple is a request with a counter of its own, so that its reply does not depend on others.
func (s *script) simple(stream uint32) []byte {
	r := simpleRequest()
	r.Descriptors[0].Entries[0].Value = strconv.Itoa(int(stream))
	return prefixed(0, marshal(s.tb, r))
}

// held is a request whose second and later replies are held, for ten seconds each.
func held(tb testing.TB) []byte {
	tb.Helper()
	r := simpleRequest()
	r.Descriptors[0].Entries[0].Key = "held"
	return prefixed(0, marshal(tb, r))
}
