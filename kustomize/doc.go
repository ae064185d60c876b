// Package kustomize contains manifests for Kubernetes. Its tests build every combination in README.md, and check it
// against the types of Kubernetes, the policy for restricted pods, the real sluice and the real Envoy. They need no
// cluster.
package kustomize
