// Package envoyconfig reads configuration of Envoy. It computes the calls that Envoy makes to a
// rate limit service for a request ([Config.Calls]), and checks a configuration against the rules
// of the service ([Config.Check]).
//
// # Input
//
// Files contain a bootstrap, xDS resources, the output of the admin endpoint /config_dump, or
// Istio's EnvoyFilters, whose patches are merged as istiod merges them. Excerpts, such as single
// routes, and the output formats of common tools are read, too. All of these are trees of fields in
// YAML or JSON. Fields have their protobuf or camelCase names, and @type names the message of a
// typed_config.
//
// Package api validates the files against the schema of Envoy 1.40: Read returns an error if that
// Envoy rejects them. Messages outside the schema can be anything, and in a dump of another release
// an unknown field is a note. The package does not use Envoy's generated code, which does not keep
// positions.
//
// # Unknown values
//
// If a descriptor depends on something outside the configuration, such as metadata set by another
// filter, it is reported as unknown, with the responsible action. The same applies to routes.
// Filters before the rate limit filter are not simulated, although they may change headers.
//
// # Cost
//
// A Config keeps all fields in memory, about four times the size of a JSON file. Reading YAML takes
// much more. A Config is immutable and safe for concurrent use.
package envoyconfig
