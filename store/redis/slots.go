package redis

import "bytes"

// Slots is how many a cluster has.
const Slots = 1 << 14

// SlotOf returns the slot of a key: of what stands between its first brace and the next closing one,
// if that is anything, else of the whole.
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

// TagOf returns what alone says the slot of a key.
func TagOf(key []byte) (tag []byte, found bool) {
	_, rest, found := bytes.Cut(key, []byte("{"))
	if !found {
		return nil, false
	}
	tag, _, found = bytes.Cut(rest, []byte("}"))
	return tag, found && len(tag) > 0
}

// crc16 is the table of the CRC that clusters use: CCITT's polynomial, from the high bit on.
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
