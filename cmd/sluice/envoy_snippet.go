package main

import (
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

type envoySnippetCmd struct {
	Config    []string `name:"config" short:"c" sep:"none" placeholder:"PATH" help:"Rule file or directory of rule files. May be repeated. Default: ./config."`
	Domain    string   `short:"d" placeholder:"DOMAIN" help:"Domain of the rules. Required if there are several."`
	For       string   `enum:"envoy,istio" default:"envoy" placeholder:"envoy|istio" help:"Output: envoy (parts of an Envoy bootstrap or xDS resources) or istio (EnvoyFilters)."`
	RLQS      bool     `name:"rlqs" help:"Print the rate limit quota filter, for rules with quota, instead of the rate limit filter."`
	ruleFlags `embed:""`
}

func (k *envoySnippetCmd) Run(c console) error {
	set, err := k.loadValid(c, k.Config)
	if err != nil {
		return err
	}
	domain, names := k.Domain, set.Domains()
	switch {
	case domain == "" && len(names) == 1:
		domain = names[0]
	case domain == "":
		return fmt.Errorf("the rules have %s: select one with --domain: %s", rules.Count(len(names), "domain"), strings.Join(names, ", "))
	default:
		if err := checkDomain(domain, names); err != nil {
			return err
		}
	}
	snippet := envoyconfig.Snippet(set, domain, k.For == "istio")
	if k.RLQS {
		if snippet, err = envoyconfig.QuotaSnippet(set, domain, k.For == "istio"); err != nil {
			return err
		}
	}
	_, err = fmt.Fprint(c.out, snippet)
	return err
}
