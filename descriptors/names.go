package descriptors

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/limiter"
)

// A Namer names the counters of a store, so that several processes find the same ones. It is
// immutable.
//
// A name is the prefix, `s1{`, 22 characters, `}`, a letter for the algorithm, the window in
// seconds, and the sub-windows of a sliding window. The characters are 128 bits of SHA-256 over the
// secret, the domain and the entries in base64url: the store contains no client values, and without
// the secret nobody can construct a collision. The braces place all limits of a descriptor in one
// slot of a cluster. `s1` is the version of the names and of the values.
//
//	s1{KvY7BUwC8IIbEg4lu7ekBg}f60_     fixed window; the store adds its start, Unix seconds
//	s1{KvY7BUwC8IIbEg4lu7ekBg}r60.10   sliding window of 10 sub-windows
//	s1{KvY7BUwC8IIbEg4lu7ekBg}l600     sliding log
//	s1{KvY7BUwC8IIbEg4lu7ekBg}t60      token bucket
//	s1{KvY7BUwC8IIbEg4lu7ekBg}k1       leaky bucket
//	s1{KvY7BUwC8IIbEg4lu7ekBg}sk1      the same of a candidate, with a further s for each like it before
type Namer struct {
	prefix []byte // the operator's prefix and exactMark
	seed   []byte // the secret as the hash's first part
	// ratelimit is the prefix of envoyproxy/ratelimit's names, or nil if these are not used.
	ratelimit []byte
}

// exactMark follows the prefix in the names of [NewNamer], which are called exact.
const exactMark = "s1{"

// NewNamer returns a Namer with the given prefix. Processes that share counters need the same
// secret, which may be empty.
//
// The hash covers a list of byte strings, each preceded by its length as a varint: the secret, the
// domain, and each entry's key and value, or the name of a shared counter.
func NewNamer(prefix string, secret []byte) *Namer {
	return &Namer{prefix: append([]byte(prefix), exactMark...), seed: appendPart(nil, secret)}
}

// NewRatelimitNamer returns a Namer that uses envoyproxy/ratelimit's names for counters for which
// they are unambiguous, and the names of [NewNamer] for others. prefix is envoyproxy/ratelimit's
// CACHE_KEY_PREFIX. Rules need [Options.RatelimitNames].
func NewRatelimitNamer(prefix string, secret []byte) *Namer {
	n := NewNamer(prefix, secret)
	n.ratelimit = append([]byte{}, prefix...)
	return n
}

// Name sets p.Names to the names of p's charges. p was planned for req. It allocates nothing once p
// has grown.
func (n *Namer) Name(p *Plan, req *Request) {
	p.Names = p.Names[:0]
	p.nameBytes = p.nameBytes[:0]
	for i := range p.Matches {
		m := &p.Matches[i]
		if m.Count == 0 {
			continue
		}
		if n.ratelimit != nil && n.asRatelimit(p, i, req) {
			continue
		}
		rule := m.Rule
		if m.override != nil {
			rule = nil
		}
		sum := n.sum(p, req.Domain, req.Descriptors[i].Entries, rule)
		for c := m.First; c < m.First+m.Count; c++ {
			n.name(p, req.Domain, c, sum[:16])
		}
	}
	for _, c := range p.Candidates {
		sum := n.sum(p, req.Domain, req.Descriptors[c.Match].Entries, p.Matches[c.Match].Rule)
		n.name(p, req.Domain, c.Charge, sum[:16])
	}
}

// name appends the name of charge c of a descriptor with the given sum.
func (n *Namer) name(p *Plan, domain []byte, c int, sum []byte) {
	if shared := p.Limits[c].counter; shared != nil { // one part, where a descriptor has two for each entry
		p.hashed = appendPart(appendPart(append(p.hashed[:0], n.seed...), domain), []byte(shared.name))
		own := sha256.Sum256(p.hashed)
		sum = own[:16]
	}
	from := len(p.nameBytes)
	b := p.nameBytes
	b = append(b, n.prefix...)
	b = base64.RawURLEncoding.AppendEncode(b, sum)
	b, _ = rules.AppendKind(appendCandidate(append(b, '}'), p.Limits[c]), p.Batch.Charges[c].Policy)
	p.Names = append(p.Names, b[from:len(b):len(b)])
	p.nameBytes = b
}

// appendCandidate appends the mark of a candidate's names.
func appendCandidate(dst []byte, l *Limit) []byte {
	if l.Candidate {
		return append(append(dst, 's'), strings.Repeat("s", int(l.nth))...)
	}
	return dst
}

// NameSum is the hash of a counter's domain and entries in a name of [NewNamer].
type NameSum [22]byte

// Sum returns the hash in a name. ok is false for a name of envoyproxy/ratelimit, which has none.
func (n *Namer) Sum(name []byte) (sum NameSum, ok bool) {
	text, ok := bytes.CutPrefix(name, n.prefix)
	ok = ok && copy(sum[:], text) == len(sum)
	return sum, ok
}

// Named returns the name of a counter with the given hash and policy, of an active limit.
func (n *Namer) Named(sum NameSum, p *limiter.Policy) []byte {
	name, _ := rules.AppendKind(append(append(append([]byte{}, n.prefix...), sum[:]...), '}'), p)
	return name
}

// sum hashes a descriptor's entries as the counters of a rule distinguish them, or as sent if rule
// is nil.
func (n *Namer) sum(p *Plan, domain []byte, entries []Entry, rule *Rule) [sha256.Size]byte {
	var shared [][]byte
	if rule != nil {
		shared = rule.optionalOrZero().shared
	}
	var buf [maxCounted]byte
	b := p.hashed[:0]
	b = append(b, n.seed...)
	b = appendPart(b, domain)
	for i := range entries {
		value := entries[i].Value
		if shared != nil && shared[i] != nil {
			value = shared[i]
		} else if rule != nil {
			value = rule.counted(buf[:], i, value, sharedMark)
		}
		b = appendPart(appendPart(b, entries[i].Key), value)
	}
	p.hashed = b
	return sha256.Sum256(b)
}

func appendPart(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}
