package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/admin"
	"github.com/sluice-ratelimit/sluice/server/cpu"
)

// usageHandler serves the usage of the descriptors in the headers x-sluice-domain and
// x-sluice-descriptor, which Envoy sets. It charges nothing.
type usageHandler struct{ *Server }

// maxUsageDescriptors is the maximum number of descriptors of a request.
const maxUsageDescriptors = 16

func (s usageHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "Method Not Allowed: must be GET", http.StatusMethodNotAllowed)
		return
	}
	domain, all, err := usageQuery(r.Header)
	settings := s.service.Settings()
	for i := range all {
		if err == nil {
			err = settings.Bounds.Check(all[i].Entries)
		}
	}
	if err != nil {
		http.Error(w, "Bad Request: "+err.Error(), http.StatusBadRequest)
		return
	}
	if allow := settings.Allow; allow != nil {
		var client *access.Client
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			client = allow.Client(r.TLS.PeerCertificates[0])
		}
		if !client.CanAccess([]byte(domain)) {
			s.metrics.Rejected.NotAllowed.Inc()
			http.Error(w, "Forbidden: "+access.Denied(client, []byte(domain)).Error(), http.StatusForbidden)
			return
		}
	}
	var usage *admin.Usage
	task := cpu.FromContext(r.Context())
	task.Wait(func() { usage, err = s.admin.Usage(domain, all) }) // for a store
	switch {
	case admin.IsUnknownDomain(err):
		http.Error(w, "Not Found: "+err.Error(), http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, "Service Unavailable: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	text, err := json.Marshal(usage)
	if err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		s.logger.Error("failed to encode the usage", zap.Error(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	task.Pause()                       // the response is written without further work
	_, _ = w.Write(append(text, '\n')) // an error means that the client has disconnected
}

// usageQuery returns the domain and the descriptors in the headers of a request. Each
// x-sluice-descriptor contains one entry, so that no value can add another: key=value begins a
// descriptor, and &key=value continues it. HTTP removes spaces at the ends of a header, so both can be
// in double quotes.
func usageQuery(h http.Header) (domain string, all []descriptors.Descriptor, err error) {
	domains := h.Values("X-Sluice-Domain")
	lines := h.Values("X-Sluice-Descriptor")
	switch {
	case len(domains) != 1 || domains[0] == "":
		return "", nil, fmt.Errorf("%d headers x-sluice-domain: the proxy must set one, and remove that of the client",
			len(domains))
	case len(lines) == 0:
		return "", nil, errors.New("no header x-sluice-descriptor: the proxy must set it")
	}
	for _, line := range lines {
		if quoted, ok := strings.CutPrefix(line, `"`); ok {
			if line, ok = strings.CutSuffix(quoted, `"`); !ok {
				return "", nil, errors.New(`a header x-sluice-descriptor begins with " and does not end with "`)
			}
		}
		entry, continues := strings.CutPrefix(line, "&")
		key, value, ok := strings.Cut(entry, "=")
		switch {
		case !ok || key == "":
			return "", nil, errors.New("a header x-sluice-descriptor is not key=value or &key=value")
		case continues && len(all) == 0:
			return "", nil, errors.New("the first header x-sluice-descriptor begins with &")
		case !continues && len(all) == maxUsageDescriptors:
			return "", nil, fmt.Errorf("more than %d descriptors", maxUsageDescriptors)
		case !continues:
			all = append(all, descriptors.Descriptor{})
		}
		last := &all[len(all)-1]
		last.Entries = append(last.Entries, descriptors.Entry{Key: []byte(key), Value: []byte(value)})
	}
	return domains[0], all, nil
}
