package admin

import (
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// UnmaskPath is the path for showing the values of denied keys for a time.
const UnmaskPath = "/api/v1/unmask"

// unmaskEndpoint returns the endpoint of [UnmaskPath], which returns a [live.Unmasked].
func (a *API) unmaskEndpoint() endpoint {
	return endpoint{
		methods: map[string]access.Right{http.MethodPost: access.Write},
		answer: func(r *http.Request, by string) (any, error) {
			values, err := readQuery(r.URL.RawQuery, "for")
			if err != nil {
				return nil, err
			}
			d, err := time.ParseDuration(values.Get("for"))
			if err != nil {
				return nil, fmt.Errorf("parameter for is %.100q: must be a duration such as 10m, at most %v",
					values.Get("for"), live.MaxUnmask)
			}
			return a.unmask(d, by)
		},
	}
}

func (a *API) unmask(d time.Duration, by string) (*live.Unmasked, error) {
	recorder := a.service.Recorder()
	now, elapsed := a.clock.Now()
	if err := recorder.Unmask(time.Unix(0, int64(now)), elapsed, d); err != nil {
		if mode := recorder.Mode(); mode != live.Hashed {
			return nil, newRequestError(http.StatusConflict, "%v", err)
		}
		return nil, err
	}
	until := recorder.UnmaskedUntil()
	if until.IsZero() {
		a.metrics.UnmaskedUntil.Set(0)
		a.logger.Info("values of denied keys are no longer shown", zap.String("by", by))
		return &live.Unmasked{}, nil
	}
	a.metrics.UnmaskedUntil.Set(float64(until.Unix()))
	a.logger.Warn("values of denied keys are shown", zap.String("by", by), zap.Time("until", until.UTC()))
	return &live.Unmasked{Until: new(until.UTC())}, nil
}

// maskExpired removes the values of denied keys after the time of unmask.
func (a *API) maskExpired() {
	if a.service.Recorder().MaskExpired(a.clock.Elapsed()) {
		a.metrics.UnmaskedUntil.Set(0)
		a.logger.Info("values of denied keys are no longer shown: the time of the request has passed")
	}
}
