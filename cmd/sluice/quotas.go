package main

import (
	"github.com/sluice-ratelimit/sluice/rlqs"
	"github.com/sluice-ratelimit/sluice/server/quota"
)

// This file is all that connects the program with the tree rlqs: tools/without-rlqs.sh removes both.
func init() { //nolint:gochecknoinits // so that no other file names rlqs
	newQuotas = func(o quota.Options) quota.Service { return rlqs.New(o) }
}
