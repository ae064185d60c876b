package grpcgo

import (
	"bytes"
	"errors"
	"io"
	"runtime"

	_ "google.golang.org/grpc/encoding/gzip" // for replies

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// decompressor decompresses for grpc-go, which otherwise has each call inflate a message of 4 MiB at the same
// time. Its methods may be called concurrently.
type decompressor struct {
	most    int
	tickets chan struct{}
}

func newDecompressor(most int) decompressor {
	return decompressor{most, make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Type implements [grpc.Decompressor].
func (decompressor) Type() string { return transport.Gzip }

// Do implements [grpc.Decompressor]. Of a message that is too large it returns one byte more than it may
// have: grpc-go gives it the status of that.
func (d decompressor) Do(r io.Reader) ([]byte, error) {
	begin := make([]byte, mostOfSmall+1)
	n, err := io.ReadFull(r, begin)
	var z *transport.Inflater
	switch err {
	case nil:
		err = transport.ErrNotSmall
	case io.EOF, io.ErrUnexpectedEOF: //nolint:errorlint // they are as io has them
		z, err = transport.InflateFreely(begin[:n], d.most)
	}
	if errors.Is(err, transport.ErrNotSmall) {
		d.tickets <- struct{}{}
		defer func() { <-d.tickets }()
		z, err = d.large(begin[:n], r)
	}
	switch {
	case errors.Is(err, transport.ErrInflatedTooLarge):
		return make([]byte, d.most+1), nil
	case err != nil:
		return nil, err
	}
	defer z.Release()
	return bytes.Clone(z.Out), nil
}

// large inflates a message whose beginning was read.
func (d decompressor) large(begin []byte, r io.Reader) (*transport.Inflater, error) {
	rest, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return transport.InflateLarge(append(begin, rest...), d.most, func(int) { transport.Park() })
}

// mostOfSmall is how many bytes a message has, before it is inflated, that a call takes before its ticket.
const mostOfSmall = 1 << 10
