package kustomize

import (
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// checkPods holds pods against what a namespace that is restricted accepts.
func (o *objects) checkPods() {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		o.complain("pod security: %v", err)
		return
	}
	level := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	templates := o.pods()
	if len(templates) == 0 {
		o.complain("no pods")
	}
	for workload, template := range templates {
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &template.ObjectMeta, &template.Spec))
		if !result.Allowed {
			o.complain("%s: not restricted: %s", workload.GetName(), result.ForbiddenDetail())
		}
	}
}
