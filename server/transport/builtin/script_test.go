package builtin

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/internal/must"
	"github.com/sluice-ratelimit/sluice/server/answer"
)

// script is the input of a client, one frame a step.
type script struct {
	tb    testing.TB
	text  bytes.Buffer
	write *http2.Framer // to text
	block bytes.Buffer
	coder *hpack.Encoder
	steps [][]byte
}

func newScript(tb testing.TB) *script {
	tb.Helper()
	s := &script{tb: tb}
	s.write = http2.NewFramer(&s.text, nil)
	s.coder = hpack.NewEncoder(&s.block)
	return s
}

// begin exchanges SETTINGS.
func (s *script) begin() {
	s.text.WriteString(http2.ClientPreface)
	s.addFrame(s.write.WriteSettings())
	s.addFrame(s.write.WriteSettingsAck())
}

// addFrame adds the written frame as a step.
func (s *script) addFrame(err error) {
	must.OK(s.tb, err)
	s.steps = append(s.steps, bytes.Clone(s.text.Bytes()))
	s.text.Reset()
}

// addHeaders adds the headers of a call.
func (s *script) addHeaders(stream uint32, more ...string) {
	s.block.Reset()
	for _, f := range requestFields(more...) {
		must.OK(s.tb, s.coder.WriteField(f))
	}
	s.addFrame(s.write.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: s.block.Bytes()}))
}

// requestFields returns the headers of a call. more has names and values alternately.
func requestFields(more ...string) (all []hpack.HeaderField) {
	texts := append([]string{
		":method", "POST", ":scheme", "http", ":path", "/" + answer.ServiceName + "/ShouldRateLimit", ":authority", "sluice",
		"content-type", "application/grpc", "te", "trailers",
	}, more...)
	for i := 0; i < len(texts); i += 2 {
		all = append(all, hpack.HeaderField{Name: texts[i], Value: texts[i+1]})
	}
	return all
}

// prefixed returns a message with its prefix.
func prefixed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// addCall adds a complete call with its own counter, so that its reply does not depend on others.
func (s *script) addCall(stream uint32) {
	s.addHeaders(stream)
	r := simpleRequest()
	r.Descriptors[0].Entries[0].Value = strconv.Itoa(int(stream))
	s.addFrame(s.write.WriteData(stream, true, prefixed(marshal(s.tb, r))))
}

// openDelayedCall adds a call whose reply is delayed by ten seconds more than that of the call
// before. That of the first one is not delayed.
func (s *script) openDelayedCall(stream uint32) {
	s.addHeaders(stream, "grpc-timeout", "60S")
	r := simpleRequest()
	r.Descriptors[0].Entries[0].Key = "held"
	s.addFrame(s.write.WriteData(stream, true, prefixed(marshal(s.tb, r))))
}
