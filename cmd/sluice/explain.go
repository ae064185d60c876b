package main

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/descriptors"
)

type explainCmd struct {
	Config       []string `name:"config" short:"c" default:"./config" sep:"none" placeholder:"PATH" help:"File or directory of rules; may be repeated. Default ./config."`
	Domain       string   `required:"" short:"d" help:"The request's domain."`
	Descriptor   string   `required:"" placeholder:"K=V,K2=V2" sep:"none" help:"The descriptor's entries in order. A backslash makes the next character part of a key or value."`
	Defaults     string   `placeholder:"FILE" help:"As serve --defaults."`
	MergeDomains bool     `help:"Merge files of one domain, as serve --merge-domains does."`
	AllOrNothing bool     `help:"As serve --all-or-nothing."`
}

// Run explains one descriptor.
func (e *explainCmd) Run(c console) error {
	entries, err := parseEntries(e.Descriptor)
	if err != nil {
		return err
	}
	set, diagnostics, err := descriptors.Load(e.Config, e.Defaults, descriptors.Options{MergeDomains: e.MergeDomains, AllOrNothing: e.AllOrNothing})
	if err != nil {
		return loadError(err, e.Defaults)
	}
	if err := diagnostics.Err(); err != nil {
		return fmt.Errorf("these rules do not load:\n%w", err)
	}
	_, err = fmt.Fprint(c.out, set.Explain(e.Domain, entries))
	return err
}
