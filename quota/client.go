package quota

// Estimated memory of buckets and shares, in bytes. Ids are added to it.
const (
	bucketBytes = 320
	shareBytes  = 100
	lostBytes   = 80
	strayBytes  = 80
)

// client is the client of one or more streams.
type client struct {
	id      uint64 // 0: it has a single stream
	streams int    // number of open streams
	bytes   int    // memory that is kept for it

	part // in the bucket that is divided
}

// joinClient makes a stream that has reported nothing one of the client with the given id.
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

// hasRoom reports whether a client may have n more bytes. No client may have more than is free after that, so k clients that
// take all they can leave one part in k+1 to others.
func (d *Divider) hasRoom(c *client, n int) bool { return c.bytes+n <= d.o.MaxBytes-(d.bytes+n) }

// charge adds n bytes to the memory of a client, and forgets the client once it has nothing.
func (d *Divider) charge(c *client, n int) {
	d.bytes += n
	if c.bytes += n; c.bytes == 0 && c.streams == 0 && c.id != 0 {
		delete(d.clients, c.id)
	}
}
