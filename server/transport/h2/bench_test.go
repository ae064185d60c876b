package h2

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// BenchmarkCall measures the calls of an Envoy on a warm connection: all headers but the path are
// in the table.
func BenchmarkCall(b *testing.B) {
	const path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	c := newClient(b, func(o *Options) { o.Methods = []Method{{Path: path}} })
	c.conn.handler = constant{}
	c.must(c.WriteSettings())
	c.must(c.WriteSettingsAck())
	c.must(c.WriteWindowUpdate(0, maxWindow-defaultWindow))
	one := func(id uint32) {
		fields := request(path, "grpc-timeout", "20m", "x-envoy-internal", "true", "x-envoy-expected-rq-timeout-ms", "20")
		block := []byte{}
		for i := 0; i < len(fields); i += 2 {
			if fields[i] == ":path" {
				h := hpackLiteral(0x04, path)
				block = append(block, h...)
				continue
			}
			block = append(block, c.encode(fields[i], fields[i+1])...)
		}
		c.in.Write(appendFrameHeader(nil, len(block), frameHeaders, flagEndHeaders, id))
		c.in.Write(block)
		c.must(c.WriteData(id, true, grpcMessage("0123456789012345678901234567890123456789")))
	}
	one(1)
	c.feed()
	one(3)
	in := bytes.Clone(c.in.Bytes())
	data := len(in) - frameHeaderBytes - prefixBytes - 40
	id := uint32(3)
	out := make([]byte, 0, 1<<10)
	b.ReportAllocs()
	for b.Loop() {
		binary.BigEndian.PutUint32(in[5:], id)
		binary.BigEndian.PutUint32(in[data+5:], id)
		if out, _, _, c.err = c.conn.Feed(out[:0], in, c.now); c.err != nil {
			b.Fatal(c.err)
		}
		if id += 2; id > 1<<30 {
			id = 5
			c.conn.lastStream = 3
		}
	}
}

// hpackLiteral returns a literal without indexing, with an indexed name and a Huffman-coded value.
func hpackLiteral(index byte, value string) []byte {
	coded := hpack.AppendHuffmanString(nil, value)
	return append([]byte{index, 0x80 | byte(len(coded))}, coded...)
}
