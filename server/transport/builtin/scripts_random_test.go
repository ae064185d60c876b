package builtin

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestRandomScripts plays random scripts at once and in pieces. A seed that fails is played again by its name, with -run.
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

// FuzzScripts plays scripts that are made of its input.
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

// playAtRandom plays so many steps. pick returns a number below its argument.
func playAtRandom(t *testing.T, steps int, pick func(n int) int) {
	t.Helper()
	s := newScript(t)
	s.begin()
	g := &generator{script: s, pick: pick, next: 1}
	for range steps {
		g.step()
	}
	s.wait(2 * time.Minute) // until whoever waits has been answered
	s.transcript(t)
}

// generator writes a script of random steps, most of which keep the rules.
type generator struct {
	*script
	pick  func(n int) int
	next  uint32 // the next stream's number
	pings int
}

// oddFields are what headers may have beside or in place of the ordinary ones.
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

func (g *generator) headers(end bool) (stream uint32) {
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
	g.script.headers(stream, end, ordinary(odd...)...)
	return stream
}

// stream picks one that has begun, most often a late one.
func (g *generator) stream() uint32 {
	if g.next == 1 {
		g.headers(false)
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

// one is a message for a stream.
func (g *generator) one(stream uint32) []byte {
	for _, f := range g.requests[stream].fields {
		switch f {
		case hpack.HeaderField{Name: ":path", Value: watchPath}:
			return g.watch("")
		case hpack.HeaderField{Name: ":path", Value: reflectPath}:
			return g.question(len(g.steps)%2 == 0)
		}
	}
	return g.simple(stream)
}

// message is the whole of one, or a part, or more.
func (g *generator) message(stream uint32) []byte {
	one := g.one(stream)
	switch g.pick(12) {
	case 1:
		return one[:g.pick(len(one))]
	case 2:
		return append(one, one[:1+g.pick(len(one))]...)
	case 3:
		return prefixed(1, zipped(one[5:]))
	case 4:
		return prefixed(byte(g.pick(3)), nil)
	case 5:
		return prefixed(0, make([]byte, g.pick(3000)))
	case 6:
		return nil
	}
	return one
}

func (g *generator) step() {
	switch g.pick(24) {
	case 0, 1, 2, 3:
		id := g.headers(false)
		g.data(id, true, g.message(id))
	case 4, 5:
		g.script.headers(g.next, false, ordinary("grpc-timeout", "90S")...)
		g.data(g.next, true, held(g.tb))
		g.next += 2
	case 6, 7:
		g.headers(g.pick(3) == 0)
	case 8, 9, 10:
		if id := g.stream(); !g.requests[id].ended || g.pick(9) == 0 {
			g.data(id, g.pick(2) == 0, g.message(id))
		}
	case 11, 12:
		if id := g.stream(); !g.requests[id].ended {
			g.data(id, g.pick(2) == 0, g.one(id)[g.pick(5):])
		}
	case 13, 14:
		g.frame(g.write.WriteRSTStream(g.stream(), http2.ErrCode(g.pick(14))))
	case 15:
		g.update(0, uint32(1+g.pick(1000)))
	case 16, 17:
		g.update(g.stream(), uint32(1+g.pick(40)))
	case 18, 19:
		g.frame(g.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: []uint32{0, 1, 20, 1000, 1 << 16}[g.pick(5)]}))
	case 20:
		g.frame(g.write.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(g.pick(5000))}))
	case 21:
		if g.pings++; g.pings < 3 {
			g.frame(g.write.WritePing(false, [8]byte{byte(g.pings)}))
		}
	case 22:
		g.frame(g.write.WritePriority(g.stream(), http2.PriorityParam{StreamDep: uint32(g.pick(9)), Weight: 7}))
	case 23:
		switch g.pick(4) {
		case 0:
			g.script.headers(g.stream(), g.pick(2) == 0, fields("x", "y")...)
		case 1:
			g.frame(g.write.WriteGoAway(0, http2.ErrCodeNo, nil))
		case 2:
			g.frame(g.write.WriteRawFrame(http2.FrameType(10+g.pick(200)), http2.Flags(g.pick(256)), uint32(g.pick(9)), make([]byte, g.pick(30))))
		case 3:
			g.wait(time.Duration(g.pick(3)) * time.Second)
		}
	}
}
