// Package envoyconfig reads configuration of Envoy and says what Envoy will ask a rate
// limit service: which descriptors a request leads to ([Config.Calls]), and what stands
// between a configuration and the rules of a service ([Config.Check]).
//
// # What is read
//
// A bootstrap, xDS resources, the answer of the admin page's /config_dump, and Istio's
// EnvoyFilters, whose patches are applied as istiod applies them. Also parts of these, such as
// routes alone, and what tools put around them. All of these are trees of fields, in YAML
// or JSON. Fields are found by their names in Envoy's API or in camelCase, and the messages
// below typed_config by their @type. Package api judges all of them by the schema of Envoy
// 1.40, and what that Envoy rejects is an error. Messages that the schema does not have may
// be anything, and with the dump of another release an unknown field is a note. The package
// does not use generated code of Envoy's API, which knows no lines.
//
// # What is not known
//
// Nothing is guessed. Where a descriptor depends on what no configuration says, such as the
// metadata that another filter sets, it is unknown and names the action that is to blame.
// The same holds for routes. Headers are taken as given: filters that stand before the rate
// limit filter may change them, and are not run.
//
// # Cost
//
// All fields are kept for as long as the Config, about four times its size for JSON. YAML
// takes much more while it is read. A Config is immutable; any number of goroutines may use
// it.
package envoyconfig
