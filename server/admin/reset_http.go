package admin

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/cpu"
	"github.com/sluice-ratelimit/sluice/server/live"
)

// ResetPath is the path for resetting counters by selection.
const ResetPath = "/api/v1/reset"

// tokenLife is the time within which a preview may be confirmed.
const tokenLife = time.Minute

// resetHandler resets counters. The first POST returns a preview and a token; a
// second one with the token resets.
type resetHandler struct {
	*API
	secret [32]byte
}

func newResetHandler(a *API) *resetHandler {
	r := &resetHandler{API: a}
	_, _ = rand.Read(r.secret[:]) // never fails: crypto/rand ends the process instead
	return r
}

func (h *resetHandler) endpoint() endpoint {
	return endpoint{
		methods:     map[string]access.Right{http.MethodPost: access.Write},
		methodsText: "POST",
		answer:      func(r *http.Request, by string) (any, error) { return h.answer(r, by) },
	}
}

func (h *resetHandler) answer(r *http.Request, by string) (*live.Reset, error) {
	which, token, err := parseSelection(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	if which.Descriptor != "" {
		d, err := parseDescriptor(which.Descriptor, which.Limit)
		if err := cmp.Or(err, h.service.Settings().Bounds.Check(d.Entries)); err != nil {
			return nil, err
		}
	}
	now, _ := h.clock.Now()
	at := time.Unix(0, int64(now))
	if token != "" {
		if err := h.checkToken(token, which, at); err != nil {
			return nil, err
		}
	}
	var report *live.Reset
	ctx := r.Context()
	cpu.FromContext(ctx).Wait(func() { // for a store
		report, err = h.ResetCounters(ctx, now, which, token != "")
	})
	if report != nil && report.Done && report.Counters > 0 {
		h.metrics.CounterResets.Add(float64(report.Counters))
		h.logger.Info("counters reset", zap.String("by", by), zap.String("selection", report.Selection),
			zap.Int("counters", report.Counters), zap.Uint64("used", report.Used))
		if err != nil {
			return nil, newRequestError(http.StatusServiceUnavailable,
				"%d counters were reset, then an error occurred: %v", report.Counters, err)
		}
	}
	switch {
	case err != nil:
		return nil, newRequestError(http.StatusServiceUnavailable, "%v", err)
	case report.Counters == 0 && report.NotReset > 0:
		return nil, newRequestError(http.StatusConflict, "%s: cannot reset %d counters: their names in the store contain client values, as in envoyproxy/ratelimit, and these are not recorded; reset the counters one by one with sluice reset --descriptor K=V", which, report.NotReset)
	case report.Counters == 0:
		return nil, newRequestError(http.StatusNotFound, "nothing to reset: %s: %s", which, h.whyNothing(which))
	case !report.Done:
		report.Token = h.newToken(which, at.Add(tokenLife))
	}
	return report, nil
}

// whyNothing returns why a selection has no counters.
func (h *resetHandler) whyNothing(which live.Selection) string {
	active, err := h.service.Active()
	switch {
	case err == nil && !slices.Contains(active.Set.Domains(), which.Domain):
		return "the rules have no such domain" + rules.DidYouMean(which.Domain, active.Set.Domains())
	case which.Descriptor != "":
		return "no limit applies to it (see sluice explain)"
	default:
		return "no such key is denied"
	}
}

// newToken returns a token that confirms a selection: the time of expiry, and a keyed hash of the
// time and the selection.
func (h *resetHandler) newToken(which live.Selection, until time.Time) string {
	expires := strconv.FormatInt(until.Unix(), 10)
	mac := hmac.New(sha256.New, h.secret[:])
	fmt.Fprintf(mac, "%s %q", expires, []string{which.Domain, which.Rule, which.Key, which.Descriptor, which.Limit})
	return expires + "." + hex.EncodeToString(mac.Sum(nil)[:16])
}

func (h *resetHandler) checkToken(token string, which live.Selection, now time.Time) error {
	expires, _, _ := strings.Cut(token, ".")
	seconds, err := strconv.ParseInt(expires, 10, 64)
	until := time.Unix(seconds, 0)
	switch {
	case err != nil || !hmac.Equal([]byte(token), []byte(h.newToken(which, until))):
		return newRequestError(http.StatusForbidden, "the token does not match this selection: send the request without a token and use the one in the response")
	case now.After(until):
		return newRequestError(http.StatusForbidden,
			"the token is older than %v: send the request without a token for a new one", tokenLife)
	}
	return nil
}

// parseSelection parses the query of a reset.
func parseSelection(query string) (which live.Selection, token string, err error) {
	values, err := readQuery(query, "domain", "rule", "key", "descriptor", "limit", "token")
	if err != nil {
		return which, "", err
	}
	// Keys are displayed with a number sign.
	which = live.Selection{
		Domain: values.Get("domain"), Rule: values.Get("rule"), Key: strings.TrimPrefix(values.Get("key"), "#"), Descriptor: values.Get("descriptor"), Limit: values.Get("limit"),
	}
	if which.Domain == "" {
		return which, "", errors.New("parameter domain is missing: write ?domain=D, and &rule=PATH or &key=HASH for some of its keys")
	}
	for _, name := range []string{"rule", "key", "descriptor"} {
		if values.Has(name) && strings.TrimPrefix(values.Get(name), "#") == "" {
			return which, "", fmt.Errorf("parameter %s is empty: omit it to reset all denied keys", name)
		}
	}
	return which, values.Get("token"), which.Check()
}
