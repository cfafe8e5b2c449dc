package kube

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// object is a resource of any kind as it is read: its parts are decoded one by one, each only as far as it
// is needed, so that an object that somebody broke spoils no list.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec,omitempty"`
	Status            json.RawMessage `json:"status,omitempty"`
	// Endpoints and Ports are those of an EndpointSlice.
	Endpoints json.RawMessage `json:"endpoints,omitempty"`
	Ports     json.RawMessage `json:"ports,omitempty"`
}

// objects is a list of them.
type objects struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []object `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec, c.Status = slices.Clone(o.Spec), slices.Clone(o.Status)
	c.Endpoints, c.Ports = slices.Clone(o.Endpoints), slices.Clone(o.Ports)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *objects) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]object, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*object)
	}
	return &c
}

// slim drops from an object what nobody here reads and what may be large.
func slim(o any) (any, error) {
	if o, ok := o.(*object); ok {
		o.Annotations, o.ManagedFields = nil, nil
	}
	return o, nil
}

// kinds are those that are read, by group and version.
var kinds = map[schema.GroupVersion][]string{
	core:       {"Node", "Pod"},
	endpoints:  {"EndpointSlice"},
	warrenAPIs: {kindNode, kindConfig},
}

var (
	core       = schema.GroupVersion{Version: "v1"}
	endpoints  = schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}
	warrenAPIs = schema.GroupVersion{Group: "warren.network", Version: "v1alpha1"}
)

const (
	kindNode   = "WarrenNode"
	kindConfig = "WarrenConfig"
)

// newScheme returns a scheme in which every kind is an object.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for group, names := range kinds {
		metav1.AddToGroupVersion(scheme, group)
		for _, name := range names {
			scheme.AddKnownTypeWithName(group.WithKind(name), &object{})
			scheme.AddKnownTypeWithName(group.WithKind(name+"List"), &objects{})
		}
	}
	return scheme
}
