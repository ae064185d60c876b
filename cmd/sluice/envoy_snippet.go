package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/sluice-ratelimit/sluice/descriptors"
	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
	"github.com/sluice-ratelimit/sluice/descriptors/rules"
	"github.com/sluice-ratelimit/sluice/envoyconfig"
)

type envoySnippetCmd struct {
	Config    []string `name:"config" short:"c" sep:"none" placeholder:"PATH" help:"Rule file or directory of rule files. May be repeated. Default: ./config."`
	Domain    string   `short:"d" placeholder:"DOMAIN" help:"Domain of the rules. Required if there are several."`
	For       string   `enum:"envoy,istio,istio-sidecar" default:"envoy" placeholder:"envoy|istio|istio-sidecar" help:"Output: envoy (parts of an Envoy bootstrap or xDS resources), istio (an EnvoyFilter for an ingress gateway) or istio-sidecar (one for the sidecars of a workload)."`
	From      []string `sep:"none" placeholder:"KEY=SOURCE" help:"Source of a key's value: header:NAME, jwt:CLAIM (of a token that an earlier filter has verified) or certificate (the URI name in the client's certificate). May be repeated."`
	LLM       string   `name:"llm" enum:"openai,anthropic," default:"" placeholder:"openai|anthropic" help:"Charge the tokens of this API's responses, streamed or not. Without --config, rules are printed, too."`
	ruleFlags `embed:""`
}

// llmRules are the rules for --llm without --config.
//
//go:embed llm.yaml
var llmRules string

func (k *envoySnippetCmd) Run(c console) error {
	header := ""
	parsed, _ := rulefile.Parse("llm.yaml", []byte(llmRules))
	set, _ := descriptors.Compile(parsed, descriptors.Options{}) // valid, as tests check
	if k.LLM != "" && len(k.Config) == 0 {
		header = "# Rules, for a file llm.yaml:\n#   " +
			strings.ReplaceAll(strings.TrimSpace(llmRules), "\n", "\n#   ") + "\n\n"
	} else if loaded, err := k.loadValid(c, k.Config); err != nil {
		return err
	} else {
		set = loaded
	}
	domain := k.Domain
	names := set.Domains()
	switch {
	case domain == "" && len(names) == 1:
		domain = names[0]
	case domain == "":
		return fmt.Errorf("the rules have %s: select one with --domain: %s", rules.Count(len(names), "domain"),
			strings.Join(names, ", "))
	default:
		if err := checkDomain(domain, names); err != nil {
			return err
		}
	}
	sources, err := k.sources(set, domain)
	if err != nil {
		return err
	}
	target := envoyconfig.Target(k.For)
	snippet := envoyconfig.Snippet(set, domain, envoyconfig.SnippetOptions{Target: target, LLM: k.LLM, Sources: sources})
	_, err = fmt.Fprint(c.out, header+snippet)
	return err
}

// sources parses --from. A key without a rule is an error.
func (k *envoySnippetCmd) sources(set *descriptors.Set, domain string) (map[string]envoyconfig.Source, error) {
	sources := map[string]envoyconfig.Source{}
	for _, arg := range k.From {
		key, text, found := strings.Cut(arg, "=")
		if !found {
			return nil, fmt.Errorf("--from %s: want KEY=SOURCE, such as user=jwt:sub", rules.Shorten(arg))
		}
		source, err := envoyconfig.ParseSource(text)
		if err != nil {
			return nil, fmt.Errorf("--from %s: %w", rules.Shorten(arg), err)
		}
		if !envoyconfig.HasKey(set, domain, key) {
			return nil, fmt.Errorf("--from %s: no rule of domain %q has the key %s", rules.Shorten(arg), domain,
				rules.Shorten(key))
		}
		sources[key] = source
	}
	return sources, nil
}
