package kube

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"warren/internal/discovery"
)

// configName is the name of the one WarrenConfig that counts.
const configName = "default"

const configPlace = kindConfig + " " + configName

// configSpec is the spec of a WarrenConfig: values for all nodes, and for some.
type configSpec struct {
	values
	Nodes []struct {
		Selector *metav1.LabelSelector `json:"selector"`
		values
	} `json:"nodes"`
}

// values has what can be set; nil is not set. Whether a value is right the configuration knows.
type values struct {
	Mode             *string   `json:"mode"`
	Port             *int64    `json:"port"`
	Mark             *string   `json:"mark"`
	MTU              *int64    `json:"mtu"`
	Oversize         *string   `json:"oversize"`
	Exempt           *[]string `json:"exempt"`
	RotationInterval *string   `json:"rotationInterval"`
}

// settings returns the values that are set, with the place of each below parent.
func (v values) settings(parent string) []discovery.Setting {
	var list []discovery.Setting
	add := func(key, field, value string) {
		list = append(list, discovery.Setting{Key: key, Value: value, Where: configPlace + ": " + parent + "." + field})
	}
	text := func(key, field string, value *string) {
		if value != nil {
			add(key, field, *value)
		}
	}
	number := func(key, field string, value *int64) {
		if value != nil {
			add(key, field, strconv.FormatInt(*value, 10))
		}
	}
	text("mode", "mode", v.Mode)
	text("mark", "mark", v.Mark)
	text("oversize", "oversize", v.Oversize)
	text("rotation-interval", "rotationInterval", v.RotationInterval)
	number("port", "port", v.Port)
	number("mtu", "mtu", v.MTU)
	if v.Exempt != nil {
		add("exempt", "exempt", strings.Join(*v.Exempt, ","))
	}
	return list
}

// keys that can be set, in the configuration's order.
var keys = []string{"rotation-interval", "mode", "exempt", "port", "mark", "mtu", "oversize"}

// layer is what a WarrenConfig says of the nodes that a selector matches.
type layer struct {
	selector labels.Selector
	settings []discovery.Setting
}

// configuration is what the WarrenConfig has said so far.
type configuration struct {
	layers   []layer // of the last spec that could be read, in order
	problems []discovery.Problem
}

// decodeConfig reads a WarrenConfig. One that cannot be read leaves what was said before; an entry whose
// selector cannot be read matches no node.
func decodeConfig(o *object, before configuration) configuration {
	var spec configSpec
	if problems := decodeStrictly(o.Spec, &spec); len(problems) > 0 {
		return configuration{layers: before.layers, problems: problemsOf(configPlace, problems, "correct it; until then what it said before counts")}
	}
	c := configuration{layers: []layer{{labels.Everything(), spec.settings("spec")}}}
	for i, entry := range spec.Nodes {
		place := fmt.Sprintf("spec.nodes[%d]", i)
		selector, err := metav1.LabelSelectorAsSelector(entry.Selector)
		if err != nil {
			c.problems = append(c.problems, discovery.Problem{
				Where: configPlace + ": " + place + ".selector", Message: err.Error(), Remedy: "correct it; until then the entry is for no node",
			})
			continue
		}
		c.layers = append(c.layers, layer{selector, entry.settings(place)})
	}
	return c
}

// settings returns what counts for a Node with these labels: each key once, in the order of the configuration's keys; what
// comes later wins.
func (c configuration) settings(of map[string]string) []discovery.Setting {
	set := map[string]discovery.Setting{}
	for _, l := range c.layers {
		if !l.selector.Matches(labels.Set(of)) {
			continue
		}
		for _, s := range l.settings {
			set[s.Key] = s
		}
	}
	var list []discovery.Setting
	for _, key := range keys {
		if s, ok := set[key]; ok {
			list = append(list, s)
		}
	}
	return list
}
