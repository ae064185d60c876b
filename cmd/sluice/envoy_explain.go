package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/sluice-ratelimit/sluice/cmd/sluice/format"
	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

func (e *explainCmd) validateEnvoy() (err error) {
	switch {
	case e.Addr != "" || e.Domain != "" || e.Descriptor != "" || e.Limit != "":
		return errors.New("--envoy cannot be combined with --addr, --domain, --descriptor or --limit: domain and descriptors follow from the request")
	case e.Output != "text":
		return errors.New("--envoy cannot be combined with --output json, which describes a single descriptor: set --domain and --descriptor")
	case e.Request == "":
		return errors.New("--envoy requires a request, such as 'GET https://shop.example/search?q=1'")
	}
	if err := checkStdinOnce(e.Envoy, e.Config); err != nil {
		return err
	}
	if e.request, err = envoyconfig.ParseRequest(e.Request); err != nil {
		return err
	}
	for _, line := range e.Header {
		h, err := envoyconfig.ParseHeader(line)
		if err != nil {
			return fmt.Errorf("--%w", err)
		}
		e.request.Headers = append(e.request.Headers, h)
	}
	for name := range e.Metadata {
		if namespace, key, ok := strings.Cut(name, ":"); !ok || namespace == "" || key == "" {
			return fmt.Errorf("--metadata %q: must be namespace:key=value", name)
		}
	}
	e.request.Remote = e.Remote
	e.request.Metadata = e.Metadata
	e.request.Listener = e.Listener
	return nil
}

// explainEnvoy explains the calls that Envoy makes for a request, and the rules that match.
func (e *explainCmd) explainEnvoy(c console) error {
	set, err := e.loadValid(c, e.Config)
	if err != nil {
		return err
	}
	config, err := readEnvoy(c, e.Envoy)
	if err != nil {
		return err
	}
	calls, err := config.Calls(e.request)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.out, format.EscapeLines(formatCalls(calls, set)))
	return err
}

// formatCalls formats the calls with a line for each descriptor, and then explains each descriptor
// that Envoy sends for the request.
func formatCalls(calls *envoyconfig.Calls, set *descriptors.Set) string {
	var b strings.Builder
	if calls.Route != "" {
		fmt.Fprintf(&b, "route  %s / %s  (%v)\n", calls.VirtualHost, calls.Route, calls.Pos)
	}
	for i := range calls.ByConnection {
		writeCall(&b, "for each connection, domain", &calls.ByConnection[i], set)
	}
	switch {
	case calls.NotCalled == "":
	case len(calls.ByConnection) > 0:
		fmt.Fprintf(&b, "no call for the request: %s\n", calls.NotCalled)
	default:
		fmt.Fprintf(&b, "no call: %s\n", calls.NotCalled)
	}
	for i := range calls.ByFilter {
		writeCall(&b, "domain", &calls.ByFilter[i], set)
	}
	for i := range calls.ByFilter {
		call := &calls.ByFilter[i]
		for j := range call.Descriptors {
			if d := &call.Descriptors[j]; d.NotSent == "" && d.Unknown == "" {
				fmt.Fprintf(&b, "\ndescriptor %d\n%v", j+1, set.Explain(call.Domain, entriesOf(d.Entries)))
				switch {
				case d.OverrideUnknown != "":
					fmt.Fprintf(&b, "unknown whether the limit override in Envoy's configuration applies, at %v\n",
						d.OverridePos)
				case d.HasOverride && overridesRule(d, set, call.Domain):
					fmt.Fprintf(&b, "the limit override in Envoy's configuration applies: %s, at %v\n",
						formatOverride(d), d.OverridePos)
				}
			}
		}
	}
	return b.String()
}

// writeCall writes a call, with a line for each descriptor.
func writeCall(b *strings.Builder, title string, call *envoyconfig.Call, set *descriptors.Set) {
	fmt.Fprintf(b, "%s %q  (%v)\n", title, call.Domain, call.Filter)
	if len(call.FiltersBefore) > 0 {
		fmt.Fprintf(b, "filters before it, not simulated: %s\n", strings.Join(call.FiltersBefore, ", "))
	}
	if call.NotCalled != "" {
		fmt.Fprintf(b, "no call: %s\n", call.NotCalled)
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for i := range call.Descriptors {
		d := &call.Descriptors[i]
		fmt.Fprintf(table, "%2d\t%s\t%s\n", i+1, d, describeLimits(d, set, call.Domain))
	}
	_ = table.Flush() // to memory
}

// describeLimits returns the limits of a descriptor, or why there are none, and after a tab the
// position that determines this.
func describeLimits(d *envoyconfig.Descriptor, set *descriptors.Set, domain string) string {
	switch {
	case d.Unknown != "":
		return "unknown: " + d.Unknown + "\t" + d.Pos.String()
	case d.NotSent != "":
		return "not sent: " + d.NotSent + "\t" + d.Pos.String()
	}
	var more string
	switch {
	case d.HitsUnknown != "":
		more = ", hits unknown: " + d.HitsUnknown
	case d.HasHits:
		more = ", " + rules.Count(int(d.Hits), "hit")
	}
	if d.Refund {
		more += ", a refund"
	}
	if d.StreamDone {
		more += ", at the end of the stream"
	}
	x := set.Explain(domain, entriesOf(d.Entries))
	switch {
	case x.Exempt != "":
		return "exempt, so the request is not charged: " + x.Exempt + "\t" + d.Pos.String()
	case d.OverrideUnknown != "":
		return "unknown: " + d.OverrideUnknown + "\t" + d.OverridePos.String()
	case d.HasOverride && overridesRule(d, set, domain):
		text := formatOverride(d) + ", the limit override in Envoy's configuration"
		if x.Rule != nil {
			text += fmt.Sprintf(", instead of the rule at %v", x.Rule.Pos())
		}
		return text + more + "\t" + d.OverridePos.String()
	case x.Rule == nil:
		return "no limit" + more + "\t" + d.Pos.String()
	}
	limits := make([]string, len(x.Rule.Limits))
	for i, l := range x.Rule.Limits {
		limits[i] = l.String()
		if l.Name != "" {
			limits[i] = l.Name + ": " + limits[i]
		}
	}
	if n := len(x.Rule.Candidates()); n > 0 {
		more += fmt.Sprintf(", and %s that denies nothing", rules.Count(n, "limit"))
	}
	return strings.Join(limits, "; ") + more + "\t" + x.Rule.Pos().String()
}

func formatOverride(d *envoyconfig.Descriptor) string {
	return fmt.Sprintf("%d/%v", d.Override.RequestsPerUnit, rules.Unit(d.Override.Unit))
}

// overridesRule reports whether the limit override of a descriptor replaces the limit of the rules.
func overridesRule(d *envoyconfig.Descriptor, set *descriptors.Set, domain string) bool {
	request := descriptors.Request{Domain: []byte(domain), Descriptors: []descriptors.Descriptor{{
		Entries: entriesOf(d.Entries), HasOverride: true, Override: d.Override,
	}}}
	var p descriptors.Plan
	set.Plan(&p, &request, descriptors.Global{ReadOnly: true})
	return len(p.Matches) > 0 && p.Matches[0].Override
}

func entriesOf(of []envoyconfig.Entry) []descriptors.Entry {
	entries := make([]descriptors.Entry, len(of))
	for i, e := range of {
		entries[i] = descriptors.Entry{Key: []byte(e.Key), Value: []byte(e.Value)}
	}
	return entries
}
