package h2

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// TestHuffmanSymbols decodes every pair of symbols, so that every symbol follows every other one, and
// codes end at every bit of a byte.
func TestHuffmanSymbols(t *testing.T) {
	for a := range 256 {
		for b := range 256 {
			for _, want := range [][]byte{{byte(a)}, {byte(a), byte(b)}, {byte(a), byte(b), byte(a), 'x'}} {
				coded := hpack.AppendHuffmanString(nil, string(want))
				if got, ok := huffman.append(nil, coded); !ok || !bytes.Equal(got, want) {
					t.Fatalf("%x decodes to %x, %v, want %x", coded, got, ok, want)
				}
			}
		}
	}
}

func TestHuffmanRejects(t *testing.T) {
	for name, coded := range map[string][]byte{
		"EOS":                      {0xff, 0xff, 0xff, 0xff},
		"EOS after a symbol":       {0b00000_111, 0xff, 0xff, 0xff, 0xff, 0xff},
		"padding that is not ones": {0b00000_110},
		"padding of zeros":         {0b101001_00},
		"too much padding":         {0b00000_111, 0xff},
		"only padding, of a byte":  {0xff},
	} {
		if got, ok := huffman.append(nil, coded); ok {
			t.Errorf("%s: %x decodes to %q, want an error", name, coded, got)
		}
	}
	if got, ok := huffman.append(nil, nil); !ok || len(got) != 0 {
		t.Errorf("an empty string decodes to %q, %v", got, ok)
	}
}

// FuzzHuffman compares the decoder with x/net.
func FuzzHuffman(f *testing.F) {
	f.Add([]byte("\x00"))
	f.Add(hpack.AppendHuffmanString(nil, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"))
	f.Add(hpack.AppendHuffmanString(nil, "\x00\xff\x80\n"))
	f.Fuzz(func(t *testing.T, coded []byte) {
		got, ok := huffman.append([]byte("before"), coded)
		var want bytes.Buffer
		_, err := hpack.HuffmanDecode(&want, coded)
		if ok != (err == nil) || ok && string(got) != "before"+want.String() {
			t.Errorf("%x decodes to %q, %v, want %q, %v as in x/net", coded, got, ok, want.String(), err)
		}
	})
}
