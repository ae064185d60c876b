package access

import (
	"fmt"
	"strings"
)

// Right is a permission on the debug listener.
type Right uint8

// The rights. Write includes Read.
const (
	Read  Right = iota + 1 // show the state
	Write                  // make changes, such as resetting counters
)

// rights maps names to rights.
var rights = map[string]Right{"read": Read, "write": Write}

// ParseRights parses texts of the form NAME=read or NAME=write. NAME is as in [ParseAllowList].
func ParseRights(texts []string) (*AllowList, error) {
	for _, text := range texts {
		if _, right, _ := strings.Cut(text, "="); rights[right] == 0 {
			return nil, fmt.Errorf("%q: must be NAME=read or NAME=write, such as spiffe://cluster.local/ns/ops/sa/alice=write", text)
		}
	}
	return ParseAllowList(texts)
}

// Right returns the right of c in an [AllowList] of [ParseRights], 0 for none.
func (c *Client) Right() Right {
	switch {
	case c.CanAccess([]byte("write")):
		return Write
	case c.CanAccess([]byte("read")):
		return Read
	}
	return 0
}

// Names returns the names in c's certificate for messages, quoted and truncated.
func (c *Client) Names() string { return c.names }
