package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sluice-ratelimit/sluice/server/answer"
)

// statePath is where the debug listener tells what is so now.
const statePath = "/api/v1/state"

// stateHandler serves [statePath]: a [live.State].
type stateHandler struct{ *answer.Handler }

func (h *stateHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := local(r); err != nil {
		writeJSON(w, nil, err)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeJSON(w, nil, reject(http.StatusMethodNotAllowed, "method %s: must be GET", r.Method))
		return
	}
	which, err := stateRules(r.URL.RawQuery)
	if err != nil {
		writeJSON(w, nil, err)
		return
	}
	now, _ := h.Clock.Now()
	writeJSON(w, h.Service.State(time.Unix(0, int64(now)), which), nil)
}

// stateRules reads the query of a state.
func stateRules(query string) (answer.StateRules, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return answer.StateRules{}, fmt.Errorf("the query does not parse: %w", err)
	}
	which := answer.AllRules
	for name, given := range values {
		switch name {
		case "rules":
			switch given[0] {
			case "all", "active":
				which.Idle = given[0] == "all"
			default:
				return which, fmt.Errorf("parameter rules is %.100q: must be all or active", given[0])
			}
		case "most":
			if which.Most, err = strconv.Atoi(given[0]); err != nil || which.Most < 0 || which.Most > answer.AllRules.Most {
				return which, fmt.Errorf("parameter most is %.100q: must be 0 to %d", given[0], answer.AllRules.Most)
			}
		default:
			return which, fmt.Errorf("unknown parameter %.100q (allowed: rules, most)", name)
		}
	}
	return which, nil
}

// writeJSON answers with a report, or with why there is none.
func writeJSON(w http.ResponseWriter, report any, err error) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if err != nil {
		code := http.StatusBadRequest
		if e, ok := errors.AsType[requestError](err); ok {
			code = e.code
		}
		w.WriteHeader(code)
		report = struct {
			Error string `json:"error"`
		}{err.Error()}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(report) // a client that went away
}
