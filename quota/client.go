package quota

// client is the client of one or more streams.
type client struct {
	id      uint64 // 0: it has a single stream
	streams int    // number of open streams
}

// joinClient makes a stream that has reported nothing one of the client with the given id.
func (d *Divider) joinClient(s *stream, id uint64) {
	if id == 0 || s.client.id != 0 || len(s.shares) > 0 {
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

// leaveClient forgets the client of a closed stream if that was its last one.
func (d *Divider) leaveClient(c *client) {
	if c.streams--; c.streams == 0 && c.id != 0 {
		delete(d.clients, c.id)
	}
}
