package kustomize

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/sluice-ratelimit/sluice/e2e/envoy"
)

// checkPods checks pods against the policy of a restricted namespace and the requirements of sluice.
func (o *objects) checkPods() {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		o.addProblem("pod security: %v", err)
		return
	}
	level := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	templates := o.pods()
	for workload, template := range templates {
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &template.ObjectMeta, &template.Spec))
		if !result.Allowed {
			o.addProblem("%s: not restricted: %s", workload.GetName(), result.ForbiddenDetail())
		}
		o.checkPod(workload, template)
	}
	ours := o.instances()
	if len(ours) == 0 && len(templates) > 0 {
		o.addProblem("no container of %s", repository)
	}
	for _, in := range ours {
		o.checkResources(in)
		o.checkPorts(in)
		o.checkIdentity(in)
		o.checkStart(in)
	}
	for workload, template := range templates {
		o.checkProxy(workload, template)
	}
}

var (
	release = regexp.MustCompile(`^ghcr\.io/sluice-ratelimit/sluice:v\d+\.\d+\.\d+$`)
	proxy   = "docker.io/envoyproxy/envoy:distroless-v" + envoy.Version
	valkey  = "docker.io/valkey/valkey:9"
)

func (o *objects) checkPod(workload object, template *corev1.PodTemplateSpec) {
	name, pod := workload.GetName(), &template.Spec
	if !selects(selector(workload), template.Labels) {
		o.addProblem("%s: its selector does not match its pods", name)
	}
	account, found := findObject[*corev1.ServiceAccount](o, workload.GetNamespace(), pod.ServiceAccountName)
	if !found || account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
		o.addProblem("%s: want its own ServiceAccount without a token, not %q", name, pod.ServiceAccountName)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		o.addProblem("%s: automountServiceAccountToken is not false", name)
	}
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		o.addProblem("%s: enableServiceLinks is not false", name)
	}
	numbers, names := map[int32]bool{}, map[string]bool{}
	for _, c := range slices.Concat(pod.Containers, pod.InitContainers) {
		if !release.MatchString(c.Image) && c.Image != proxy && c.Image != valkey {
			o.addProblem("%s: image %q, want %s with a version, %s or %s", name, c.Image, repository, proxy, valkey)
		}
		if c.SecurityContext == nil || c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			o.addProblem("%s: readOnlyRootFilesystem of %s is not true", name, c.Name)
		}
		if memory := c.Resources.Limits.Memory(); memory.IsZero() || c.Resources.Requests.Memory().Cmp(*memory) != 0 ||
			c.Resources.Requests.Cpu().IsZero() || !c.Resources.Limits.Cpu().IsZero() {
			o.addProblem("%s: %s: want a memory limit, a request that is the same, a CPU request and no CPU limit", name, c.Name)
		}
		for _, port := range c.Ports {
			if port.Name == "" || numbers[port.ContainerPort] || names[port.Name] {
				o.addProblem("%s: port %s, %d, occurs twice or has no name", name, port.Name, port.ContainerPort)
			}
			numbers[port.ContainerPort], names[port.Name] = true, true
		}
	}
	for _, constraint := range pod.TopologySpreadConstraints {
		if !selects(constraint.LabelSelector, template.Labels) {
			o.addProblem("%s: the selector of %s does not match its pods", name, constraint.TopologyKey)
		}
	}
}
