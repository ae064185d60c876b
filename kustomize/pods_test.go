package kustomize

import (
	"regexp"

	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// checkPods checks pods against the policy of a restricted namespace, and starts the containers of sluice.
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
	}
	ours := o.instances()
	if len(ours) == 0 && len(templates) > 0 {
		o.addProblem("no container of %s", repository)
	}
	for _, in := range ours {
		o.checkResources(in)
		o.checkStart(in)
	}
}

var release = regexp.MustCompile(`^ghcr\.io/sluice-ratelimit/sluice:v\d+\.\d+\.\d+$`)
