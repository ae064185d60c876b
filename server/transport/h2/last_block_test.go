package h2

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sluice-ratelimit/sluice/internal/effort"
)

// TestLastBlock repeats blocks, with and without blocks in between that change the table. The
// result must be that of a connection without the cache.
func TestLastBlock(t *testing.T) {
	path := hpackLiteral(0x04, echoPath) // not indexed
	const (
		post      = "\x83\x86" // :method, :scheme: http
		authority = "\x01\x01a"
		grpc      = "\x0f\x10\x10application/grpc"
		timeout   = "\x00\x0cgrpc-timeout\x02"
	)
	plain := post + string(path) + authority + grpc
	blocks := []string{
		plain,
		plain + timeout + "1S",
		plain + timeout + "0S",
		plain + "\xbe",                       // the newest entry of the table
		plain + "\xbf",                       // the one before
		plain + "\x40\x0cgrpc-timeout\x021S", // inserts
		plain + "\x40\x0cgrpc-timeout\x020S",
		plain + "\x40\x01x\x01y",
		plain + "\x40\x0dgrpc-encoding\x02br",
		"\x20\x3f\xe1\x1f" + plain, // empties the table
		"\x3f\xe1\x1f" + plain,     // does not change its size
		post + "\x04\x02/x" + authority + grpc,
		post + "\x44\x02/y" + authority + grpc,
		plain + "\x0f\x02\x04gzip", // accept-encoding, by a static index
		post + string(path) + authority + grpc + "\x00\x0dgrpc-encoding\x04gzip",
		post + string(path) + grpc,      // no authority
		post + string(path) + authority, // no content type
		plain + "\x00\x05x-bin\x01!",
		plain + "\x00\x01X\x01y", // malformed
		"\xbe" + plain,
	}
	for seed := range uint64(effort.Times(t, 20)) {
		r := rand.New(rand.NewPCG(seed, 5))
		same, decodes := newReadyClient(t), newReadyClient(t)
		recalled := 0
		last := 0
		for id := uint32(1); id < 300 && same.err == nil; id += 2 {
			if r.IntN(3) == 0 {
				last = r.IntN(len(blocks))
			}
			hit := same.conn.lastBlock
			for _, c := range []*client{same, decodes} {
				decodes.conn.lastBlock = lastBlock{}
				c.conn.glitches.left = maxGlitches // not tested here
				c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, BlockFragment: []byte(blocks[last])}))
				c.must(c.WriteData(id, true, grpcMessage("hello")))
				c.feed()
			}
			if string(hit.bytes) == blocks[last] && hit.table == same.conn.lastBlock.table {
				recalled++
			}
			if string(same.out) != string(decodes.out) || fmt.Sprint(same.err) != fmt.Sprint(decodes.err) || fmt.Sprint(same.handler.calls) != fmt.Sprint(decodes.handler.calls) {
				t.Fatalf("seed %d, stream %d, block %q:\n%q, %v, want\n%q, %v", seed, id, blocks[last], same.out, same.err, decodes.out, decodes.err)
			}
		}
		if same.err == nil && recalled == 0 {
			t.Errorf("seed %d: no block was the same", seed)
		}
	}
}
