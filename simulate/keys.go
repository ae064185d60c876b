package simulate

import "github.com/sluice-ratelimit/sluice/limiter/identity"

// key is what is known of a counter of a limit: of one client, say.
type key struct {
	id identity.ID
	// hits are all that asked for it, and over those that had no room.
	hits, over uint64
	// demand is what was asked in the window that it is in, and peak the most of any.
	demand, peak uint64
	// moreDenied counts the requests that this key denied and the other rules did not.
	moreDenied uint32
	window     uint32
	limit      int32
	// text is where its values stand in keys.texts, from 1; 0 for nowhere.
	text uint32
}

// keys are all counters, in the order in which they were first seen. They never move, so
// that growing copies only the index.
type keys struct {
	blocks []*[keysInBlock]key
	n      int
	// index has, by the hash, the number of a key, from 1, in its low half, and a part of
	// the hash in its high half, so that it need not be looked at to know that it is another.
	index []uint64
	texts []string
	// textBytes is how long all of them are.
	textBytes int64
}

const keysInBlock = 4096

func newKeys() *keys { return &keys{index: make([]uint64, 1024)} }

// find returns the key of an identity, nil if there is none, and its place in the index.
func (k *keys) find(id identity.ID) (found *key, place uint64) {
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

// findOrAdd returns the key of an identity, and whether it is new.
func (k *keys) findOrAdd(id identity.ID) (found *key, isNew bool) {
	found, place := k.find(id)
	if found != nil {
		return found, false
	}
	if k.n%keysInBlock == 0 {
		k.blocks = append(k.blocks, new([keysInBlock]key))
	}
	k.index[place] = id.Lo&^(1<<32-1) | uint64(k.n+1)
	found = k.at(k.n)
	found.id = id
	k.n++
	if k.n*2 > len(k.index) {
		k.grow()
	}
	return found, true
}

// replicaID is the identity of a counter of one of several services.
func replicaID(id identity.ID, replica int) identity.ID {
	id.Lo ^= uint64(replica) << 33
	return id
}

func (k *keys) at(i int) *key { return &k.blocks[i/keysInBlock][i%keysInBlock] }

func (k *keys) grow() {
	k.index = make([]uint64, 2*len(k.index))
	for n := range k.n {
		id := k.at(n).id
		_, place := k.find(id)
		k.index[place] = id.Lo&^(1<<32-1) | uint64(n+1)
	}
}
