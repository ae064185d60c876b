package script

import (
	_ "embed"
	"strings"

	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

//go:embed leadership.lua
var acquireScript string

// Leadership is the leadership of a domain: a key whose value is the name of the leader.
type Leadership struct {
	Key      string
	Previous string // the previous leader, "" for none; valid if Err is nil
	Err      error
	reply    resp.Reply
}

// AcquireLeaderships acquires or renews all leaderships for the given duration, unless they have
// other leaders, in one write. It returns when all replies have arrived or the connection is
// closed.
func AcquireLeaderships(c *redis.Conn, candidate string, milliseconds int, all []*Leadership) error {
	x := c.Begin()
	defer c.Free(x)
	for _, l := range all {
		l.reply.Reset(redis.ShortReply)
		x.Append(&l.reply, "EVAL", acquireScript, "1", l.Key, candidate, numeral(milliseconds))
	}
	if err := c.Exchange(x); err != nil {
		return err
	}
	for _, l := range all {
		switch l.Err = redis.ReplyError(&l.reply); {
		case l.Err != nil:
		case l.reply.Kind(0) != resp.Bulk:
			l.Err = redis.BadReply("query the leader of %s: %s is not a name", l.Key, redis.Describe(&l.reply, 0))
		default:
			l.Previous = strings.Clone(l.reply.Text(0))
		}
	}
	return nil
}
