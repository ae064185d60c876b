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
	"time"

	gateway "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/envoyproxy/gateway/api/v1alpha1/validation"
	contour "github.com/projectcontour/contour/apis/projectcontour/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/sluice-ratelimit/sluice/e2e/sluice"
)

// checkGateways checks the objects that gateways read.
func (o *objects) checkGateways() {
	if err := errors.Join(o.checkFilters(), o.checkContour()); err != nil {
		o.addProblem("%v", err)
	}
	o.checkAIGateway()
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

// checkAIGateway compares sluice's xDS flags and its Service with the constants of Envoy AI Gateway:
// internal/ratelimit/runner (NodeID, DefaultPort), and its chart's name of the controller and
// controller.quotaRateLimitServiceAddr.
func (o *objects) checkAIGateway() {
	for _, in := range o.instances() {
		if in.flags["xds-addr"] == "" {
			continue
		}
		if in.flags["xds-addr"] != "ai-gateway-controller.envoy-ai-gateway-system.svc.cluster.local:18002" || in.flags["xds-node-id"] != "envoy-ai-gateway-ratelimit" {
			o.addProblem("%s: want the address and the node of Envoy AI Gateway", in.of)
		}
		if _, given := in.flags["start-without-rules"]; !given {
			o.addProblem("%s: want --start-without-rules: without a QuotaPolicy AI Gateway sends nothing", in.of)
		}
		if _, found := findObject[*corev1.Service](o, "envoy-gateway-system", "envoy-ai-gateway-ratelimit"); !found {
			o.addProblem("%s: there is no Service where AI Gateway looks for it", in.of)
		}
	}
}

func (o *objects) checkContour() error {
	for _, one := range o.all {
		switch r := one.(type) {
		case *contour.ExtensionService:
			for _, s := range r.Spec.Services {
				if err := o.checkServiceName(s.Name, r.Namespace, int32(s.Port)); err != nil {
					return err
				}
			}
			if len(r.Spec.Services) == 0 || r.Spec.Protocol == nil || *r.Spec.Protocol != "h2c" {
				return fmt.Errorf("ExtensionService %s: want protocol h2c and a Service", r.Name)
			}
			if _, err := time.ParseDuration(r.Spec.TimeoutPolicy.Response); err != nil {
				return err
			}
		case *contour.ContourConfiguration:
			limits := r.Spec.RateLimitService
			if limits == nil {
				return errors.New("ContourConfiguration has no rateLimitService")
			}
			if _, found := findObject[*contour.ExtensionService](o, limits.ExtensionService.Namespace, limits.ExtensionService.Name); !found {
				return fmt.Errorf("there is no ExtensionService %v", limits.ExtensionService)
			}
			if r.Namespace != "projectcontour" || limits.DefaultGlobalRateLimitPolicy == nil {
				return errors.New("ContourConfiguration: want a default policy, in projectcontour")
			}
			if err := o.checkDomain(limits.Domain); err != nil {
				return err
			}
		}
	}
	return nil
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
