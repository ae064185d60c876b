package main

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

type envoySnippetCmd struct {
	Part      string   `arg:"" optional:"" enum:"soft," default:"" placeholder:"soft" help:"soft: print only routes for requests above soft limits, and the filter that they need. By default, print what calls sluice for the rules."`
	Config    []string `name:"config" short:"c" sep:"none" placeholder:"PATH" help:"Rule file or directory of rule files. May be repeated. Default: ./config."`
	Domain    string   `short:"d" placeholder:"DOMAIN" help:"Domain of the rules. Required if there are several."`
	For       string   `enum:"envoy,istio" default:"envoy" placeholder:"envoy|istio" help:"Output: envoy (parts of an Envoy bootstrap or xDS resources) or istio (EnvoyFilters)."`
	LLM       string   `name:"llm" enum:"openai,anthropic," default:"" placeholder:"openai|anthropic" help:"Charge the tokens of this API's responses, streamed or not. Without --config, rules are printed, too."`
	RLQS      bool     `name:"rlqs" help:"Print the rate limit quota filter, for rules with quota, instead of the rate limit filter."`
	ruleFlags `embed:""`
}

// llmRules are the rules for --llm without --config.
//
//go:embed llm.yaml
var llmRules string

func (k *envoySnippetCmd) Run(c console) error {
	if k.LLM != "" && k.RLQS {
		return errors.New("--llm and --rlqs cannot be combined: the rate limit quota filter does not charge tokens")
	}
	if k.Part != "" && (k.LLM != "" || k.RLQS) {
		return errors.New("soft cannot be combined with --llm or --rlqs: it prints other parts of the configuration; use two commands")
	}
	header := ""
	parsed, _ := rulefile.Parse("llm.yaml", []byte(llmRules))
	set, _ := descriptors.Compile(parsed, descriptors.Options{}) // valid, as tests check
	if k.LLM != "" && len(k.Config) == 0 {
		header = "# Rules, for a file llm.yaml:\n#   " + strings.ReplaceAll(strings.TrimSpace(llmRules), "\n", "\n#   ") + "\n\n"
	} else if loaded, err := k.loadValid(c, k.Config); err != nil {
		return err
	} else {
		set = loaded
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
	snippet := header + envoyconfig.Snippet(set, domain, k.LLM, k.For == "istio")
	if k.Part != "" {
		var err error
		if snippet, err = envoyconfig.SoftSnippet(set, domain, k.For == "istio"); err != nil {
			return err
		}
	}
	if k.RLQS {
		var err error
		if snippet, err = envoyconfig.QuotaSnippet(set, domain, k.For == "istio"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(c.out, snippet)
	return err
}
