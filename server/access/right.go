package access

import (
	"fmt"
	"strings"
)

// Right is what somebody may do on the debug listener.
type Right uint8

// The rights. Who may write may read, too.
const (
	Read  Right = iota + 1 // look
	Write                  // change: reset counters
)

// rights are the words for them.
var rights = map[string]Right{"read": Read, "write": Write}

// ParseRights reads each text as NAME=read or NAME=write. NAME is as in [ParseAllowList].
func ParseRights(texts []string) (*AllowList, error) {
	for _, text := range texts {
		if _, right, _ := strings.Cut(text, "="); rights[right] == 0 {
			return nil, fmt.Errorf("%q: must be NAME=read or NAME=write, such as spiffe://cluster.local/ns/ops/sa/alice=write", text)
		}
	}
	return ParseAllowList(texts)
}

// Right returns what c may do by an [AllowList] of [ParseRights], 0 for nothing.
func (c *Client) Right() Right {
	switch {
	case c.May([]byte("write")):
		return Write
	case c.May([]byte("read")):
		return Read
	}
	return 0
}

// Names returns the names in c's certificate for people, quoted and bounded.
func (c *Client) Names() string { return c.names }
