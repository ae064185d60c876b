package division

// Estimated memory in bytes. Bucket IDs are added to it.
const (
	bucketBytes    = 320
	shareBytes     = 135
	lostBytes      = 80
	untrackedBytes = 80
)

// client is the client that opened one or more streams.
type client struct {
	id      uint64 // 0 if it has a single stream
	streams int    // number of open streams
	bytes   int    // memory of its buckets and shares

	totals // in the division that is running
}

// joinClient adds a stream to the client with the given ID. It has no effect on a stream that has a
// client or has reported a bucket.
func (d *Divider) joinClient(s *stream, id uint64) {
	if id == 0 || s.client.id != 0 || s.client.bytes > 0 {
		return
	}
	c := d.clients[id]
	if c == nil {
		c = &client{id: id}
		d.clients[id] = c
	}
	c.streams++
	s.client = c
}

// mayAllocate reports whether c may use n more bytes: afterwards, a client may use at most as much
// memory as is left free. So k clients leave at least one part in k+1 to others.
func (d *Divider) mayAllocate(c *client, n int) bool { return c.bytes+n <= d.maxBytes-(d.bytes+n) }

// addBytes adds n bytes to the memory of c, and removes c once it has no memory and no stream.
func (d *Divider) addBytes(c *client, n int) {
	d.bytes += n
	if c.bytes += n; c.bytes == 0 && c.streams == 0 && c.id != 0 {
		delete(d.clients, c.id)
	}
}
