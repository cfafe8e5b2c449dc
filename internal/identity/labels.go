package identity

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"
)

// The reserved labels.
const (
	LabelHost          = "reserved:host"
	LabelWorld         = "reserved:world"
	LabelUnmanaged     = "reserved:unmanaged"
	LabelHealth        = "reserved:health"
	LabelInit          = "reserved:init"
	LabelRemoteNode    = "reserved:remote-node"
	LabelKubeAPIServer = "reserved:kube-apiserver"
	LabelIngress       = "reserved:ingress"
)

// separator joins labels. It cannot be part of one, so that no text of outside can smuggle in a second label.
const separator = "\x00"

// Labels is a set of labels: sorted, without duplicates, immutable, and comparable with ==.
// The zero value is the empty set.
type Labels struct{ joined string }

// NewLabels returns the set of the given labels. An empty label, and one with a NUL byte, is none.
func NewLabels(labels ...string) Labels {
	if isCanonical(labels) {
		return Labels{strings.Join(labels, separator)}
	}
	kept := slices.Clone(labels)
	kept = slices.DeleteFunc(kept, func(label string) bool { return !isLabel(label) })
	slices.Sort(kept)
	return Labels{strings.Join(slices.Compact(kept), separator)}
}

// IsEmpty reports whether the set has no label.
func (l Labels) IsEmpty() bool { return l.joined == "" }

// All returns the labels in sorted order.
func (l Labels) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest := l.joined; rest != ""; {
			label, tail, _ := strings.Cut(rest, separator)
			if !yield(label) {
				return
			}
			rest = tail
		}
	}
}

// Strings returns the labels in sorted order; nil when there are none.
func (l Labels) Strings() []string { return slices.Collect(l.All()) }

// Has reports whether label is in the set.
func (l Labels) Has(label string) bool {
	for have := range l.All() {
		if have == label {
			return true
		}
	}
	return false
}

// Union returns the labels that are in l or in other.
func (l Labels) Union(other Labels) Labels {
	switch {
	case other.IsEmpty() || l == other:
		return l
	case l.IsEmpty():
		return other
	}
	return NewLabels(slices.AppendSeq(l.Strings(), other.All())...)
}

// Filter returns the labels that keep accepts.
func (l Labels) Filter(keep func(label string) bool) Labels {
	kept := slices.DeleteFunc(l.Strings(), func(label string) bool { return !keep(label) })
	return Labels{strings.Join(kept, separator)}
}

// Equal reports whether both sets have the same labels, as == does.
func (l Labels) Equal(other Labels) bool { return l == other }

// String returns the labels separated by commas.
func (l Labels) String() string { return strings.ReplaceAll(l.joined, separator, ",") }

// MarshalJSON writes a list of strings, empty and not null for the empty set.
func (l Labels) MarshalJSON() ([]byte, error) {
	return json.Marshal(slices.AppendSeq([]string{}, l.All()))
}

// UnmarshalJSON reads a list of strings.
func (l *Labels) UnmarshalJSON(text []byte) error {
	var labels []string
	if err := json.Unmarshal(text, &labels); err != nil {
		return err
	}
	*l = NewLabels(labels...)
	return nil
}

func isLabel(label string) bool { return label != "" && !strings.Contains(label, separator) }

func isCanonical(labels []string) bool {
	for i, label := range labels {
		if !isLabel(label) || i > 0 && labels[i-1] >= label {
			return false
		}
	}
	return true
}
