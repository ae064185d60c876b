package h2

import "encoding/binary"

// Settings (6.5.2).
const (
	settingHeaderTableSize      = 1
	settingEnablePush           = 2
	settingMaxConcurrentStreams = 3
	settingInitialWindowSize    = 4
	settingMaxFrameSize         = 5
	settingMaxHeaderListSize    = 6
)

const settingBytes = 6

// maxSettings limits the settings in one frame. There are six, and a few extensions.
const maxSettings = 32

// appendOurSettings appends our SETTINGS, and a WINDOW_UPDATE for the connection.
func appendOurSettings(b []byte, l *Limits) []byte {
	// SETTINGS_MAX_HEADER_LIST_SIZE is not sent: clients that respect it would fail calls
	// themselves, which we could not count or log.
	b = appendFrameHeader(b, 2*settingBytes, frameSettings, 0, 0)
	b = binary.BigEndian.AppendUint16(b, settingMaxConcurrentStreams)
	b = binary.BigEndian.AppendUint32(b, uint32(l.MaxStreams)) //nolint:gosec // a flag bounds it
	b = binary.BigEndian.AppendUint16(b, settingInitialWindowSize)
	b = binary.BigEndian.AppendUint32(b, streamWindow)
	// A client that knows this window also knows the smaller windows of streams, which it received
	// before.
	return appendWindowUpdate(b, 0, connWindow-defaultWindow)
}

// streamsPerGlitch is how many streams may get another window for one glitch.
const streamsPerGlitch = 64

// receiveSettings handles SETTINGS (6.5).
func (c *Conn) receiveSettings(f *frame) error {
	switch {
	case f.stream != 0:
		return &ConnError{CodeProtocol, "SETTINGS on a stream"}
	case f.has(flagAck) && len(f.payload) > 0, len(f.payload)%settingBytes != 0:
		return &ConnError{CodeFrameSize, "SETTINGS of a wrong length"}
	case len(f.payload) > maxSettings*settingBytes:
		return &ConnError{CodeEnhanceYourCalm, "more than 32 settings in a frame"}
	case f.has(flagAck):
		if c.receive.settingsAcked {
			c.glitches.left-- // nothing to acknowledge
			return nil
		}
		c.applyOurSettings()
		return nil
	}
	c.glitches.left -= max(1, len(f.payload)/settingBytes)
	initial := c.send.initial
	for p := f.payload; len(p) > 0; p = p[settingBytes:] {
		id := binary.BigEndian.Uint16(p)
		v := binary.BigEndian.Uint32(p[2:])
		if err := checkSetting(id, v); err != nil {
			return err
		}
		if id == settingInitialWindowSize {
			initial = int64(v)
		}
	}
	if initial != c.send.initial {
		if err := c.changeInitialWindow(initial); err != nil {
			return err
		}
	}
	// The acknowledgement comes before the data that a larger window allows: a client might
	// otherwise treat that data as a flow control error.
	c.out = appendFrameHeader(c.out, 0, frameSettings, flagAck, 0)
	c.sendQueued()
	return nil
}

// checkSetting returns an error if a setting is invalid. Except for the initial window, settings
// have no effect here: replies use no dynamic table, and nothing is pushed.
func checkSetting(id uint16, v uint32) error {
	switch {
	case id == settingEnablePush && v > 1:
		return &ConnError{CodeProtocol, "SETTINGS_ENABLE_PUSH other than 0 or 1"}
	case id == settingMaxFrameSize && (v < maxFrameBytes || v >= 1<<24):
		return &ConnError{CodeProtocol, "SETTINGS_MAX_FRAME_SIZE other than 2^14 to 2^24-1"}
	case id == settingInitialWindowSize && v > maxWindow:
		return &ConnError{CodeFlowControl, "SETTINGS_INITIAL_WINDOW_SIZE of more than 2^31-1"}
	}
	return nil
}

// applyOurSettings is called when the client has acknowledged our SETTINGS: the windows of streams
// become smaller (6.9.2).
func (c *Conn) applyOurSettings() {
	r := &c.receive
	r.settingsAcked = true
	r.initial = streamWindow
	c.newest.receiveWindow -= defaultWindow - streamWindow
	for _, s := range c.sortedStreams() {
		s.receiveWindow -= defaultWindow - streamWindow
		if s.streaming != nil && s.streaming.chunks.ChunkedCall != nil && s.state == streamOpen {
			c.extendChunkedWindow(s)
			continue
		}
		if s.body != nil && s.state == streamOpen && (s.streaming == nil || s.streaming.wantsMessage) {
			c.extendWindow(s)
		}
	}
}

// receiveWindowUpdate handles WINDOW_UPDATE (6.9).
func (c *Conn) receiveWindowUpdate(f *frame) error {
	if len(f.payload) != 4 {
		return &ConnError{CodeFrameSize, "a WINDOW_UPDATE whose payload is not 4 bytes"}
	}
	n := int64(binary.BigEndian.Uint32(f.payload)) & maxWindow
	if f.stream == 0 {
		if n == 0 {
			return &ConnError{CodeProtocol, "a WINDOW_UPDATE with an increment of 0"}
		}
		if c.send.window += n; c.send.window > maxWindow {
			return &ConnError{CodeFlowControl, "a connection's window of more than 2^31-1"}
		}
		c.sendQueued()
		return nil
	}
	if c.idle(f.stream) {
		return &ConnError{CodeProtocol, "WINDOW_UPDATE on an idle stream"}
	}
	s := c.find(f.stream)
	switch {
	case s == nil: // closed (5.1)
	case n == 0:
		c.resetForError(s.id, CodeProtocol)
	case s.sendWindow+n > maxWindow:
		c.resetForError(s.id, CodeFlowControl)
	default:
		s.sendWindow += n
		c.sendQueued()
	}
	return nil
}

// changeInitialWindow changes the windows of all streams, which can become negative (6.9.2).
func (c *Conn) changeInitialWindow(to int64) error {
	c.glitches.left -= len(c.streams) / streamsPerGlitch
	by := to - c.send.initial
	c.send.initial = to
	c.newest.sendWindow += by
	most := c.newest.sendWindow
	for _, s := range c.streams {
		s.sendWindow += by
		most = max(most, s.sendWindow)
	}
	if most > maxWindow {
		return &ConnError{CodeFlowControl, "a setting that makes a stream's window more than 2^31-1"}
	}
	return nil
}
