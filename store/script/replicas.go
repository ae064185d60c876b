package script

import (
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/limiter"
	"github.com/sluice-ratelimit/sluice/store/redis"
	"github.com/sluice-ratelimit/sluice/store/resp"
)

// CountReplicas adds a replica to the set in a key for the given duration, and returns the number
// of replicas in it. now is the store's time. Each member of the sorted set expires at its score,
// in milliseconds since 1970.
func CountReplicas(c *redis.Conn, key, replica string, now limiter.Time, lasts time.Duration) (n int64, err error) {
	millis := func(t limiter.Time) string { return strconv.FormatInt(int64(t)/int64(time.Millisecond), 10) }
	end := now + limiter.Time(lasts)
	var replies [4]resp.Reply
	for i := range replies {
		replies[i].Reset(redis.ShortReply)
	}
	x := c.Begin()
	defer c.Free(x)
	x.Append(&replies[0], "ZADD", key, millis(end), replica)
	x.Append(&replies[1], "ZREMRANGEBYSCORE", key, "-inf", millis(now))
	x.Append(&replies[2], "EXPIREAT", key, strconv.FormatInt(int64(end)/int64(time.Second)+1, 10))
	x.Append(&replies[3], "ZCOUNT", key, "-inf", "+inf")
	if err := c.Exchange(x); err != nil {
		return 0, err
	}
	for i := range replies {
		if err := redis.ReplyError(&replies[i]); err != nil {
			return 0, err
		}
	}
	if replies[3].Kind(0) != resp.Integer {
		return 0, redis.BadReply("count the replicas in %s: %s is not a number", key, redis.Describe(&replies[3], 0))
	}
	return replies[3].Int(0), nil
}
