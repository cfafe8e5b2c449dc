package kube

import (
	"encoding/json"
	"net/http"
	"strings"

	"warren/internal/cluster"
	"warren/internal/discovery/record/recordtest"
	"warren/test/admin"
)

// refusal makes an object, without keeping it, in which something is changed, and returns what the API server says. A
// case is the kind, a path, and JSON to be put there, or nothing to take it away: "WarrenNode spec.keys.0.port 0". What
// begins with "update" changes one that is there.
func (a administrator) refusal(line string) string {
	a.t.Helper()
	kind, rest, _ := strings.Cut(line, " ")
	method, object, path := http.MethodPost, admin.WarrenNode(fullSample()), allRecords
	switch kind {
	case "WarrenConfig":
		object, path = config(fields{"mode": "strict", "nodes": []any{fields{"selector": fields{}}}}), allConfigs
	case "update":
		a.do(http.MethodPost, allRecords, object)
		defer a.remove(allRecords + "/full")
		method, path = http.MethodPut, allRecords+"/full"
		object = a.do(http.MethodGet, path, nil)
	}
	place, text, given := strings.Cut(rest, " ")
	var value any
	if given {
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			a.t.Fatalf("%s: %v", line, err)
		}
	}
	put(plain(a, object), strings.Split(place, "."), value, given, func(whole any) { object = whole.(fields) })
	status, answer, err := a.Try(method, path+"?dryRun=All&fieldValidation=Strict", object)
	if err != nil {
		a.t.Fatalf("%s: %v", line, err)
	}
	if status < 300 {
		return "accepted"
	}
	var said struct{ Message string }
	if err := json.Unmarshal(answer, &said); err != nil {
		a.t.Fatalf("%s: %s", line, answer)
	}
	return said.Message
}

// plain returns an object as JSON reads it.
func plain(a administrator, object fields) (read any) {
	a.t.Helper()
	text, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return read
}

// put changes the value at a path.
func put(in any, path []string, value any, given bool, back func(any)) {
	key := path[0]
	next := func(child any, set func(any)) {
		if len(path) == 1 {
			set(value)
			return
		}
		put(child, path[1:], value, given, set)
	}
	switch in := in.(type) {
	case fields:
		if len(path) == 1 && !given {
			delete(in, key)
		} else {
			next(in[key], func(v any) { in[key] = v })
		}
		back(in)
	case []any:
		index := int(key[0] - '0')
		for len(in) <= index {
			in = append(in, in[0])
		}
		next(in[index], func(v any) { in[index] = v })
		back(in)
	}
}

func fullSample() cluster.Node {
	node := sample("full", 1)
	node.Keys = append(node.Keys, cluster.Key{Public: recordtest.PublicKey(2), Epoch: 2, Port: 51881})
	node.Capabilities = []string{"leaving"}
	return node
}
