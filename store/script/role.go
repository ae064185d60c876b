package script

import (
	_ "embed"
	"strings"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

//go:embed role.lua
var roleScript string

// A Role is a key that one holder has at a time.
type Role struct {
	Key    string
	Before string // the previous holder, "" for none; valid if Err is nil
	Err    error
	reply  resp.Reply
}

// AcquireRoles acquires or renews all roles for the given duration, unless other holders have them,
// in one write. It waits until all replies are there or the connection is closed.
func AcquireRoles(c *redis.Conn, holder string, milliseconds int, all []*Role) error {
	x := c.Begin()
	defer c.Free(x)
	for _, r := range all {
		r.reply.Reset(redis.ShortReply)
		x.Append(&r.reply, "EVAL", roleScript, "1", r.Key, holder, numeral(milliseconds))
	}
	if err := c.Exchange(x); err != nil {
		return err
	}
	for _, r := range all {
		switch r.Err = redis.ReplyError(&r.reply); {
		case r.Err != nil:
		case r.reply.Kind(0) != resp.Bulk:
			r.Err = redis.BadReply("query the holder of %s: %s is not a name", r.Key, redis.Describe(&r.reply, 0))
		default:
			r.Before = strings.Clone(r.reply.Text(0))
		}
	}
	return nil
}
