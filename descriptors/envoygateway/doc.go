// Package envoygateway translates policies of Envoy Gateway into the rules that Envoy Gateway makes
// from them.
//
// Envoy Gateway has no rule files. It translates BackendTrafficPolicies, with the Gateways and
// routes that they target, into rules, and sends these to the rate limit service by xDS. Names in
// the rules come from those objects: the domain is the name of a listener, or of the policy for a
// shared rule, and descriptors have the names of routes. So a policy cannot be translated without
// its targets.
//
// The package does what internal/gatewayapi and internal/xds/translator of Envoy Gateway 1.6 to 1.9
// do with valid objects: it does not look for Services, Secrets or the Gateway's class. It does not
// read ListenerSets, nor routes other than HTTPRoutes and GRPCRoutes. testdata/theirs.py compares
// it with Envoy Gateway's own test files.
package envoygateway
