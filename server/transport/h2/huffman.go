package h2

import (
	"encoding/binary"
	"strings"

	"golang.org/x/net/http2/hpack"
)

const (
	huffmanEOS  = 256 // the last symbol
	maxCodeBits = 30
	lookupBits  = 12 // index size of the table
	maxSymbols  = 2  // per table entry
)

// huffmanEntry is the decoding of lookupBits bits.
type huffmanEntry struct {
	symbols [maxSymbols]byte
	count   uint8 // number of complete symbols; 0: the first code is longer
	bits    uint8 // total length of their codes
}

// huffman decodes with a table of 12 bits and up to two symbols. The path of a call, 43 bytes,
// takes 135 ns; with the table of x/net, of 8 bits and one symbol, 340.
var huffman = newHuffman()

type huffmanDecoder struct {
	table [1 << lookupBits]huffmanEntry
	// The codes of n bits begin at first[n]; their symbols are symbols[at[n]:].
	first, at [maxCodeBits + 1]uint32
	symbols   [257]uint16 // in the order of their codes
}

// newHuffman returns a decoder of the code of RFC 7541, appendix B. The code is canonical: codes of
// the same length are consecutive in the order of their symbols, and longer codes follow shorter
// ones. So the lengths determine the codes.
func newHuffman() *huffmanDecoder {
	h := new(huffmanDecoder)
	lengths := [huffmanEOS + 1]uint64{huffmanEOS: maxCodeBits}
	for symbol := range huffmanEOS {
		lengths[symbol] = hpack.HuffmanEncodeLength(strings.Repeat(string([]byte{byte(symbol)}), 8)) // bytes of 8 codes
	}
	code := uint32(0)
	n := uint32(0)
	for bits := uint64(1); bits <= maxCodeBits; bits++ {
		code <<= 1
		h.first[bits] = code
		h.at[bits] = n
		for symbol, length := range lengths {
			if length == bits {
				h.symbols[n] = uint16(symbol)
				n++
				code++
			}
		}
	}
	for i := range h.table {
		e := &h.table[i]
		rest := uint32(i) << (maxCodeBits - lookupBits)
		for e.count < maxSymbols {
			symbol, bits := h.decodeLong(rest << e.bits & (1<<maxCodeBits - 1))
			if e.bits+bits > lookupBits {
				break
			}
			e.symbols[e.count] = byte(symbol) //nolint:gosec // EOS has more bits
			e.count++
			e.bits += bits
		}
	}
	return h
}

// decodeLong decodes the first code of 30 bits.
func (h *huffmanDecoder) decodeLong(code uint32) (symbol uint16, bits uint8) {
	for bits = 5; ; bits++ { // the shortest code has 5 bits
		prefix := code >> (maxCodeBits - bits)
		n := uint32(len(h.symbols)) - h.at[bits]
		if bits < maxCodeBits {
			n = h.at[bits+1] - h.at[bits]
		}
		if prefix-h.first[bits] < n {
			return h.symbols[h.at[bits]+prefix-h.first[bits]], bits
		}
	}
}

// append appends the decoding of src, and reports whether src is valid: RFC 7541, section 5.2.
func (h *huffmanDecoder) append(dst, src []byte) ([]byte, bool) {
	var acc uint64 // the low have bits are next
	have := 0
	for {
		switch {
		case have >= maxCodeBits:
		case len(src) >= 4:
			acc = acc<<32 | uint64(binary.BigEndian.Uint32(src))
			have += 32
			src = src[4:]
		default:
			for _, b := range src {
				acc = acc<<8 | uint64(b)
				have += 8
			}
			src = nil
		}
		if have < lookupBits {
			return h.appendLast(dst, acc, have)
		}
		e := &h.table[acc>>(have-lookupBits)&(1<<lookupBits-1)]
		switch {
		case e.count > 0:
			dst = append(dst, e.symbols[:e.count]...)
			have -= int(e.bits)
		case have < maxCodeBits:
			return h.appendLast(dst, acc, have)
		default:
			symbol, bits := h.decodeLong(uint32(acc >> (have - maxCodeBits) & (1<<maxCodeBits - 1)))
			if symbol == huffmanEOS {
				return dst, false
			}
			dst = append(dst, byte(symbol)) //nolint:gosec // it is not EOS
			have -= int(bits)
		}
	}
}

// appendLast decodes the last bits of a string, which are fewer than maxCodeBits.
func (h *huffmanDecoder) appendLast(dst []byte, acc uint64, have int) ([]byte, bool) {
	for have > 0 {
		// Padding consists of ones, the beginning of EOS.
		missing := maxCodeBits - have
		symbol, bits := h.decodeLong(uint32(acc<<missing&(1<<maxCodeBits-1) | (1<<missing - 1))) //nolint:gosec // 30 bits
		if int(bits) > have {
			break
		}
		dst = append(dst, byte(symbol)) //nolint:gosec // EOS has more bits than there are
		have -= int(bits)
	}
	ones := uint64(1)<<have - 1
	return dst, have < 8 && acc&ones == ones
}
