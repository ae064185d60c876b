package kustomize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	gateway "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/envoyproxy/gateway/api/v1alpha1/validation"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// checkGateways checks the configuration of Envoy Gateway. Objects of other gateways are compared with those of the chart
// and of examples, which are run.
func (o *objects) checkGateways() {
	for _, one := range o.all {
		config, ok := one.(*corev1.ConfigMap)
		if !ok || config.Data["envoy-gateway.yaml"] == "" {
			continue
		}
		if config.Name != "envoy-gateway-config" || config.Namespace != "envoy-gateway-system" {
			o.addProblem("Envoy Gateway does not read ConfigMap %s of %s", config.Name, config.Namespace)
		}
		if err := o.checkEnvoyGateway(config.Data["envoy-gateway.yaml"]); err != nil {
			o.addProblem("envoy-gateway.yaml: %v", err)
		}
	}
}

// checkEnvoyGateway validates a configuration with Envoy Gateway's own code, and starts sluice with the Deployment
// generated from it.
func (o *objects) checkEnvoyGateway(text string) error {
	config := &gateway.EnvoyGateway{}
	if _, _, err := decoder.Decode([]byte(text), nil, config); err != nil {
		return err
	}
	if err := validation.ValidateEnvoyGateway(config); err != nil {
		return err
	}
	if config.RateLimit == nil || config.RateLimit.Timeout == nil || config.RateLimit.FailClosed {
		return errors.New("want a timeout, and failOpen")
	}
	made := config.Provider.Kubernetes.RateLimitDeployment
	if made.Replicas == nil || *made.Replicas != 1 {
		return errors.New("want one replica")
	}
	// The relevant part of the Deployment that Envoy Gateway generates; e2e/dropin has its complete environment.
	base := appsv1.Deployment{}
	base.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(300))
	base.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "envoy-ratelimit", Image: *made.Container.Image, Resources: *made.Container.Resources,
		Env: append([]corev1.EnvVar{{Name: "REDIS_URL", Value: config.RateLimit.Backend.Redis.URL}}, made.Container.Env...),
	}}
	patched, err := patch(base, made.Patch)
	if err != nil {
		return err
	}
	containers := patched.Spec.Template.Spec.Containers
	if len(containers) != 1 {
		return fmt.Errorf("the patch makes %d containers", len(containers))
	}
	_, tag, _ := strings.Cut(containers[0].Image, ":")
	if !release.MatchString(containers[0].Image) || !strings.Contains(manifests["components/version/kustomization.yaml"], "newTag: "+tag+"\n") {
		return fmt.Errorf("image %s, want that of components/version", containers[0].Image)
	}
	in := &instance{of: "envoy-ratelimit", container: &containers[0], pod: &patched.Spec.Template.Spec}
	if err := in.parse(in.container.Args); err != nil {
		return err
	}
	o.checkResources(in)
	// Sluice would start without the missing Redis and try to connect forever.
	memory := corev1.EnvVar{Name: "BACKEND_TYPE", Value: "memory"}
	if strings.Contains(config.RateLimit.Backend.Redis.URL, ".invalid:") && !slices.Contains(in.container.Env, memory) {
		return errors.New("there is no Redis: want BACKEND_TYPE=memory")
	}
	return startDropIn(in.container)
}

func patch(base appsv1.Deployment, with *gateway.KubernetesPatchSpec) (*appsv1.Deployment, error) {
	original, err := json.Marshal(base)
	if err != nil {
		return nil, err
	}
	text, err := strategicpatch.StrategicMergePatch(original, with.Value.Raw, base)
	if err != nil {
		return nil, err
	}
	patched := &appsv1.Deployment{}
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	_, _, err = decoder.Decode(text, &kind, patched)
	return patched, err
}

// startDropIn starts the program like envoyproxy/ratelimit.
func startDropIn(c *corev1.Container) error {
	dir, err := os.MkdirTemp(scratch, "")
	if err != nil {
		return err
	}
	rules := filepath.Join(dir, "config")
	options := sluice.Options{Binary: filepath.Join(dir, "ratelimit"), Args: append([]string{"--config", rules}, c.Args...)}
	if err := errors.Join(os.Symlink(binary, options.Binary), os.Mkdir(rules, 0o700)); err != nil {
		return err
	}
	for _, v := range c.Env {
		options.Env = append(options.Env, v.Name+"="+v.Value)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := sluice.Start(ctx, options)
	if err != nil {
		return err
	}
	defer s.Kill()
	if strings.Contains(s.Log(), "ignoring unknown arguments") {
		return fmt.Errorf("arguments of %q are unknown: %s", c.Args, s.Log())
	}
	return nil
}
