package h2

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// FuzzModel has a valid client, some of whose frames are changed in transit, and a handler that
// answers at once, later or never. A model of streams and windows checks these invariants:
//
//   - A stream ends once, and its handler is called at most once. A pending call is canceled once
//     if it is reset.
//   - A StreamingCall receives the requested messages in order, and RequestEnded is called once.
//     Sent reports the number of bytes sent.
//   - The chunks of a ChunkedCall are the bytes that were sent, in order, with the right number of
//     remaining bytes. A mark follows everything that was sent before it, and is acknowledged once.
//   - No DATA exceeds the client's windows.
//   - The table and the memory stay within their limits, and the counters are right; see
//     checkCounts.
//   - If no frame was changed, the connection stays open, no stream is reset for an error, and all
//     calls are answered in the end.
//   - The same input in fragments gives the same output.
func FuzzModel(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		seed := make([]byte, 200)
		for i := range seed {
			seed[i] = byte(r.IntN(256))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		playModel(t, func(n int) int {
			if len(input) == 0 {
				return -1
			}
			b := int(input[0])
			input = input[1:]
			return b % n
		})
	})
}

// TestModel runs FuzzModel's model with random numbers.
func TestModel(t *testing.T) {
	for seed := range uint64(effort.Times(t, 40)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			left := 600
			playModel(t, func(n int) int {
				if left--; left < 0 {
					return -1
				}
				return r.IntN(n)
			})
		})
	}
}

// model is a client's view of a connection.
type model struct {
	*client
	next       func(n int) int // a number below n, or -1 at the end
	changed    bool            // a frame was changed
	read       int             // bytes of out that were checked
	incomplete int             // bytes of an incomplete frame

	streams map[uint32]*modelStream
	last    uint32
	pending []uint32 // pending calls
	initial int64    // windows for DATA of the server
	window  int64
	receive int64 // the connection's window for DATA of the client
	acked   bool
	drained bool

	// played are the steps, to be replayed in fragments.
	played []modelStep
}

type modelStep struct {
	bytes  []byte
	action func(c *client)
}

type modelStream struct {
	window  int64 // for DATA of the server
	receive int64 // for DATA of the client
	body    []byte
	sent    int  // of body
	ended   bool // by the client
	reset   bool // by the client
	headed  bool // headers of a reply without END_STREAM were received
	calls   int
	later   bool
	// laterBytes is the size of the reply of a pending call.
	laterBytes int
	answered   int // number of END_STREAMs
	resets     int // by the server
	cancels    int

	messages  [][]byte            // of a StreamingCall
	streaming *modelStreamingCall // once it is open
}

// modelStreamingCall is a StreamingCall.
type modelStreamingCall struct {
	m              *model
	s              *modelStream
	id             uint32
	wants          bool
	ended          bool
	received       int // messages
	sent, reported int // bytes of replies
	finished       bool
	pieces         *modelChunkedCall // itself, if it is a ChunkedCall
}

func (k *modelStreamingCall) Receive(message []byte) {
	if !k.wants || k.ended || k.finished {
		k.m.t.Fatalf("stream %d: a message that was not requested: %+v", k.id, k)
	}
	if !k.m.changed && (k.received == len(k.s.messages) || !bytes.Equal(message, k.s.messages[k.received])) {
		k.m.t.Fatalf("stream %d: message %d of %d is %q", k.id, k.received, len(k.s.messages), message)
	}
	k.wants = false
	k.received++
}

func (k *modelStreamingCall) RequestEnded(s Status) {
	if k.ended || !k.m.changed && (s.Code != statusOK || !k.s.ended || k.received != len(k.s.messages)) {
		k.m.t.Fatalf("stream %d ends with %v after %d of %d messages: %+v", k.id, s, k.received, len(k.s.messages), k)
	}
	k.ended = true
}

func (k *modelStreamingCall) Sent(n int) {
	if k.reported += n; k.reported > k.sent || n <= 0 {
		k.m.t.Fatalf("stream %d: %d of %d bytes were reported as sent", k.id, k.reported, k.sent)
	}
}

func (k *modelStreamingCall) Cancel() {
	if k.s.cancels++; k.finished || k.s.cancels > 1 {
		k.m.t.Errorf("stream %d was cancelled %d times; finished: %v", k.id, k.s.cancels, k.finished)
	}
}

// open reports whether the call is open.
func (k *modelStreamingCall) open() bool {
	return k != nil && !k.finished && k.s.cancels == 0 && k.s.answered+k.s.resets == 0
}

// Call answers as the message demands: its first byte selects how, the others how much.
func (m *model) Call(c *Call) ([]byte, Status, PendingCall) {
	s := m.streams[c.Stream]
	if s == nil {
		m.t.Fatalf("a call on stream %d, which is idle", c.Stream)
	}
	if s.calls++; s.reset || s.calls > 1 {
		m.t.Errorf("stream %d: call %d, after a reset: %v", c.Stream, s.calls, s.reset)
	}
	if !m.changed && !bytes.Equal(c.Message, s.body[prefixBytes:]) {
		m.t.Errorf("stream %d: the message is %q, want %q", c.Stream, c.Message, s.body[prefixBytes:])
	}
	return modelAnswer(c, func() PendingCall {
		s.later = true
		m.pending = append(m.pending, c.Stream)
		return modelPending{m, c.Stream}
	})
}

func modelAnswer(c *Call, later func() PendingCall) ([]byte, Status, PendingCall) {
	switch {
	case len(c.Message) == 0:
		return nil, Status{}, nil
	case c.Message[0]%4 == 0:
		return nil, Status{}, later()
	case c.Message[0]%4 == 1:
		return nil, Status{Code: 3, Message: "no\xff"}, nil
	}
	return modelReply(int(c.Message[0])), Status{}, nil
}

// modelReply returns a reply of some bytes, or of more than two frames.
func modelReply(n int) []byte { return make([]byte, n*n/2) }

type modelPending struct {
	m  *model
	id uint32
}

func (l modelPending) Cancel() {
	s := l.m.streams[l.id]
	if s.cancels++; !s.later || s.cancels > 1 {
		l.m.t.Errorf("stream %d was cancelled %d times; pending: %v", l.id, s.cancels, s.later)
	}
	l.m.pending = slices.DeleteFunc(l.m.pending, func(id uint32) bool { return id == l.id })
}

// plainHandler answers in the same way, without a model.
type plainHandler struct{ *echo }

func (a plainHandler) Call(c *Call) ([]byte, Status, PendingCall) {
	return modelAnswer(c, func() PendingCall { return a.echo })
}

func (m *model) Open(c *Call) (StreamingCall, Status) {
	s := m.streams[c.Stream]
	if s == nil && m.changed { // the number of a stream was changed
		s = &modelStream{window: m.initial, receive: streamWindow}
		m.streams[c.Stream] = s
	}
	if s == nil {
		m.t.Fatalf("a streaming call on stream %d, which is idle", c.Stream)
	}
	if s.calls++; s.reset || s.calls > 1 {
		m.t.Errorf("stream %d: call %d, after a reset: %v", c.Stream, s.calls, s.reset)
	}
	s.streaming = &modelStreamingCall{m: m, s: s, id: c.Stream, wants: true}
	if slices.Contains(c.Fields, Field{"x-pieces", "yes"}) {
		s.streaming.pieces = &modelChunkedCall{modelStreamingCall: s.streaming}
		return s.streaming.pieces, Status{}
	}
	return s.streaming, Status{}
}

func (m *model) UnknownMethod(path string) Status { return m.handler.UnknownMethod(path) }
func (*model) Reset(uint32)                       {}

func (m *model) LimitExceeded(c *Call, b Limit, size int) Status {
	return m.handler.LimitExceeded(c, b, size)
}

func playModel(t *testing.T, next func(n int) int) {
	t.Helper()
	m := &model{
		client: newClient(t), next: next, streams: map[uint32]*modelStream{},
		initial: defaultWindow, window: defaultWindow, receive: defaultWindow,
	}
	m.conn.handler = m
	piece := 1 + max(0, next(200))
	m.must(m.WriteSettings())
	m.frame()
	for m.err == nil {
		act := next(36)
		if act < 0 {
			break
		}
		m.clientStep(act)
	}
	m.closeAndCheck()
	m.replay(piece)
}

// pick returns a number below n.
func (m *model) pick(n int) int { return max(0, m.next(n)) }

// pickStream returns an open stream that the client has not ended, or 0.
func (m *model) pickStream() uint32 {
	var open []uint32
	for id, s := range m.streams {
		if !s.ended && !s.reset && s.answered+s.resets == 0 {
			open = append(open, id)
		}
	}
	if len(open) == 0 {
		return 0
	}
	slices.Sort(open)
	return open[m.pick(len(open))]
}

// pickAnyStream returns a stream that was opened.
func (m *model) pickAnyStream() uint32 { return max(1, m.last-min(m.last-1, uint32(2*m.pick(6)))) }

func (m *model) clientStep(clientStep int) {
	switch clientStep {
	case 0, 1, 2, 3, 4, 5, 6:
		m.startRequest()
		m.send(m.last, 1<<20, true)
	case 7, 8, 9:
		m.startRequest()
	case 10, 11, 12, 13:
		if id := m.pickStream(); id != 0 {
			m.send(id, 1+m.pick(3000), m.pick(3) > 0)
		}
	case 14, 15:
		if id := m.pickStream(); id != 0 {
			m.send(id, 1<<20, true)
		}
	case 16, 17:
		if len(m.streams) > 0 {
			m.must(m.WriteRSTStream(m.pickAnyStream(), http2.ErrCodeCancel))
			m.frame()
		}
	case 18, 19:
		n := uint32(1 + m.pick(250)*m.pick(250))
		if m.window+int64(n) <= maxWindow {
			m.must(m.WriteWindowUpdate(0, n))
			m.frame()
		}
	case 20, 21:
		n := uint32(1 + m.pick(250)*m.pick(250))
		if s := m.streams[m.pickAnyStream()]; s != nil && s.window+int64(n) <= maxWindow {
			m.must(m.WriteWindowUpdate(m.pickAnyStream(), n))
			m.frame()
		}
	case 22, 23:
		m.must(m.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(m.pick(3) * m.pick(250) * m.pick(200))}))
		m.frame()
	case 24:
		if m.acked {
			m.acknowledge()
			break
		}
		m.must(m.WriteSettingsAck())
		m.frame()
	case 25, 26, 27:
		m.serverStep(0)
	case 28:
		m.must(m.WritePriority(m.pickAnyStream(), http2.PriorityParam{StreamDep: 0}))
		m.frame()
	case 29: // another table size, which the next block declares
		m.encoder.SetMaxDynamicTableSize(uint32(17 * m.pick(240)))
	case 30:
		m.serverStep(1)
	case 31:
		m.serverStep(2)
	case 32, 33, 34, 35:
		m.serverStep(3)
	}
}

// serverStep performs an action of the server.
func (m *model) serverStep(act int) {
	switch act {
	case 0:
		m.answerPending(m.pick(2) == 0)
	case 1:
		by := time.Duration(m.pick(60)) * 100 * time.Millisecond
		m.perform(func(c *client) {
			c.now += by
			c.out = c.conn.ResetOverdue(c.out, c.now)
		})
	case 2:
		if m.pick(20) == 0 {
			m.drained = true
			m.perform(func(c *client) { c.out = c.conn.Drain(c.out, c.now, "max_age") })
		}
	default:
		m.streamingStep()
	}
}

// streamingStep performs an action of a StreamingCall's handler.
func (m *model) streamingStep() {
	var open []uint32
	for id, s := range m.streams {
		if s.streaming.open() {
			open = append(open, id)
		}
	}
	if len(open) == 0 {
		return
	}
	slices.Sort(open)
	id := open[m.pick(len(open))]
	k := m.streams[id].streaming
	switch m.pick(6) {
	case 0, 1, 2:
		if k.pieces != nil {
			k.pieces.mark()
			break
		}
		k.wants = !k.ended
		m.perform(func(c *client) { c.out = c.conn.RequestMessage(c.out, id) })
	case 3:
		m.perform(func(c *client) { c.out = c.conn.SendHeader(c.out, id, []Field{{"x", "y"}}) })
	case 4:
		message := modelReply(m.pick(120))
		k.sent += prefixBytes + len(message)
		m.perform(func(c *client) { c.out = c.conn.Send(c.out, id, message) })
	case 5:
		m.finishStreaming(k)
	}
}

func (m *model) finishStreaming(k *modelStreamingCall) {
	k.finished = true
	m.perform(func(c *client) {
		c.out = c.conn.Finish(c.out, k.id, Status{Code: 5, Message: "bye"}, []Field{{"x", "y"}})
	})
}

// startRequest opens a stream, with a message of any size.
func (m *model) startRequest() {
	if m.last > 0 {
		m.last += 2
	} else {
		m.last = 1
	}
	size := 1 + m.pick(100)
	if m.pick(8) == 0 {
		size *= 300
	}
	body := grpcMessage(string(bytes.Repeat([]byte{byte(m.pick(256))}, size)))
	first := int64(defaultWindow)
	if m.acked {
		first = streamWindow
	}
	m.streams[m.last] = &modelStream{window: m.initial, receive: first, body: body}
	path, inPieces := echoPath, false
	switch n := m.pick(12); n {
	case 9, 10:
		path, inPieces = talkPath, n == 10
		s := m.streams[m.last]
		s.messages = [][]byte{bytes.Clone(body[prefixBytes:])}
		for range m.pick(4) {
			message := bytes.Repeat([]byte{byte(len(s.messages))}, m.pick(250)*m.pick(60))
			s.messages = append(s.messages, message)
			s.body = append(s.body, grpcMessage(string(message))...)
		}
	case 11:
		path = "/answered/early"
	}
	fields := request(path)
	if inPieces {
		fields = append(fields, "x-pieces", "yes")
	}
	if m.pick(12) == 11 { // not gRPC: it is answered at half a window, or at its end
		fields[9] = "text/plain"
		m.streams[m.last] = &modelStream{window: m.initial, receive: first, body: make([]byte, 30*m.pick(250))}
	}
	switch m.pick(10) {
	case 0:
		fields = append(fields, "grpc-timeout", strconv.Itoa(1+m.pick(90))+"S")
	case 1:
		fields = append(fields, "x"+strconv.Itoa(m.pick(30)), string(make([]byte, m.pick(256))))
		fields[len(fields)-1] = string(bytes.Repeat([]byte("y"), len(fields[len(fields)-1])))
	}
	block := m.encode(fields...)
	n := len(block)
	if m.pick(6) == 0 {
		n = 1 + m.pick(len(block)-1)
	}
	m.must(m.WriteHeaders(http2.HeadersFrameParam{StreamID: m.last, EndHeaders: n == len(block), BlockFragment: block[:n], PadLength: uint8(max(0, m.pick(40)-30))}))
	if n < len(block) {
		m.must(m.WriteContinuation(m.last, true, block[n:]))
	}
	m.frame()
}

// send sends at most maxBytes bytes of a request, as the windows allow.
func (m *model) send(id uint32, maxBytes int, end bool) {
	s := m.streams[id]
	for maxBytes > 0 && !s.ended && s.answered+s.resets == 0 && m.err == nil {
		padding := max(0, m.pick(20)-17) * 20
		over := 0
		if padding > 0 {
			over = 1 + padding
		}
		n := min(len(s.body)-s.sent, maxBytes, maxFrameBytes-over, int(min(s.receive, m.receive))-over)
		if n < 0 || n == 0 && s.sent < len(s.body) {
			return
		}
		p := s.body[s.sent : s.sent+n]
		s.sent += n
		maxBytes -= max(1, n)
		last := s.sent == len(s.body)
		if last && end && m.pick(10) == 9 { // end with trailers
			m.must(m.WriteData(id, false, p))
			m.frame()
			m.trailers(id)
			return
		}
		if padding > 0 {
			m.must(m.WriteDataPadded(id, last && end, p, make([]byte, padding)))
		} else {
			m.must(m.WriteData(id, last && end, p))
		}
		if last && !end {
			maxBytes = 0
		}
		m.frame()
	}
}

// trailers ends a request with trailers. The server may act between their frames.
func (m *model) trailers(id uint32) {
	block := m.encode("x", "y")
	if m.err != nil || m.pick(2) == 0 {
		m.must(m.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndStream: true, EndHeaders: true, BlockFragment: block}))
		m.frame()
		return
	}
	m.must(m.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndStream: true, BlockFragment: block[:1]}))
	m.frame()
	for range m.pick(3) {
		m.serverStep(m.pick(6))
	}
	m.must(m.WriteContinuation(id, true, block[1:]))
	m.frame()
}

// frame feeds the connection with the written frame, possibly changed.
func (m *model) frame() {
	all := bytes.Clone(m.in.Bytes())
	rest, in := all[:m.incomplete], all[m.incomplete:]
	if at := bytes.Index(in, []byte(Preface)); m.pick(200) == 199 && at < 0 && len(in) >= frameHeaderBytes {
		m.changed = true
		switch m.pick(6) {
		case 0:
			in[3] = byte(m.pick(12))
		case 1:
			in[4] ^= 1 << m.pick(8)
		case 2:
			binary.BigEndian.PutUint32(in[5:], uint32(m.pick(256)))
		case 3:
			if len(in) > frameHeaderBytes {
				in[frameHeaderBytes+m.pick(len(in)-frameHeaderBytes)] ^= 1 << m.pick(8)
			}
		case 4: // twice
			in = append(in, in...)
		case 5: // shorter
			if n := frameBytes(in); n > 0 && len(in) == frameHeaderBytes+n {
				cut := 1 + m.pick(n)
				in = in[:len(in)-cut]
				in[0], in[1], in[2] = byte((n-cut)>>16), byte((n-cut)>>8), byte(n-cut)
			}
		}
	}
	all = slices.Concat(rest, in)
	m.in.Reset()
	m.in.Write(all)
	m.handleInput(all)
	m.played = append(m.played, modelStep{bytes: in})
	m.feed()
	m.incomplete = m.in.Len()
	m.check()
}

// perform performs another action on the connection.
func (m *model) perform(action func(c *client)) {
	if m.err != nil {
		return
	}
	m.played = append(m.played, modelStep{action: action})
	action(m.client)
	m.check()
}

// handleInput updates the model for the client's frames.
func (m *model) handleInput(in []byte) {
	in = bytes.TrimPrefix(in, []byte(Preface))
	for len(in) >= frameHeaderBytes && len(in) >= frameHeaderBytes+frameBytes(in) {
		f := parseFrame(in[:frameHeaderBytes+frameBytes(in)])
		in = in[frameHeaderBytes+frameBytes(in):]
		s := m.streams[f.stream]
		switch f.frameType { //nolint:exhaustive // the others change nothing
		case frameData:
			m.receive -= int64(len(f.payload))
			if s != nil {
				s.receive -= int64(len(f.payload))
				s.ended = s.ended || f.has(flagEndStream)
			}
		case frameHeaders:
			if s != nil {
				s.ended = s.ended || f.has(flagEndStream)
			}
		case frameRSTStream:
			if s != nil && len(f.payload) == 4 {
				s.reset = s.reset || s.answered+s.resets == 0
			}
		case frameWindowUpdate:
			if len(f.payload) != 4 {
				break
			}
			n := int64(binary.BigEndian.Uint32(f.payload) & maxWindow)
			if f.stream == 0 {
				m.window += n
			} else if s != nil {
				s.window += n
			}
		case frameSettings:
			if f.has(flagAck) {
				if !m.acked && len(f.payload) == 0 {
					m.acked = true
					for _, s := range m.streams {
						s.receive -= defaultWindow - streamWindow
					}
				}
				break
			}
			for p := f.payload; len(p) >= settingBytes && len(f.payload)%settingBytes == 0; p = p[settingBytes:] {
				if binary.BigEndian.Uint16(p) == settingInitialWindowSize {
					to := int64(binary.BigEndian.Uint32(p[2:]))
					for _, s := range m.streams {
						s.window += to - m.initial
					}
					m.initial = to
				}
			}
		}
	}
}

// check checks the output against the model.
func (m *model) check() {
	m.t.Helper()
	for m.read < len(m.out) {
		n := frameHeaderBytes + frameBytes(m.out[m.read:])
		f := parseFrame(m.out[m.read : m.read+n])
		m.read += n
		s := m.streams[f.stream]
		if s == nil && f.stream != 0 && !m.changed {
			m.t.Fatalf("%v on stream %d, which is idle", f.frameType, f.stream)
		}
		switch f.frameType { //nolint:exhaustive // as above
		case frameData:
			if s == nil {
				break
			}
			m.window -= int64(len(f.payload))
			s.window -= int64(len(f.payload))
			if m.window < 0 || s.window < 0 || len(f.payload) == 0 {
				m.t.Fatalf("%d bytes of DATA leave a window of %d, and of %d of the connection", len(f.payload), s.window, m.window)
			}
			m.checkAlive(f.stream, s)
		case frameHeaders:
			if s != nil {
				m.checkAlive(f.stream, s)
				if s.headed && !f.has(flagEndStream) {
					m.t.Fatalf("stream %d gets the headers of a second reply", f.stream)
				}
				s.headed = s.headed || !f.has(flagEndStream)
			}
		case frameRSTStream:
			code := Code(binary.BigEndian.Uint32(f.payload))
			if s == nil {
				break
			}
			s.resets++
			if !m.changed && code != CodeNo && code != CodeCancel && code != CodeRefusedStream || s.resets > 1 && !m.changed {
				m.t.Fatalf("stream %d was reset %d times, the last time with code %d", f.stream, s.resets, code)
			}
		case framePing:
			m.receivePing(&f)
		case frameWindowUpdate:
			n := int64(binary.BigEndian.Uint32(f.payload))
			if f.stream == 0 {
				m.receive += n
			} else if s != nil {
				s.receive += n
			}
		}
		if s != nil && (f.frameType == frameData || f.frameType == frameHeaders) && f.has(flagEndStream) {
			s.answered++
		}
	}
	c := m.conn
	for _, waits := range c.send.queue {
		if s := m.streams[waits.id]; s != nil && min(s.window, m.window) > 0 && m.err == nil {
			m.t.Fatalf("the reply of stream %d waits, with a window of %d, and of %d of the connection", waits.id, s.window, m.window)
		}
	}
	for id, s := range m.streams {
		if ours := c.find(id); ours != nil && ours.receiveWindow != s.receive && !m.changed && m.err == nil {
			m.t.Fatalf("stream %d has a window of %d, and its client knows of %d", id, ours.receiveWindow, s.receive)
		}
	}
	for id, s := range m.streams {
		if k := s.streaming; k.open() && k.pieces != nil && k.pieces.waits && k.reported == k.sent && m.err == nil {
			m.t.Fatalf("stream %d: mark %d was not sent after the data before it", id, k.pieces.newest)
		}
	}
	if m.err == nil {
		c.checkCounts(m.t.(*testing.T))
	}
	checkTable(m.t.(*testing.T), &c.decoder.table)
	replies := prefixBytes + len(modelReply(255))
	for _, s := range m.streams {
		if s.answered+s.resets == 0 && !s.reset {
			replies += s.laterBytes
			if s.streaming != nil {
				replies += s.streaming.sent + 100 // its trailers
			}
		}
	}
	if most := c.server.MaxMemoryBytes(replies); c.MemoryBytes() > most || c.Buffered() < 0 {
		m.t.Fatalf("%d bytes are used, more than %d; %d are buffered", c.MemoryBytes(), most, c.Buffered())
	}
	if c.OpenStreams() > testLimits.MaxStreams {
		m.t.Fatalf("%d streams are open", c.OpenStreams())
	}
	if e, ok := m.err.(*ConnError); ok && !m.changed && e.Code != CodeEnhanceYourCalm { //nolint:errorlint // it is never wrapped
		m.t.Fatalf("the connection ended: %v", m.err)
	}
}

// checkAlive fails the test if a stream has ended.
func (m *model) checkAlive(id uint32, s *modelStream) {
	m.t.Helper()
	if s.answered+s.resets > 0 || s.reset {
		m.t.Fatalf("an answer of stream %d, which has ended: %+v", id, s)
	}
}

// answerPending answers a pending call.
func (m *model) answerPending(well bool) {
	if len(m.pending) == 0 {
		return
	}
	at := m.pick(len(m.pending))
	id := m.pending[at]
	m.pending = slices.Delete(m.pending, at, at+1)
	m.streams[id].later = false
	message := modelReply(m.pick(250))
	m.streams[id].laterBytes = prefixBytes + len(message)
	m.perform(func(c *client) {
		if well {
			c.out = c.conn.Reply(c.out, id, message)
		} else {
			c.out = c.conn.Fail(c.out, id, Status{Code: 14, Message: "in vain"})
		}
	})
}

// closeAndCheck completes everything that is pending, and checks that each stream has ended.
func (m *model) closeAndCheck() {
	if m.err == nil && m.conn.block.stream == 0 {
		m.next = func(int) int { return -1 } // no further changes
		for len(m.pending) > 0 {
			m.answerPending(true)
		}
		if m.window < maxWindow {
			m.must(m.WriteWindowUpdate(0, uint32(maxWindow-max(0, m.window))))
			m.frame()
		}
		begun := slices.Sorted(maps.Keys(m.streams))
		for _, id := range begun {
			if s := m.streams[id]; m.err == nil && s.window < 1<<20 && s.answered+s.resets == 0 {
				m.must(m.WriteWindowUpdate(id, 1<<20))
				m.frame()
			}
		}
		for _, id := range begun {
			if k := m.streams[id].streaming; k.open() && m.err == nil {
				m.finishStreaming(k)
			}
		}
		m.perform(func(c *client) {
			c.now += time.Hour
			c.out = c.conn.ResetOverdue(c.out, c.now)
		})
		if m.err == nil && (m.conn.OpenStreams() != 0 || m.conn.Buffered() != 0 || m.conn.receive.usedSlots != 0 || len(m.conn.receive.slotQueue) != 0) {
			m.t.Fatalf("in the end, %d streams are open, %d bytes buffered, %d slots used, %d waited for",
				m.conn.OpenStreams(), m.conn.Buffered(), m.conn.receive.usedSlots, len(m.conn.receive.slotQueue))
		}
		for id, s := range m.streams {
			if m.err == nil && !m.changed && !m.drained && s.answered+s.resets == 0 && !s.reset {
				m.t.Fatalf("stream %d has no end: %+v", id, s)
			}
		}
	}
	m.conn.Close()
	if len(m.pending) > 0 {
		m.t.Fatalf("streams %d are neither answered nor cancelled", m.pending)
	}
}

// replay replays the steps in fragments of the given size.
func (m *model) replay(piece int) {
	c := newClient(m.t)
	c.in.Reset()
	c.conn.handler = plainHandler{c.handler}
	for _, step := range m.played {
		if step.action != nil {
			step.action(c)
		}
		for rest := step.bytes; len(rest) > 0 && c.err == nil; {
			n := min(piece, len(rest))
			c.in.Write(rest[:n])
			c.conn.lastBlock = lastBlock{} // which must not matter
			c.feed()
			rest = rest[n:]
		}
	}
	if !bytes.Equal(c.out, m.out) || (c.err == nil) != (m.err == nil) || m.err != nil && m.err.Error() != c.err.Error() {
		m.t.Fatalf("in fragments of %d bytes: %d bytes, %v; complete: %d bytes, %v", piece, len(c.out), c.err, len(m.out), m.err)
	}
}
