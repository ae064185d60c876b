package main

import (
	"fmt"
	"slices"

	"github.com/sluice-ratelimit/sluice/server/access"
)

// allowList reads --grpc-allow. It returns nil if the flag is not given.
func allowList(texts []string) (*access.AllowList, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	allow, err := access.ParseAllowList(texts)
	if err != nil {
		return nil, fmt.Errorf("--grpc-allow: %w", err)
	}
	return allow, nil
}

// adviseAllow returns where an allow-list, which may be nil, and the domains of the
// rules do not fit together. One of the two may be misspelt.
func adviseAllow(allow *access.AllowList, domains []string) []string {
	if allow == nil {
		return nil
	}
	var odd []string
	granted := allow.Domains()
	for _, d := range granted {
		if !slices.Contains(domains, d) {
			odd = append(odd, fmt.Sprintf("--grpc-allow names domain %q, which no rule is for", d))
		}
	}
	for _, d := range domains {
		if !allow.Open() && !slices.Contains(granted, d) {
			odd = append(odd, fmt.Sprintf("--grpc-allow grants domain %q to nobody: every request for it is denied", d))
		}
	}
	return odd
}
