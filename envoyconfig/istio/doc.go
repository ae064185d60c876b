// Package istio applies Istio's EnvoyFilters as istiod does: which patches a proxy gets, in which
// order, what each one matches, and which ones istiod or Kubernetes drops or rejects.
//
// It follows pilot/pkg/networking/core/envoyfilter and pkg/config/validation/envoyfilter of Istio's
// main branch in August 2026. The configuration below the patches comes from Services, Gateways and VirtualServices,
// which no file has, so only the parts that are the same for all of them are modelled: the contexts,
// the filters of a connection manager, and the forms of names.
package istio
