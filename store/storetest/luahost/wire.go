package luahost

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

const (
	maxArguments = 1 << 20  // of a command, as in Redis
	maxCommand   = 64 << 20 // bytes of a command
	maxLine      = 64 << 10 // bytes of a line, as in Redis
	readSize     = 16 << 10
	keptBuffer   = 64 << 10
)

// A protocolError is the text of an error after which a connection is closed.
type protocolError string

func (e protocolError) Error() string { return string(e) }

// A reader reads commands. Its memory is bounded by the received bytes and maxCommand.
type reader struct {
	in   *bufio.Reader
	text []byte // arguments of a command, one after the other
	ends []int  // where each ends
}

func newReader(from io.Reader) *reader { return &reader{in: bufio.NewReaderSize(from, readSize)} }

// command reads a command: an array of strings, or a line of words. It may be empty.
func (r *reader) command() (args []string, err error) {
	line, err := r.line("too big inline request")
	if err != nil {
		return nil, err
	}
	if line == "" || line[0] != '*' {
		return strings.Fields(line), nil
	}
	count, ok := parseInt(line[1:])
	if !ok || count > maxArguments {
		return nil, protocolError("invalid multibulk length")
	}
	if cap(r.text) > keptBuffer {
		r.text = nil
		r.ends = nil
	}
	r.text = r.text[:0]
	r.ends = r.ends[:0]
	for range count {
		if err := r.argument(); err != nil {
			return nil, err
		}
	}
	all := string(r.text)
	start := 0
	args = make([]string, len(r.ends))
	for i, end := range r.ends {
		args[i] = all[start:end]
		start = end
	}
	return args, nil
}

// argument reads an argument and appends it to r.text.
func (r *reader) argument() error {
	line, err := r.line("too big bulk count string")
	if err != nil {
		return err
	}
	if line == "" || line[0] != '$' {
		return protocolError("expected '$', got '" + cut(line+" ", 1) + "'")
	}
	length, ok := parseInt(line[1:])
	if !ok || length < 0 || length > maxCommand-int64(len(r.text)) {
		return protocolError("invalid bulk length")
	}
	for left := int(length); left > 0; {
		start := len(r.text)
		r.text = append(r.text, make([]byte, min(left, readSize))...)
		n, err := io.ReadFull(r.in, r.text[start:])
		if err != nil {
			return err
		}
		left -= n
	}
	r.ends = append(r.ends, len(r.text))
	_, err = r.in.Discard(2)
	return err
}

// line reads a line without its end. tooBig is the error of a long one.
func (r *reader) line(tooBig protocolError) (string, error) {
	var long []byte
	for {
		part, err := r.in.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			return strings.TrimSuffix(string(part[:len(part)-1]), "\r"), nil
		case err != nil && err != bufio.ErrBufferFull: //nolint:errorlint // not wrapped
			return "", err
		case len(long)+len(part) > maxLine:
			return "", tooBig
		}
		if long = append(long, part...); err == nil {
			return strings.TrimSuffix(string(long[:len(long)-1]), "\r"), nil
		}
	}
}

// A reply is an int64, a string, a status, a failure, a list of replies, nothing, or nil.
type reply any

type (
	status  string   // a line, such as OK
	failure string   // an error, such as NOSCRIPT
	nothing struct{} // the absence of a list, as nil is that of a string
)

const done = status("OK")

// appendReply encodes a reply.
func appendReply(b []byte, r reply) []byte {
	switch r := r.(type) {
	case int64:
		b = strconv.AppendInt(append(b, ':'), r, 10)
	case string:
		b = strconv.AppendInt(append(b, '$'), int64(len(r)), 10)
		b = append(append(b, '\r', '\n'), r...)
	case status:
		b = append(append(b, '+'), oneLine(string(r))...)
	case failure:
		b = append(append(b, '-'), oneLine(string(r))...)
	case []reply:
		b = strconv.AppendInt(append(b, '*'), int64(len(r)), 10)
		b = append(b, '\r', '\n')
		for _, one := range r {
			b = appendReply(b, one)
		}
		return b
	case nothing:
		b = append(b, "*-1"...)
	default:
		b = append(b, "$-1"...)
	}
	return append(b, '\r', '\n')
}

// oneLine replaces the ends of lines by spaces.
func oneLine(text string) string {
	if strings.ContainsAny(text, "\r\n") {
		text = strings.NewReplacer("\r", " ", "\n", " ").Replace(text)
	}
	return text
}

// parseInt parses a number as Redis does: it has one notation.
func parseInt(text string) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 20 || text[0] == '+' ||
		len(text) > 1 && (text[0] == '0' || text[0] == '-' && text[1] == '0') {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}
