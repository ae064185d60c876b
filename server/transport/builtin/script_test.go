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

// script is the input of a client. Each frame is a step: the next is sent when the transport has
// processed the steps before it.
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

// step is input that is sent at once, or a wait.
type step struct {
	bytes []byte
	waits time.Duration
}

// request is what a script sends on a stream.
type request struct {
	fields []hpack.HeaderField
	ended  bool
	endsAt int // step with END_STREAM
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
	s.addFrame(s.write.WriteSettings(settings...))
	s.addFrame(s.write.WriteSettingsAck())
}

// addFrame adds the written frame as a step.
func (s *script) addFrame(err error) {
	must.OK(s.tb, err)
	s.steps = append(s.steps, step{bytes: bytes.Clone(s.text.Bytes())})
	s.text.Reset()
}

func (s *script) addWait(d time.Duration) { s.steps = append(s.steps, step{waits: d}) }

// fields returns header fields for names and values.
func fields(texts ...string) (all []hpack.HeaderField) {
	for i := 0; i < len(texts); i += 2 {
		all = append(all, hpack.HeaderField{Name: texts[i], Value: texts[i+1]})
	}
	return all
}

// addHeaders adds a header block, in one or more frames.
func (s *script) addHeaders(stream uint32, end bool, all ...hpack.HeaderField) {
	s.expectRequest(stream, end, all)
	s.block.Reset()
	for _, f := range all {
		must.OK(s.tb, s.coder.WriteField(f))
	}
	s.addBlocks(stream, end, s.block.Bytes())
}

const mostFrame = 16 << 10

// addBlocks adds an encoded header block.
func (s *script) addBlocks(stream uint32, end bool, block []byte) {
	n := min(len(block), mostFrame)
	err := s.write.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: end, EndHeaders: n == len(block), BlockFragment: block[:n]})
	for block = block[n:]; err == nil && len(block) > 0; block = block[n:] {
		n = min(len(block), mostFrame)
		err = s.write.WriteContinuation(stream, n == len(block), block[:n])
	}
	s.addFrame(err)
}

// expectRequest records the headers of a stream.
func (s *script) expectRequest(stream uint32, end bool, all []hpack.HeaderField) {
	r := s.requests[stream]
	switch {
	case r == nil:
		s.requests[stream] = &request{fields: all, ended: end, endsAt: len(s.steps)}
	case !r.ended:
		r.ended, r.endsAt = end, len(s.steps)
	}
}

// addWindowUpdate adds a WINDOW_UPDATE of a stream.
func (s *script) addWindowUpdate(stream, n uint32) {
	s.addFrame(s.write.WriteWindowUpdate(stream, n))
}

// addData adds DATA.
func (s *script) addData(stream uint32, end bool, p []byte) {
	if r := s.requests[stream]; r != nil && !r.ended {
		r.ended, r.endsAt = end, len(s.steps)
	}
	s.addFrame(s.write.WriteData(stream, end, p))
}

// The paths of the calls.
const (
	limitPath  = "/" + answer.ServiceName + "/ShouldRateLimit"
	healthPath = "/grpc.health.v1.Health/Check"
)

// requestFields returns the headers of a call. more adds or replaces fields, or removes those with
// the value left.
func requestFields(more ...string) []hpack.HeaderField {
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

// left as a value removes a header.
const left = "\x00left out"

// prefixed returns a message with its prefix.
func prefixed(flag byte, message []byte) []byte {
	n := len(message)
	return append([]byte{flag, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, message...)
}

// addCall adds a complete call with these headers.
func (s *script) addCall(stream uint32, more ...string) {
	s.addHeaders(stream, false, requestFields(more...)...)
	s.addData(stream, true, s.addSimpleCall(stream))
}

// addSimpleCall adds a request with its own counter, so that its reply does not depend on others.
func (s *script) addSimpleCall(stream uint32) []byte {
	r := simpleRequest()
	r.Descriptors[0].Entries[0].Value = strconv.Itoa(int(stream))
	return prefixed(0, marshal(s.tb, r))
}

// delayedRequest is a request whose second and later replies are delayed by ten seconds each.
func delayedRequest(tb testing.TB) []byte {
	tb.Helper()
	r := simpleRequest()
	r.Descriptors[0].Entries[0].Key = "held"
	return prefixed(0, marshal(tb, r))
}
