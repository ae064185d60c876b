package simulate

import "github.com/sluice-ratelimit/sluice/limiter/identity"

// key has the statistics of one counter of a limit, such as that of one client.
type key struct {
	id identity.ID
	// over counts the hits over the limit.
	hits, over uint64
	// demand is the number of hits requested in the current window, and peak the maximum of any
	// window.
	demand, peak uint64
	window       uint32
	limit        int32
	// name is the index of its values in keys.texts, from 1, or without --show-values a hash of
	// them, which is the same for all limits of a client.
	name uint32
}

// keys is a hash table of keys in order of their first use. Keys never move, so growth copies the
// index only.
type keys struct {
	blocks []*[keysInBlock]key
	n      int
	// index maps hashes to keys. The low half of an entry is the key's number, from 1; the high
	// half has bits of the hash, to skip most comparisons.
	index []uint64
	texts []string
	// textBytes is the total length of texts.
	textBytes int64
}

const keysInBlock = 4096

func newKeys() *keys { return &keys{index: make([]uint64, 1024)} }

// find returns the key of a counter or nil, and its position in the index.
func (k *keys) find(id identity.ID) (found *key, position uint64) {
	mask := uint64(len(k.index) - 1)
	tag := id.Lo &^ (1<<32 - 1)
	for i := id.Hi & mask; ; i = (i + 1) & mask {
		e := k.index[i]
		if e == 0 {
			return nil, i
		}
		if e&^(1<<32-1) == tag {
			if found = k.at(int(e&(1<<32-1)) - 1); found.id == id {
				return found, i
			}
		}
	}
}

// findOrAdd returns the key of a counter and reports whether it is new.
func (k *keys) findOrAdd(id identity.ID) (found *key, isNew bool) {
	found, position := k.find(id)
	if found != nil {
		return found, false
	}
	if k.n%keysInBlock == 0 {
		k.blocks = append(k.blocks, new([keysInBlock]key))
	}
	k.index[position] = id.Lo&^(1<<32-1) | uint64(k.n+1)
	found = k.at(k.n)
	found.id = id
	k.n++
	if k.n*2 > len(k.index) {
		k.grow()
	}
	return found, true
}

func (k *keys) at(i int) *key { return &k.blocks[i/keysInBlock][i%keysInBlock] }

func (k *keys) grow() {
	k.index = make([]uint64, 2*len(k.index))
	for n := range k.n {
		id := k.at(n).id
		_, position := k.find(id)
		k.index[position] = id.Lo&^(1<<32-1) | uint64(n+1)
	}
}
