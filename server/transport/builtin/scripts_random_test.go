package builtin

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestRandomScripts plays random scripts, in one piece and in fragments. A failing seed can be
// repeated with -run and its name.
func TestRandomScripts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			playAtRandom(t, 40, r.IntN)
		})
	}
}

// FuzzScripts plays scripts generated from its input.
func FuzzScripts(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		var seed []byte
		for range 100 {
			seed = append(seed, byte(r.IntN(256)))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		next := func(n int) int {
			if len(input) == 0 {
				return 0
			}
			b := int(input[0])
			input = input[1:]
			return b % n
		}
		playAtRandom(t, 60, func(n int) int {
			if n > 256 {
				return (next(256)<<8 | next(256)) % n
			}
			return next(n)
		})
	})
}

// playAtRandom plays the given number of random steps. pick returns a number below its argument.
func playAtRandom(t *testing.T, steps int, pick func(n int) int) {
	t.Helper()
	s := newScript(t)
	s.begin()
	g := &generator{script: s, pick: pick, next: 1}
	for range steps {
		g.addStep()
	}
	s.addWait(2 * time.Minute) // until delayed replies were sent
	s.transcript(t)
}

// generator generates a script of random steps, most of which are valid.
type generator struct {
	*script
	pick  func(n int) int
	next  uint32 // the next stream's number
	pings int
}

// oddFields are unusual fields, added to the ordinary ones or replacing them.
var oddFields = []hpack.HeaderField{
	{Name: ":method", Value: "GET"},
	{Name: ":method", Value: left},
	{Name: ":scheme", Value: left},
	{Name: ":path", Value: healthPath},
	{Name: ":path", Value: "/x/y"},
	{Name: ":path", Value: "x"},
	{Name: ":authority", Value: left},
	{Name: "host", Value: "other"},
	{Name: "content-type", Value: left},
	{Name: "content-type", Value: "application/grpc+proto"},
	{Name: "content-type", Value: "text/html"},
	{Name: "te", Value: left},
	{Name: "te", Value: "gzip"},
	{Name: "connection", Value: "close"},
	{Name: "grpc-timeout", Value: "60S"},
	{Name: "grpc-timeout", Value: "0n"},
	{Name: "grpc-timeout", Value: "1"},
	{Name: "grpc-encoding", Value: "gzip"},
	{Name: "grpc-encoding", Value: "identity"},
	{Name: "grpc-encoding", Value: "br"},
	{Name: "x-bin", Value: "AA=="},
	{Name: "x-bin", Value: "!"},
	{Name: "x", Value: "a\x01"},
	{Name: "x", Value: "a\n"},
	{Name: "X", Value: "y"},
	{Name: "x", Value: "é"},
	{Name: "cookie", Value: "a=b"},
	{Name: "traceparent", Value: "00-1-2-3"},
	{Name: "user-agent", Value: "u", Sensitive: true},
}

func (g *generator) addHeaders(end bool) (stream uint32) {
	stream = g.next
	kind := g.pick(20)
	g.next += uint32(2 * (1 + kind/19))
	var odd []string
	switch kind {
	case 17:
		odd = []string{":path", watchPath}
	case 18:
		odd = []string{":path", reflectPath}
	}
	for range max(0, g.pick(6)-3) {
		f := oddFields[g.pick(len(oddFields))]
		odd = append(odd, f.Name, f.Value)
	}
	g.script.addHeaders(stream, end, requestFields(odd...)...)
	return stream
}

// randomStream returns an opened stream, most often a recent one.
func (g *generator) randomStream() uint32 {
	if g.next == 1 {
		g.addHeaders(false)
	}
	back := uint32(g.pick(4))
	for id := g.next; id > 1; {
		id -= 2
		if g.requests[id] != nil {
			if back == 0 || id == 1 {
				return id
			}
			back--
		}
	}
	return 1
}

// randomRequest returns a message for a stream.
func (g *generator) randomRequest(stream uint32) []byte {
	for _, f := range g.requests[stream].fields {
		switch f {
		case hpack.HeaderField{Name: ":path", Value: watchPath}:
			return g.addWatch("")
		case hpack.HeaderField{Name: ":path", Value: reflectPath}:
			return g.reflectionRequest(len(g.steps)%2 == 0)
		}
	}
	return g.addSimpleCall(stream)
}

// randomMessage returns a complete message, a part of one, or more than one.
func (g *generator) randomMessage(stream uint32) []byte {
	one := g.randomRequest(stream)
	switch g.pick(12) {
	case 1:
		return one[:g.pick(len(one))]
	case 2:
		return append(one, one[:1+g.pick(len(one))]...)
	case 3:
		return prefixed(1, one[5:])
	case 4:
		return prefixed(byte(g.pick(3)), nil)
	case 5:
		return prefixed(0, make([]byte, g.pick(3000)))
	case 6:
		return nil
	}
	return one
}

func (g *generator) addStep() {
	switch g.pick(24) {
	case 0, 1, 2, 3:
		id := g.addHeaders(false)
		g.addData(id, true, g.randomMessage(id))
	case 4, 5:
		g.script.addHeaders(g.next, false, requestFields("grpc-timeout", "90S")...)
		g.addData(g.next, true, delayedRequest(g.tb))
		g.next += 2
	case 6, 7:
		g.addHeaders(g.pick(3) == 0)
	case 8, 9, 10:
		if id := g.randomStream(); !g.requests[id].ended || g.pick(9) == 0 {
			g.addData(id, g.pick(2) == 0, g.randomMessage(id))
		}
	case 11, 12:
		if id := g.randomStream(); !g.requests[id].ended {
			g.addData(id, g.pick(2) == 0, g.randomRequest(id)[g.pick(5):])
		}
	case 13, 14:
		g.addFrame(g.write.WriteRSTStream(g.randomStream(), http2.ErrCode(g.pick(14))))
	case 15:
		g.addWindowUpdate(0, uint32(1+g.pick(1000)))
	case 16, 17:
		g.addWindowUpdate(g.randomStream(), uint32(1+g.pick(40)))
	case 18, 19:
		g.addFrame(g.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: []uint32{0, 1, 20, 1000, 1 << 16}[g.pick(5)]}))
	case 20:
		g.addFrame(g.write.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(g.pick(5000))}))
	case 21:
		if g.pings++; g.pings < 3 {
			g.addFrame(g.write.WritePing(false, [8]byte{byte(g.pings)}))
		}
	case 22:
		g.addFrame(g.write.WritePriority(g.randomStream(), http2.PriorityParam{StreamDep: uint32(g.pick(9)), Weight: 7}))
	case 23:
		switch g.pick(4) {
		case 0:
			g.script.addHeaders(g.randomStream(), g.pick(2) == 0, fields("x", "y")...)
		case 1:
			g.addFrame(g.write.WriteGoAway(0, http2.ErrCodeNo, nil))
		case 2:
			g.addFrame(g.write.WriteRawFrame(http2.FrameType(10+g.pick(200)), http2.Flags(g.pick(256)), uint32(g.pick(9)), make([]byte, g.pick(30))))
		case 3:
			g.addWait(time.Duration(g.pick(3)) * time.Second)
		}
	}
}
