package kustomize

import (
	"bytes"
	"fmt"

	gateway "github.com/envoyproxy/gateway/api/v1alpha1"
	contourv1 "github.com/projectcontour/contour/apis/projectcontour/v1"
	contour "github.com/projectcontour/contour/apis/projectcontour/v1alpha1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/sluice-ratelimit/sluice/descriptors/rulefile"
)

// object is a Kubernetes object of any type.
type object interface {
	runtime.Object
	metav1.Object
}

// objects are applied together.
type objects struct {
	all []object
	// problems are the errors found in them.
	problems []string
}

func (o *objects) addProblem(format string, args ...any) {
	o.problems = append(o.problems, fmt.Sprintf(format, args...))
}

// decoder rejects unknown and duplicate fields.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, autoscalingv2.AddToScheme, networkingv1.AddToScheme, monitoringv1.AddToScheme,
		contour.AddToScheme, contourv1.AddToScheme, gateway.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

func decode(documents [][]byte) *objects {
	o := &objects{}
	_, found := rulefile.Parse("manifests", bytes.Join(documents, []byte("\n---\n")))
	for _, d := range found {
		if d.Code != "" {
			o.addProblem("sluice check: %s", d)
		}
	}
	for _, document := range documents {
		if bytes.Contains(document, []byte("kind: EnvoyFilter\n")) {
			f, err := decodeFilter(document)
			if err != nil {
				o.addProblem("decode: %v", err)
				continue
			}
			o.all = append(o.all, f)
			continue
		}
		decoded, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			o.addProblem("decode: %v", err)
			continue
		}
		one, ok := decoded.(object)
		if !ok {
			o.addProblem("decode: %T has no name", decoded)
			continue
		}
		o.all = append(o.all, one)
	}
	return o
}

// pods returns the pod template of each workload.
func (o *objects) pods() map[object]*corev1.PodTemplateSpec {
	templates := map[object]*corev1.PodTemplateSpec{}
	for _, one := range o.all {
		switch w := one.(type) {
		case *appsv1.Deployment:
			templates[w] = &w.Spec.Template
		case *appsv1.StatefulSet:
			templates[w] = &w.Spec.Template
		case *appsv1.DaemonSet:
			templates[w] = &w.Spec.Template
		}
	}
	return templates
}

// findObject returns the object with the given type, namespace and name.
func findObject[T object](o *objects, namespace, name string) (T, bool) {
	for _, one := range o.all {
		if found, ok := one.(T); ok && found.GetNamespace() == namespace && found.GetName() == name {
			return found, true
		}
	}
	var none T
	return none, false
}
