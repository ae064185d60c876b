package main

import (
	"context"
	"fmt"
	"regexp"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-ratelimit/sluice/server/access"
	"github.com/sluice-ratelimit/sluice/server/testcert"
	"github.com/sluice-ratelimit/sluice/xds/adstest"
	"github.com/sluice-ratelimit/sluice/xds/ratelimitv3"
)

// startADS starts a management server, which speaks the aggregated discovery service (ADS) of xDS.
func startADS(ts *testscript.TestScript, _ bool, args []string) {
	o := adstest.Options{NodeID: args[0]}
	if len(args) > 1 {
		files := testcert.PathsIn(ts.MkAbs(args[1]))
		secure, err := access.ServerTLS(access.TLSOptions{Cert: files.Cert, Key: files.Key, CA: files.CA})
		ts.Check(err)
		o.Credentials = secure
	}
	ads, err := adstest.Start(o)
	ts.Check(err)
	ts.Defer(ads.Stop)
	ts.Check(ads.Set("1", &ratelimitv3.RateLimitConfig{
		Name: "d", Domain: "d",
		Descriptors: []*ratelimitv3.RateLimitDescriptor{{
			Key:       "k",
			RateLimit: &ratelimitv3.RateLimitPolicy{Unit: ratelimitv3.RateLimitUnit_YEAR, RequestsPerUnit: 7},
		}},
	}))
	ts.Setenv("ads", ads.Addr())
	s, _ := ts.Value(servers{}).(*servers)
	s.ads = ads
}

// waitForADSRequest waits until a request to the management server matches.
func waitForADSRequest(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile(args[0])
	s, _ := ts.Value(servers{}).(*servers)
	_, err := s.ads.Wait(context.Background(), func(r adstest.Request) bool {
		return want.MatchString(fmt.Sprintf("node %s metadata %v headers %v", r.GetNode().GetId(), r.GetNode().GetMetadata().AsMap(), map[string][]string(r.Headers)))
	})
	ts.Check(err)
}
