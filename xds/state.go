package xds

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

// state is what came of the responses so far, over all streams.
type state struct {
	opt    descriptors.Options
	onLoad func(descriptors.Update) error
	// version is that of the rules in force, "" before the first.
	version string
	// inForce is the last good outcome, reported the last one of either kind: what
	// a server sends again, on a new stream or after a NACK, is not news.
	inForce, reported outcome
}

// outcome is an Update with what it was made of.
type outcome struct {
	sum    [sha256.Size]byte
	update descriptors.Update
}

// take puts the resources of a response in force, or returns every reason why not.
func (s *state) take(version string, resources []*anypb.Any) error {
	sum := hash(resources)
	if s.reported.known() && sum == s.reported.sum {
		if s.reported.update.Err == nil {
			s.version = version
		}
		return s.reported.update.Err
	}
	o := outcome{sum: sum}
	if s.inForce.known() && sum == s.inForce.sum {
		o = s.inForce // back from resources that were refused
	} else {
		o.update.Set, o.update.Diagnostics = build(resources, s.opt)
		o.update.Err = o.update.Diagnostics.Err()
	}
	if err := s.onLoad(o.update); o.update.Err == nil && err != nil {
		o.update.Set, o.update.Err = nil, err
	}
	s.reported = o
	if o.update.Err == nil {
		s.inForce, s.version = o, version
	}
	return o.update.Err
}

func (o *outcome) known() bool { return o.update.Set != nil || o.update.Err != nil }

// hash returns a sum of the resources, in whatever order they came.
func hash(resources []*anypb.Any) [sha256.Size]byte {
	sums := make([][sha256.Size]byte, len(resources))
	for i, r := range resources {
		h := sha256.New()
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(r.GetTypeUrl())))) // so that parts cannot shift
		h.Write([]byte(r.GetTypeUrl()))
		h.Write(r.GetValue())
		h.Sum(sums[i][:0])
	}
	slices.SortFunc(sums, func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	all := sha256.New()
	for i := range sums {
		all.Write(sums[i][:])
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// maxDetail bounds the text of a NACK well below what a gRPC server takes by
// default, 4 MiB.
const maxDetail = 1 << 20

// refusal is the text of a NACK.
func refusal(err error) string {
	text := err.Error()
	if len(text) > maxDetail {
		whole := text[:strings.LastIndexByte(text[:maxDetail], '\n')+1]
		text = fmt.Sprintf("%sand %d more errors", whole, strings.Count(text[len(whole):], "\n")+1)
	}
	return strings.ToValidUTF8(text, "?")
}
