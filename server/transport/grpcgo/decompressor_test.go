package grpcgo

import (
	"bytes"
	"compress/gzip"
	"testing"
)

// TestDecompressorTakesTickets is TestLargeCompressedRequestsTakeTickets for what grpc-go decompresses by.
func TestDecompressorTakesTickets(t *testing.T) {
	d := newDecompressor(1 << 20)
	for range cap(d.tickets) {
		d.tickets <- struct{}{}
	}
	if got, err := d.Do(bytes.NewReader(zipped([]byte("small")))); string(got) != "small" || err != nil {
		t.Errorf("a small message becomes %q, %v", got, err)
	}
	type result struct {
		message []byte
		err     error
	}
	over := make(chan result, 1)
	large := zipped(make([]byte, 1<<20))
	go func() {
		message, err := d.Do(bytes.NewReader(large))
		over <- result{message, err}
	}()
	select {
	case got := <-over:
		t.Errorf("a large message becomes %d bytes, %v, though there is no ticket", len(got.message), got.err)
	default:
	}
	for range cap(d.tickets) {
		<-d.tickets
	}
	if got := <-over; len(got.message) != 1<<20 || got.err != nil {
		t.Errorf("a large message becomes %d bytes, %v", len(got.message), got.err)
	}
	if got, err := d.Do(bytes.NewReader(zipped(make([]byte, 1<<20+1)))); len(got) != 1<<20+1 || err != nil {
		t.Errorf("one that is too large becomes %d bytes, %v, want one too many", len(got), err)
	}
	if _, err := d.Do(bytes.NewReader(large[:len(large)-1])); err == nil {
		t.Error("a message without its end is one")
	}
	if len(d.tickets) != 0 {
		t.Errorf("%d tickets are held in the end", len(d.tickets))
	}
}

// zipped is what gzip makes of a message.
func zipped(message []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(message) // of a buffer
	_ = w.Close()
	return b.Bytes()
}
