// Package kustomize holds manifests for Kubernetes. Its tests build every
// combination that README.md offers and hold it against the types of Kubernetes, the
// policy for restricted pods, the real sluice and the real Envoy. They need no
// cluster.
package kustomize
