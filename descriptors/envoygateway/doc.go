// Package envoygateway makes the rules that Envoy Gateway makes.
//
// Envoy Gateway has no rule files. It makes rules of BackendTrafficPolicies, of the
// Gateways and the routes that they target, and sends them to the rate limit service by
// xDS. The names in them come from those objects: the domain is the name of a listener, or
// of the policy for a rule that is shared, and descriptors have the names of routes. So a
// policy means nothing without its targets.
//
// The package does what internal/gatewayapi and internal/xds/translator of Envoy Gateway
// 1.6 to 1.9 do with objects that are valid: it does not look for Services, Secrets or
// the Gateway's class. It reads no ListenerSets, and of routes HTTPRoutes and GRPCRoutes.
// testdata/theirs.py holds it against the files that Envoy Gateway tests itself with.
package envoygateway
