package kustomize

import (
	"maps"
	"slices"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// checkNetwork compares the labels and ports of selectors with the pods.
func (o *objects) checkNetwork() {
	for _, one := range o.all {
		switch r := one.(type) {
		case *corev1.Service:
			o.checkService(r)
		case *networkingv1.NetworkPolicy:
			o.checkPolicy(r)
		case *policyv1.PodDisruptionBudget:
			// With minAvailable: 1 a single replica could never be evicted.
			if r.Spec.MaxUnavailable == nil || r.Spec.MaxUnavailable.IntVal != 1 {
				o.addProblem("PodDisruptionBudget %s: want maxUnavailable: 1", r.Name)
			}
			o.podsMatching(r, r.Spec.Selector)
		case *autoscalingv2.HorizontalPodAutoscaler:
			o.checkAutoscaler(r)
		case *monitoringv1.PodMonitor:
			// Sidecars are in the namespaces of their applications.
			if !r.Spec.NamespaceSelector.Any {
				o.addProblem("PodMonitor %s: want all namespaces", r.Name)
			}
			for _, pod := range o.podsMatching(r, &r.Spec.Selector) {
				for _, endpoint := range r.Spec.PodMetricsEndpoints {
					if endpoint.Port == nil || *endpoint.Port != "metrics" || ports(pod)["metrics"] == 0 || endpoint.Path != "" {
						o.addProblem("PodMonitor %s: want /metrics of the port metrics, which %s does not have", r.Name, pod.GenerateName)
					}
				}
			}
		}
	}
}

// checkAutoscaler checks that it scales a Deployment whose replicas share a store, request the measured resource and
// have no fixed number.
func (o *objects) checkAutoscaler(r *autoscalingv2.HorizontalPodAutoscaler) {
	for workload, pod := range o.pods() {
		d, ok := workload.(*appsv1.Deployment)
		if !ok || d.Name != r.Spec.ScaleTargetRef.Name || d.Namespace != r.Namespace || r.Spec.ScaleTargetRef.Kind != "Deployment" {
			continue
		}
		c := pod.Spec.Containers[0]
		switch {
		case d.Spec.Replicas != nil:
			o.addProblem("HorizontalPodAutoscaler %s: its Deployment has a number of replicas, which each apply would reset", r.Name)
		case c.Resources.Requests.Cpu().IsZero():
			o.addProblem("HorizontalPodAutoscaler %s: its pods request no cpu", r.Name)
		case !slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--store=") }):
			o.addProblem("HorizontalPodAutoscaler %s: its replicas share no store, so each additional one admits every limit once more", r.Name)
		}
		return
	}
	o.addProblem("HorizontalPodAutoscaler %s: scales nothing", r.Name)
}

// podsMatching returns the pods that a selector matches, and adds a problem if there are none.
func (o *objects) podsMatching(by object, s *metav1.LabelSelector) []*corev1.PodTemplateSpec {
	var found []*corev1.PodTemplateSpec
	for workload, pod := range o.pods() {
		if workload.GetNamespace() == by.GetNamespace() && selects(s, pod.Labels) {
			found = append(found, pod)
		}
	}
	if len(found) == 0 {
		o.addProblem("%s: selects no pods", by.GetName())
	}
	return found
}

// ports returns the declared ports of a pod.
func ports(pod *corev1.PodTemplateSpec) map[string]int32 {
	all := map[string]int32{}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, port := range c.Ports {
			all[port.Name] = port.ContainerPort
		}
	}
	return all
}

func (o *objects) checkService(s *corev1.Service) {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		name, rest, _ := strings.Cut(s.Spec.ExternalName, ".")
		namespace, _ := strings.CutSuffix(rest, ".svc.cluster.local")
		if err := o.checkServiceName(name, namespace, 8081); err != nil {
			o.addProblem("Service %s: %v", s.Name, err)
		}
		return
	}
	for _, pod := range o.podsMatching(s, metav1.SetAsLabelSelector(s.Spec.Selector)) {
		for _, port := range s.Spec.Ports {
			target := port.TargetPort.IntVal
			if port.TargetPort.Type == intstr.String {
				target = ports(pod)[port.TargetPort.StrVal]
			}
			// A headless Service only has names: callers connect to the pod's port.
			headless := s.Spec.ClusterIP == corev1.ClusterIPNone
			if target == 0 || target != ports(pod)[port.Name] || headless && port.Port != target {
				o.addProblem("Service %s: port %s leads to %s, %d, of the pods", s.Name, port.Name, port.TargetPort.String(), target)
			}
		}
	}
}

// checkPolicy checks that a policy allows exactly the ports of all callers except the kubelet.
func (o *objects) checkPolicy(p *networkingv1.NetworkPolicy) {
	open := map[int32]bool{}
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			open[port.Port.IntVal] = true
		}
	}
	for _, pod := range o.podsMatching(p, &p.Spec.PodSelector) {
		asked := ports(pod)
		delete(asked, "http")
		wanted := map[int32]bool{}
		for _, number := range asked {
			wanted[number] = true
		}
		if !maps.Equal(open, wanted) {
			o.addProblem("NetworkPolicy %s: opens %v, want %v", p.Name, open, wanted)
		}
	}
}
