package simulate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
	"github.com/sluice-ratelimit/sluice/simulate/accesslog"
)

// envoySource computes the descriptors of a request from Envoy's configuration.
type envoySource struct {
	config     *envoyconfig.Config
	listener   string
	onlyDomain string
	// slots are the slots of headers by name; -1 if the log lacks a header.
	slots map[string]int
	// remote, direct and route are slots, or -1 if the log lacks the field.
	remote, direct, route int
	// metadata are the slots of other dynamic metadata, by the name that an action uses.
	metadata map[string]int
}

func newEnvoySource(o *Options, f *accesslog.Format) (*envoySource, error) {
	s := &envoySource{
		config: o.Envoy, listener: o.Listener, onlyDomain: o.Domain, slots: map[string]int{}, metadata: map[string]int{},
	}
	s.remote = f.Select(accesslog.FieldRemote)
	s.direct = f.Select(accesslog.FieldDirect)
	s.route = f.Select(accesslog.FieldRoute)
	for _, name := range o.Envoy.Inputs() {
		s.slots[name] = f.Select(name)
	}
	for _, name := range []string{":path", ":authority", ":method", ":scheme", accesslog.FieldXFF} {
		s.slots[name] = f.Select(name)
	}
	for _, name := range o.Envoy.MetadataInputs() {
		field := strings.ReplaceAll(name, ".", ":")
		if namespace, path, ok := strings.Cut(name, ":"); ok { // the path may have dots
			field = namespace + ":" + strings.ReplaceAll(path, ".", ":")
		}
		if slot := f.Select("dynamic_metadata(" + strings.ToLower(field) + ")"); slot >= 0 {
			s.metadata[name] = slot
		}
	}
	// An arbitrary request shows whether the configuration calls the service at all.
	calls, err := s.config.Calls(envoyconfig.Request{
		Listener: o.Listener, Logged: func(string) (string, bool, string) { return "", false, "" },
	})
	if err == nil && calls.NotCalled == envoyconfig.OnlyNetworkFilters {
		err = errors.New(calls.NotCalled + ", which a log of requests does not show")
	}
	return s, err
}

func (s *envoySource) header(l *accesslog.Line, name string) (value string, ok bool, unknown string) {
	slot, known := s.slots[name]
	switch {
	case !known || slot < 0:
		return "", false, "not in the log; add %REQ(" + strings.ToUpper(name) + ")% to its format"
	case l.IsAmbiguous(slot):
		return "", false, "ambiguous: a value contains a separator of the format"
	case l.Value(slot) == nil:
		return "", false, ""
	default:
		return string(l.Value(slot)), true, ""
	}
}

func (s *envoySource) appendCalls(r *worker, l *accesslog.Line) error {
	q := envoyconfig.Request{Listener: s.listener, RouteName: string(l.Value(s.route))}
	q.Logged = func(name string) (string, bool, string) { return s.header(l, name) }
	q.Method, _, _ = q.Logged(":method")
	q.Authority, _, _ = q.Logged(":authority")
	q.Path, _, _ = q.Logged(":path")
	q.Scheme, _, _ = q.Logged(":scheme")
	q.Client = l.Address(s.remote)
	q.Remote = l.Address(s.direct)
	for name, slot := range s.metadata {
		if q.Metadata == nil {
			q.Metadata = map[string]string{}
		}
		q.Metadata[name] = string(l.Value(slot))
	}
	calls, err := s.config.Calls(q)
	if err != nil {
		return err
	}
	if why, ok := strings.CutPrefix(calls.NotCalled, envoyconfig.UnknownPrefix); ok {
		r.addUnknown(why)
		return nil
	}
	for i := range calls.ByFilter {
		s.appendCall(r, &calls.ByFilter[i])
	}
	return nil
}

func (s *envoySource) appendCall(r *worker, c *envoyconfig.Call) {
	if why, ok := strings.CutPrefix(c.NotCalled, envoyconfig.UnknownPrefix); ok {
		r.addUnknown(why)
		return
	}
	if c.NotCalled != "" {
		return
	}
	if s.onlyDomain != "" && s.onlyDomain != c.Domain {
		r.batch.otherDomain++
		return
	}
	w := &r.writer
	call := len(w.arena)
	if !w.beginCall([]byte(c.Domain), 0) {
		return
	}
	for i := range c.Descriptors {
		d := &c.Descriptors[i]
		switch {
		case d.NotSent != "":
			continue
		case d.Unknown != "":
			r.addUnknown(fmt.Sprintf("%v: %s", d.Pos, d.Unknown))
			continue
		case d.Lease && r.duration >= 0:
			continue // the lease ends after the logged duration
		case d.HitsUnknown != "":
			r.addUnknown(fmt.Sprintf("%v: %s", d.Pos, d.HitsUnknown))
			continue
		case d.OverrideUnknown != "":
			r.addUnknown(fmt.Sprintf("%v: %s", d.Pos, d.OverrideUnknown))
			continue
		case d.StreamDone:
			r.addUnknown(fmt.Sprintf("%v: sent at the end of the stream, which is not in the log", d.Pos))
			continue
		}
		if !w.beginDescriptor(&descriptors.Descriptor{
			HasHits: d.HasHits, Hits: d.Hits, Refund: d.Refund, HasOverride: d.HasOverride, Override: d.Override,
		}) {
			break
		}
		for _, e := range d.Entries {
			if !w.addEntry([]byte(e.Key), []byte(e.Value)) {
				break
			}
		}
		r.batch.computed++
	}
	w.dropEmptyCall(call)
}
