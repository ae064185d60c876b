package redis

import "bytes"

// Slots is the number of slots of a cluster.
const Slots = 1 << 14

// SlotOf returns the slot of a key: of the text between its first brace and the next closing one,
// if that is not empty, otherwise of the complete key.
func SlotOf(key []byte) uint16 {
	if tag, found := TagOf(key); found {
		key = tag
	}
	crc := uint16(0)
	for _, b := range key {
		crc = crc<<8 ^ crc16[byte(crc>>8)^b]
	}
	return crc % Slots
}

// TagOf returns the hash tag of a key.
func TagOf(key []byte) (tag []byte, found bool) {
	_, rest, found := bytes.Cut(key, []byte("{"))
	if !found {
		return nil, false
	}
	tag, _, found = bytes.Cut(rest, []byte("}"))
	return tag, found && len(tag) > 0
}

// crc16 is the table of the CRC that clusters use: the CCITT polynomial, most significant bit
// first.
var crc16 = func() (table [256]uint16) {
	for n := range table {
		crc := uint16(n) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[n] = crc
	}
	return table
}()
