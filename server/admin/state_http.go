package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/server/access"
)

// StatePath is the path of the state.
const StatePath = "/api/v1/state"

// stateEndpoint returns the endpoint of [StatePath], which returns a [live.State].
func (a *API) stateEndpoint() endpoint {
	return endpoint{
		methods: map[string]access.Right{http.MethodGet: access.Read},
		answer: func(r *http.Request, _ string) (any, error) {
			which, err := stateRules(r.URL.RawQuery)
			if err != nil {
				return nil, err
			}
			now, _ := a.clock.Now()
			return a.State(time.Unix(0, int64(now)), which), nil
		},
	}
}

// stateRules parses the query of a state.
func stateRules(query string) (StateRules, error) {
	which := AllRules
	values, err := readQuery(query, "rules", "max", "keys")
	if err != nil {
		return which, err
	}
	switch rules := values.Get("rules"); {
	case rules == "active":
		which.Idle = false
	case values.Has("rules") && rules != "all":
		return which, fmt.Errorf("parameter rules is %.100q: must be all or active", rules)
	}
	for name, n := range map[string]*int{"max": &which.Max, "keys": &which.Keys} {
		text := values.Get(name)
		if !values.Has(name) {
			continue
		}
		if *n, err = strconv.Atoi(text); err != nil || *n < 0 || *n > maxStateRules {
			return which, fmt.Errorf("parameter %s is %.100q: must be 0 to %d", name, text, maxStateRules)
		}
	}
	return which, nil
}
