package kustomize

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	istio "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// envoyFilter is Istio's type, without the dependency on Istio's client.
type envoyFilter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Raw  json.RawMessage    `json:"spec"`
	spec *istio.EnvoyFilter `json:"-"`
}

// DeepCopyObject is never called, because the tests do not modify objects.
func (f *envoyFilter) DeepCopyObject() runtime.Object { return f }

func decodeFilter(document []byte) (*envoyFilter, error) {
	text, err := yaml.ToJSON(document)
	if err != nil {
		return nil, err
	}
	f := &envoyFilter{spec: &istio.EnvoyFilter{}}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(f.Raw, f.spec); err != nil {
		return nil, err
	}
	return f, nil
}
