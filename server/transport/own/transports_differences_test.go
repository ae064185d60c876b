package own

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluice-ratelimit/sluice/server/transport"
)

// difference is one that is on purpose, between what a client gets by grpc-go and by sluice's own
// transport.
type difference struct {
	name, reason string
	// explains reports whether it applies to what is compared. If so, it changes what came by
	// grpc-go to what is wanted of the own transport.
	explains func(c *comparison) bool
	// byChance says that it depends on the order in which grpc-go's goroutines run.
	byChance bool
}

// mostDifferences is how many there may be.
const mostDifferences = 21

var differences = []difference{
	{
		"an empty grpc-message", "grpc-go sends one with each OK; none says the same",
		onStream(func(_ *request, theirs, _ *answered) bool { return theirs.drop("grpc-message=") }), false,
	},
	{
		"compressed replies", "a reply has some 40 bytes, of which compression makes more",
		onStream(func(_ *request, theirs, ours *answered) bool {
			if !theirs.drop("grpc-encoding=gzip") {
				return false
			}
			if plain := gunzip(theirs.body); len(plain) < len(theirs.body) {
				theirs.body, theirs.end = plain, ours.end // it needs a smaller window
			} else { // a window has cut it
				theirs.body, theirs.trailers, theirs.end = ours.body, ours.trailers, ours.end
			}
			return true
		}), false,
	},
	{
		"the reply's content type", "application/grpc says the same as grpc-go's echo of the request's",
		onStream(func(_ *request, theirs, _ *answered) bool {
			for i, f := range theirs.headers {
				if strings.HasPrefix(f, "content-type=application/grpc+") {
					theirs.headers[i] = "content-type=application/grpc"
					return true
				}
			}
			return false
		}), false,
	},
	{
		"what is malformed is reset", "RFC 9113, 8.1.1; grpc-go answers some of it, with or without an error",
		onStream(func(r *request, theirs, ours *answered) bool {
			// An answer may have come before the frame that makes a request malformed.
			if !r.isMalformed() || r.malformed && !slices.Contains(ours.resets, "PROTOCOL_ERROR") {
				return false
			}
			*theirs = answered{end: -1, resets: []string{"PROTOCOL_ERROR"}}
			return true
		}), false,
	},
	{
		"bytes of names and values", "x/net rejects control characters in values, and names that are no tokens; RFC 9113, 8.2.1, only some of these, and Envoy lets a request pass whose call fails",
		onStream(func(r *request, theirs, ours *answered) bool {
			// It may also answer what is left of the header block.
			if r.isMalformed() || !slices.Contains(theirs.resets, "PROTOCOL_ERROR") || !r.isOddToXNet() {
				return false
			}
			*theirs = *ours
			return true
		}), false,
	},
	{
		"who does not speak gRPC gets text", "curl shows it, and h2spec needs a body. It comes at the request's end, which grpc-go does not wait for",
		onStream(func(r *request, theirs, ours *answered) bool {
			status := theirs.field(":status")
			if !r.ended && len(ours.headers) == 0 && (status == "415" || status == "405") {
				*theirs = *ours
				return true
			}
			if status != "415" && status != "405" || !slices.Contains(ours.headers, "content-type=text/plain") {
				return false
			}
			*theirs = answered{headers: []string{":status=" + status, "content-type=text/plain"}, body: ours.body, end: ours.end, resets: ours.resets}
			return strings.HasPrefix(string(ours.body), "sluice speaks gRPC: ")
		}), false,
	},
	{
		"other codecs", "grpc-go's forced codec answers application/grpc+json as if it were protobuf",
		onStream(func(r *request, theirs, ours *answered) bool {
			if theirs.field(":status") != "200" && theirs.field(":status") != "" || !slices.ContainsFunc(r.fields, func(f hpack.HeaderField) bool {
				return f.Name == "content-type" && strings.HasPrefix(f.Value, "application/grpc+json")
			}) {
				return false
			}
			theirs.headers = []string{":status=200", "content-type=application/grpc", "grpc-message=the content type must be application/grpc or application/grpc+proto", "grpc-status=12"}
			theirs.body, theirs.trailers, theirs.end, theirs.resets = nil, nil, ours.end, ours.resets
			return true
		}), false,
	},
	{
		"no message, or two", "gRPC's documentation of status codes asks for UNIMPLEMENTED; the second is seen before the request's end",
		onStream(func(_ *request, theirs, ours *answered) bool {
			first := theirs.field("grpc-message")
			if !strings.HasPrefix(first, "cardinality violation: ") && first != "unexpected EOF" && !strings.HasPrefix(first, "grpc: ") && len(ours.resets) == 0 {
				return false
			}
			for _, s := range []string{"the request has no message: this method takes one", "the request has more than one message: this method takes one"} {
				if ours.field("grpc-message") == s {
					*theirs = answered{headers: []string{":status=200", "content-type=application/grpc", "grpc-message=" + s, "grpc-status=12"}, end: ours.end, resets: ours.resets}
					return true
				}
			}
			return false
		}), false,
	},
	{
		"the encodings that are known", "a client of one that is not learns what it can use",
		onStream(func(_ *request, theirs, ours *answered) bool {
			if !strings.HasPrefix(theirs.field("grpc-message"), "grpc: Decompressor is not installed") {
				return false
			}
			theirs.headers = append(theirs.headers, "grpc-accept-encoding=gzip")
			slices.Sort(theirs.headers)
			return true
		}), false,
	},
	{
		"texts", "the own transport says which bound or rule it was, without repeating what the client sent",
		onStream(func(_ *request, theirs, ours *answered) bool {
			for _, text := range ownTexts {
				if strings.HasPrefix(theirs.field("grpc-message"), text[0]) && strings.HasPrefix(ours.field("grpc-message"), text[1]) {
					theirs.drop("grpc-message=" + theirs.field("grpc-message"))
					theirs.headers = append(theirs.headers, "grpc-message="+ours.field("grpc-message"))
					slices.Sort(theirs.headers)
					return true
				}
			}
			return false
		}), false,
	},
	{
		"a message that is too large", "it is answered as soon as its length has come, also if it does not come whole, and beyond twice the bound, too, with the bound's name",
		onStream(func(_ *request, theirs, ours *answered) bool {
			text := ours.field("grpc-message")
			var size, most int
			var method string
			if n, _ := fmt.Sscanf(text, "the message has %d bytes: %s takes %d", &size, &method, &most); n == 3 && most == transport.MostOfOther && size > most {
				*theirs = *ours
				return ours.field("grpc-status") == "8"
			}
			if theirs.field("grpc-status") != "8" || !strings.Contains(text, "--max-message allows ") && !strings.Contains(text, "after decompression larger than ") {
				return false
			}
			theirs.headers, theirs.trailers, theirs.end, theirs.resets = ours.headers, ours.trailers, ours.end, ours.resets
			return ours.field("grpc-status") == "8"
		}), false,
	},
	{
		"what counts of headers", "all of them, as RFC 9113, 6.5.2, says; grpc-go tells of no pseudo-headers but :authority. Beyond twice the bound it resets the call or ends the connection",
		func(c *comparison) bool {
			if c.stream == 0 {
				return c.theirs.ends("") && c.ours.goAway == nil && c.isTooLarge(c.ours, c.ours.last()) && c.theirs.endAsOurs(c.ours)
			}
			theirs, ours := c.of(c.theirs, c.stream), c.of(c.ours, c.stream)
			if !c.isTooLarge(c.ours, c.stream) {
				return false
			}
			*theirs = *ours
			return true
		}, false,
	},
	{
		"a stream too many", "it is refused before its headers are judged",
		onStream(func(_ *request, theirs, ours *answered) bool {
			if !slices.Equal(ours.resets, []string{"REFUSED_STREAM"}) || theirs.field("grpc-status") == "0" || theirs.field("grpc-status") == "" {
				return false
			}
			*theirs = *ours
			return true
		}), false,
	},
	{
		"SETTINGS_MAX_HEADER_LIST_SIZE", "it is advice (RFC 9113, 6.5.2): our headers take 200 bytes, and grpc-go resets instead of answering",
		onStream(func(_ *request, theirs, ours *answered) bool {
			if !slices.Equal(theirs.resets, []string{"INTERNAL_ERROR"}) || ours.field("grpc-status") == "" {
				return false
			}
			*theirs = *ours
			return true
		}), false,
	},
	{
		"a GOAWAY before the end", "grpc-go closes a connection whose frames it cannot read without saying why",
		func(c *comparison) bool {
			return c.stream == 0 && c.theirs.ends("") && c.ours.goAway != nil && c.theirs.endAsOurs(c.ours)
		}, false,
	},
	{
		"streams and windows that RFC 9113 forbids", "grpc-go ignores most of them, or has another code; h2spec asks for the error",
		func(c *comparison) bool {
			if c.stream == 0 {
				return !c.theirs.ends("") && c.ours.goAway != nil && slices.Contains(ownEnds, c.ours.reason) && c.theirs.endAsOurs(c.ours)
			}
			theirs, ours, r := c.of(c.theirs, c.stream), c.of(c.ours, c.stream), c.requests[c.stream]
			switch {
			case r == nil:
				return false
			case slices.Equal(ours.resets, []string{"FLOW_CONTROL_ERROR"}) && r.window > 1<<31-1, slices.Equal(ours.resets, []string{"STREAM_CLOSED"}) && r.again:
			default:
				return false
			}
			*theirs = *ours
			return true
		}, false,
	},
	{
		"trailers", "they end a request (RFC 9113, 8.1); grpc-go takes them for a stream's second beginning and ends the connection",
		func(c *comparison) bool {
			return c.stream == 0 && strings.HasPrefix(c.theirs.reason, "received an illegal stream id") && c.ours.goAway == nil && c.sendsTrailers() && c.theirs.endAsOurs(c.ours)
		}, false,
	},
	{
		"PRIORITY", "of a wrong length or with a circle it resets its stream (RFC 9113, 6.3; RFC 7540, 5.3.1); grpc-go ends the connection, or ignores it. PRIORITY_UPDATE (RFC 9218) is ignored",
		func(c *comparison) bool {
			if c.stream == 0 {
				return c.oddPriority(0) && c.theirs.endAsOurs(c.ours)
			}
			theirs, ours := c.of(c.theirs, c.stream), c.of(c.ours, c.stream)
			if !c.oddPriority(c.stream) || len(ours.resets) == 0 {
				return false
			}
			*theirs = *ours
			return true
		}, false,
	},
	{
		"a request that does not end", "it is reset after 5 seconds or at its deadline; grpc-go waits for ever, and at the deadline it resets or answers, as its goroutines happen to run. What is wrong with a compressed message is said at its end",
		onStream(func(r *request, theirs, ours *answered) bool {
			early := theirs.field("grpc-message")
			if r != nil && r.ended && strings.HasPrefix(early, "grpc: failed to ") && theirs.end < ours.end {
				theirs.end, theirs.resets = ours.end, ours.resets
				return true
			}
			if r == nil || r.ended || len(ours.headers) > 0 || theirs.field("grpc-status") != "" && theirs.field("grpc-status") != "4" &&
				!strings.HasPrefix(early, "grpc: failed to ") {
				return false
			}
			theirs.headers, theirs.body, theirs.trailers, theirs.end = nil, nil, nil, -1
			if slices.Equal(ours.resets, []string{"CANCEL"}) || theirs.resets != nil && ours.resets == nil {
				theirs.resets = ours.resets
			}
			return true
		}), true,
	},
	{
		"a reset behind an answer", "grpc-go adds one, which RFC 9113, 8.1, allows, if its reader has not come to the request's end when the answer is there",
		onStream(func(r *request, theirs, ours *answered) bool {
			if r == nil || !r.ended || ours.resets != nil || !slices.Equal(theirs.resets, []string{"NO_ERROR"}) || theirs.field("grpc-status") == "" {
				return false
			}
			theirs.resets = nil
			return true
		}), true,
	},
	{
		"numbers of streams that run out", "at three quarters of them the client is told to go elsewhere, while it still has some; grpc-go has it go on until there are none",
		func(c *comparison) bool {
			g := c.ours.goAway
			return c.stream == 0 && c.theirs.goAway == nil && g != nil && g.ErrCode == http2.ErrCodeNo && c.newest() > 3<<29 && c.theirs.endAsOurs(c.ours)
		}, false,
	},
}

// ownEnds are reasons for which only the own transport ends a connection.
var ownEnds = []string{
	"HEADERS on a stream that has ended",
	"DATA on a stream that has not begun",
	"DATA on a stream that the client has ended",
	"RST_STREAM on a stream that has not begun",
	"WINDOW_UPDATE on a stream that has not begun",
	"PUSH_PROMISE of a client",
	"a connection's window of more than 2^31-1",
	"more DATA than a stream's window allows",
	"SETTINGS_ENABLE_PUSH other than 0 or 1",
	"SETTINGS_MAX_FRAME_SIZE other than 2^14 to 2^24-1",
	"a setting that makes a stream's window more than 2^31-1",
	"an empty CONTINUATION",
	"more than 32 settings in a frame",
}

// ends reports whether the connection has ended, with this reason or without a GOAWAY.
func (p *player) ends(reason string) bool { return p.ended >= 0 && p.reason == reason }

// endAsOurs has what came by grpc-go end, or go on, as by the own transport.
func (p *player) endAsOurs(ours *player) bool {
	p.goAway, p.reason, p.ended = ours.goAway, ours.reason, ours.ended
	if len(ours.events) > len(p.events) || p.goAway != nil {
		p.events = ours.events // those of the last step
	}
	return true
}

// newest is the newest stream of the script.
func (c *comparison) newest() (id uint32) {
	for n := range c.requests {
		id = max(id, n)
	}
	return id
}

// last is the newest stream of which something came.
func (p *player) last() (newest uint32) {
	for id := range p.streams {
		newest = max(newest, id)
	}
	return newest
}

// isTooLarge reports whether a stream is answered so, and is by all its fields.
func (c *comparison) isTooLarge(p *player, stream uint32) bool {
	r := c.requests[stream]
	if r == nil || !strings.HasPrefix(c.of(p, stream).field("grpc-message"), "the headers take ") {
		return false
	}
	size := 0
	for _, f := range r.fields {
		size += int(f.Size())
	}
	return size > int(fillLimits(c.limit).MaxHeaderBytes) && c.of(p, stream).field("grpc-status") == "8"
}

// sendsTrailers reports whether the script has HEADERS of a stream that has begun.
func (c *comparison) sendsTrailers() bool {
	for _, r := range c.requests {
		if r.again {
			return true
		}
	}
	return false
}

// oddPriority reports whether the last step had such a PRIORITY, or any step on a stream.
func (c *comparison) oddPriority(stream uint32) bool {
	for at, s := range c.steps {
		if stream == 0 && at != c.played || len(s.bytes) < 9 || s.bytes[3] != byte(http2.FramePriority) && s.bytes[3] != byte(http2.FramePriorityUpdate) {
			continue
		}
		if stream == 0 && s.bytes[3] == byte(http2.FramePriorityUpdate) {
			return true // x/net checks it, though no transport uses it
		}
		on := binary.BigEndian.Uint32(s.bytes[5:])
		if on != 0 && (stream == 0 || on == stream) && (len(s.bytes) != 14 || binary.BigEndian.Uint32(s.bytes[9:])&(1<<31-1) == on) {
			return true
		}
	}
	return false
}

// ownTexts are beginnings of grpc-message, by grpc-go and by the own transport.
var ownTexts = [][2]string{
	{"malformed grpc-timeout: ", "malformed grpc-timeout"},
	{"malformed binary metadata ", "malformed binary metadata"},
	{"num values of :authority: ", "more than one host header"},
}

// onStream is an explanation of what differs on a stream.
func onStream(explains func(r *request, theirs, ours *answered) bool) func(c *comparison) bool {
	return func(c *comparison) bool {
		r := c.requests[c.stream]
		if r == nil {
			return false
		}
		r.ended = r.ended && r.endsAt < c.ended
		return explains(r, c.of(c.theirs, c.stream), c.of(c.ours, c.stream))
	}
}

// gunzip returns a reply whose message is not compressed.
func gunzip(body []byte) []byte {
	if len(body) < 5 || body[0] != 1 {
		return body
	}
	r, err := gzip.NewReader(bytes.NewReader(body[5:]))
	if err != nil {
		return body
	}
	message, err := io.ReadAll(r)
	if err != nil {
		return body
	}
	return prefixed(0, message)
}

// isOddToXNet reports whether x/net rejects a header that RFC 9113 does not.
func (r *request) isOddToXNet() bool {
	return r != nil && slices.ContainsFunc(r.fields, func(f hpack.HeaderField) bool {
		return !httpguts.ValidHeaderFieldValue(f.Value) || !f.IsPseudo() && strings.ContainsFunc(f.Name, func(b rune) bool { return !httpguts.IsTokenRune(b) })
	})
}

// isMalformed reports whether a request is malformed by RFC 9113, 8.1.1 to 8.3.1.
func (r *request) isMalformed() bool {
	if r == nil || r.malformed {
		return r != nil
	}
	seen := map[string]bool{}
	regular, length := false, -1
	for _, f := range r.fields {
		if strings.ContainsAny(f.Value, "\x00\r\n") || !validName(f.Name) {
			return true
		}
		if !strings.HasPrefix(f.Name, ":") {
			regular = true
		} else if regular || seen[f.Name] || !slices.Contains([]string{":method", ":scheme", ":path", ":authority"}, f.Name) {
			return true
		}
		seen[f.Name] = true
		switch f.Name {
		case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
			return true
		case "te":
			if f.Value != "trailers" {
				return true
			}
		case ":path":
			if !strings.HasPrefix(f.Value, "/") {
				return true
			}
		case "content-length":
			n, err := strconv.ParseUint(f.Value, 10, 50)
			if err != nil || length >= 0 && int(n) != length || r.ended && int(n) != r.data || r.data > int(n) {
				return true
			}
			length = int(n)
		}
	}
	for _, f := range r.trailers {
		if strings.ContainsAny(f.Value, "\x00\r\n") || !validName(f.Name) || strings.HasPrefix(f.Name, ":") {
			return true
		}
	}
	return !seen[":method"] || !seen[":scheme"] || !seen[":path"]
}

// validName reports whether a name has no byte that RFC 9113, 8.2.1, forbids.
func validName(name string) bool {
	for i := range len(name) {
		if b := name[i]; b <= ' ' || b >= 0x7f || 'A' <= b && b <= 'Z' || b == ':' && i > 0 {
			return false
		}
	}
	return name != "" && name != ":"
}
