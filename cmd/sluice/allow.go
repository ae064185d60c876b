package main

import (
	"fmt"

	"github.com/sluice-ratelimit/sluice/server/access"
)

// allowList parses --grpc-allow. It returns nil if the flag is not given.
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
