// Package istio applies Istio's EnvoyFilters as istiod does: which patches a proxy gets, in which
// order, what they match, and which patches istiod or Kubernetes ignores or rejects.
//
// It follows pilot/pkg/networking/core/envoyfilter and pkg/config/validation/envoyfilter of Istio's
// main branch in August 2026. The configuration that is patched comes from Services, Gateways and
// VirtualServices, which are not in the files. Only the parts common to all such configurations are modelled:
// the contexts, the filters of a connection manager, and the forms of names.
package istio
