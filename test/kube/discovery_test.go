package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/discovery"
	"warren/internal/discovery/record/recordtest"
	"warren/internal/lab/control"
	"warren/internal/lab/control/controltest"
	"warren/test/admin"
)

// slice is an EndpointSlice of the Service default/kubernetes.
func slice(name, address string, ready bool) fields {
	return fields{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata":  fields{"name": name, "labels": fields{"kubernetes.io/service-name": "kubernetes"}},
		"endpoints": []fields{{"addresses": []string{address}, "conditions": fields{"ready": ready}}},
		"ports":     []fields{{"name": "https", "port": 6443, "protocol": "TCP"}},
	}
}

// addPod makes a pod that runs on a node with an address.
func (a administrator) addPod(name, node, address string, hostNetwork bool) {
	a.t.Helper()
	a.do(http.MethodPost, allPods, fields{
		"apiVersion": "v1", "kind": "Pod", "metadata": fields{"name": name},
		"spec": fields{
			"nodeName": node, "hostNetwork": hostNetwork, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
			"containers": []fields{{"name": "c", "image": "none"}},
		},
	})
	a.setPod(name, "Running", address)
	a.t.Cleanup(func() { a.remove(allPods + "/" + name + "?gracePeriodSeconds=0") })
}

func (a administrator) setPod(name, phase, address string) {
	a.t.Helper()
	a.do(http.MethodPatch, allPods+"/"+name+"/status", fields{"status": fields{"phase": phase, "podIP": address, "podIPs": []fields{{"ip": address}}}})
}

// account makes the ServiceAccount that pods need when nobody manages the namespace.
func (a administrator) account() {
	a.t.Helper()
	status, answer, err := a.Try(http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", fields{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": fields{"name": "default"}})
	if err != nil || status >= 300 && status != http.StatusConflict {
		a.t.Fatalf("make the ServiceAccount: %d %v %s", status, err, answer)
	}
}

// TestDiscoverySees: everything that the API has is known before Synced, and then followed.
func TestDiscoverySees(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.addNode("sees-1", "10.99.0.1", "10.244.1.0/24", "fd00:1::/64")
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("sees-2", 2)))
	t.Cleanup(func() { a.remove(allRecords+"/sees-2", allRecords+"/sees-3", theConfig) })
	a.do(http.MethodPost, allConfigs, config(fields{"mode": "strict"}))

	f := follow(t, exposed(t, plane), "sees-1", nil)
	f.untilSynced()
	f.show(func() {
		if first := f.order[len(f.order)-1]; first != "synced" || !slices.Contains(f.order, "local") || !slices.Contains(f.order, "settings") || !slices.Contains(f.order, "api-servers") {
			t.Errorf("events up to Synced: %v", f.order)
		}
		want := discovery.Machine{
			Addresses: []netip.Addr{netip.MustParseAddr("10.99.0.1")},
			Prefixes:  []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:1::/64")},
		}
		if diff := cmp.Diff(want, *f.local, recordtest.SameNode); diff != "" {
			t.Errorf("local (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff(sample("sees-2", 2), f.records["sees-2"], recordtest.SameNode); diff != "" {
			t.Errorf("sees-2 (-want +got)\n%s", diff)
		}
	})

	changed := sample("sees-2", 7)
	a.do(http.MethodPatch, allRecords+"/sees-2", fields{"spec": admin.WarrenNode(changed)["spec"]})
	f.until("sees-2 has another key", func() bool { return f.records["sees-2"].Keys[0].Public == recordtest.PublicKey(7) })
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("sees-3", 3)))
	a.remove(allRecords + "/sees-2")
	f.untilRecords("sees-3")

	setting := func(want ...string) {
		t.Helper()
		f.until(fmt.Sprint("settings ", want), func() bool {
			var got []string
			for _, s := range f.settings {
				got = append(got, s.Key+"="+s.Value)
			}
			return slices.Equal(got, want)
		})
	}
	setting("mode=strict")
	a.do(http.MethodPatch, theConfig, fields{"spec": fields{"nodes": []fields{{"selector": fields{"matchLabels": fields{"zone": "b"}}, "mode": "permissive", "exempt": []string{"192.0.2.7/32 tcp/179"}}}}})
	a.do(http.MethodPatch, allNodes+"/sees-1", fields{"metadata": fields{"labels": fields{"zone": "b"}}})
	setting("mode=permissive", "exempt=192.0.2.7/32 tcp/179")
	a.remove(theConfig)
	setting()
	f.untilProblem()
}

func config(spec fields) fields {
	return fields{"apiVersion": "warren.network/v1alpha1", "kind": "WarrenConfig", "metadata": fields{"name": "default"}, "spec": spec}
}

// TestDiscoveryPods: without a podCIDR the pods of this node, and no others, say what lives behind it.
func TestDiscoveryPods(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.account()
	a.addNode("pods-1", "10.99.0.1")
	a.addPod("a", "pods-1", "192.168.7.4", false)
	a.addPod("elsewhere", "pods-2", "192.168.7.9", false)
	a.addPod("of-the-host", "pods-1", "10.99.0.1", true)
	f := follow(t, exposed(t, plane), "pods-1", nil)
	prefixes := func(want ...string) {
		t.Helper()
		f.until(fmt.Sprint("prefixes ", want), func() bool { return f.local != nil && fmt.Sprint(f.local.Prefixes) == fmt.Sprint(want) })
	}
	f.untilSynced()
	prefixes("192.168.7.4/32")
	a.addPod("b", "pods-1", "192.168.7.5", false)
	prefixes("192.168.7.4/31")
	a.setPod("a", "Succeeded", "192.168.7.4")
	prefixes("192.168.7.5/32")
	a.remove(allPods + "/b?gracePeriodSeconds=0")
	prefixes()
	a.do(http.MethodPatch, allNodes+"/pods-1", fields{"spec": fields{"podCIDR": "10.244.7.0/24", "podCIDRs": []string{"10.244.7.0/24"}}})
	prefixes("10.244.7.0/24")
}

// TestDiscoveryAPIServerMoves: from node to node and to the outside, in every order.
func TestDiscoveryAPIServerMoves(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.addNode("moves-1", "10.99.0.1")
	names := []string{"kubernetes-a", "kubernetes-b", "kubernetes-external"}
	t.Cleanup(func() {
		for _, name := range names {
			a.remove(allSlices + "/" + name)
		}
	})
	f := follow(t, exposed(t, plane), "moves-1", nil)
	f.untilSynced()
	own := plane.Server().String()
	servers := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		f.until(fmt.Sprint("servers ", want), func() bool { return fmt.Sprint(f.servers) == fmt.Sprint(want) })
	}
	servers(own)
	a.do(http.MethodPost, allSlices, slice("kubernetes-a", "10.99.0.2", true))
	servers(own, "10.99.0.2:6443")
	a.do(http.MethodPost, allSlices, slice("kubernetes-external", "203.0.113.9", true))
	servers(own, "10.99.0.2:6443", "203.0.113.9:6443")
	a.do(http.MethodPost, allSlices, slice("kubernetes-b", "10.99.0.2", true)) // the same one, by another slice
	a.remove(allSlices + "/kubernetes-a")
	a.remove(allSlices + "/kubernetes-external")
	servers(own, "10.99.0.2:6443")
	a.do(http.MethodPatch, allSlices+"/kubernetes-b", slice("kubernetes-b", "10.99.0.3", true))
	servers(own, "10.99.0.3:6443")
	a.do(http.MethodPatch, allSlices+"/kubernetes-b", slice("kubernetes-b", "10.99.0.3", false))
	servers(own)
	a.do(http.MethodPatch, allSlices+"/kubernetes-b", slice("kubernetes-b", "10.99.0.3", true))
	servers(own, "10.99.0.3:6443")
	a.remove(allSlices + "/kubernetes-b")
	servers(own)
}

// TestDiscoveryPublishes: the own record is written, kept against people, follows its Node, and goes when it is
// withdrawn; as long as it is as it should be, nothing is written.
func TestDiscoveryPublishes(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	mine := allRecords + "/own-1"
	t.Cleanup(func() { a.remove(mine) })
	gate := openGate(t, a)
	f := follow(t, gate.config, "own-1", nil)
	node := sample("own-1", 1)

	f.untilProblem("Node own-1", "no Node")
	f.untilSynced()
	if err := f.Publish(t.Context(), node); err == nil || !strings.Contains(err.Error(), "no Node") {
		t.Errorf("published without a Node: %v", err)
	}
	uid := a.addNode("own-1", "10.99.0.1")
	f.untilPublished(node)
	f.untilProblem()
	owner := func() string {
		t.Helper()
		references, _ := a.do(http.MethodGet, mine, nil)["metadata"].(fields)["ownerReferences"].([]any)
		if len(references) != 1 {
			t.Fatalf("owners %v", references)
		}
		return references[0].(fields)["uid"].(string)
	}
	if got := owner(); got != uid {
		t.Errorf("owner %s, the Node is %s", got, uid)
	}
	whole := func() bool {
		_, answer, err := a.Try(http.MethodGet, mine, nil)
		return err == nil && strings.Contains(string(answer), `"10.0.0.1"`) && strings.Contains(string(answer), recordtest.PublicKey(1).String())
	}

	writes := gate.writes()
	later := node
	later.Issued = later.Issued.Add(time.Hour)
	for range 20 {
		if err := f.Publish(t.Context(), later); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond) // what must not happen would happen now
	}
	if n := gate.writes() - writes; n != 0 {
		t.Errorf("%d writes though nothing changed", n)
	}

	a.do(http.MethodPatch, mine, fields{"spec": fields{"addresses": []string{"10.0.0.77", "10.0.0.78"}, "capabilities": []string{"x"}}})
	eventually(t, patience, "an edited record is written again", whole)
	a.remove(mine)
	eventually(t, patience, "a deleted record is written again", whole)
	a.do(http.MethodPatch, mine, fields{"metadata": fields{"ownerReferences": nil}})
	eventually(t, patience, "the owner is written again", func() bool {
		references, _ := a.do(http.MethodGet, mine, nil)["metadata"].(fields)["ownerReferences"].([]any)
		return len(references) == 1
	})
	a.remove(allNodes + "/own-1")
	f.untilProblem("Node own-1")
	again := a.addNode("own-1", "10.99.0.1")
	eventually(t, patience, "the record belongs to the new Node", func() bool { return owner() == again })

	f.until("what was written is read", func() bool { return len(f.problems) == 0 })
	if err := f.Withdraw(t.Context()); err != nil {
		t.Error(err)
	}
	if status, _, err := a.Try(http.MethodGet, mine, nil); err != nil || status != http.StatusNotFound {
		t.Errorf("withdrawn, and there: %d %v", status, err)
	}
	f.untilRecords()
	if err := f.Withdraw(t.Context()); err != nil {
		t.Errorf("withdrawn again: %v", err)
	}
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("own-1", 9)))
	if err := f.Withdraw(t.Context()); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("the record of a successor is withdrawn: %v", err)
	}
}

// TestDiscoveryWithdrawsAlone: `warren cleanup` has no engine that runs. What has another key than what was published
// stays.
func TestDiscoveryWithdrawsAlone(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("alone-1", 1)))
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("alone-2", 2)))
	t.Cleanup(func() { a.remove(allRecords+"/alone-1", allRecords+"/alone-2") })
	k := idle(t, exposed(t, plane), "alone-1")
	_ = k.Publish(t.Context(), sample("alone-1", 9)) // nobody writes it
	if err := k.Withdraw(t.Context()); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("another's record is withdrawn: %v", err)
	}
	if err := idle(t, exposed(t, plane), "alone-1").Withdraw(t.Context()); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]int{"alone-1": http.StatusNotFound, "alone-2": http.StatusOK} {
		if status, _, err := a.Try(http.MethodGet, allRecords+"/"+name, nil); err != nil || status != want {
			t.Errorf("%s: %d %v", name, status, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	gate := openGate(t, a)
	gate.close(http.StatusServiceUnavailable)
	if err := idle(t, gate.config, "alone-2").Withdraw(ctx); err == nil {
		t.Error("withdrawn though nobody answers")
	}
}

// TestDiscoveryReports: what an agent reports is what `kubectl get wn` shows, and is not written twice.
func TestDiscoveryReports(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.addNode("reports-1", "10.99.0.1")
	t.Cleanup(func() { a.remove(allRecords+"/reports-1", theConfig) })
	gate := openGate(t, a)
	f := follow(t, gate.config, "reports-1", nil)
	f.untilSynced()
	report := discovery.Report{Mode: "strict", Version: "v0.1.0", MTU: 1440, Peers: 2, Confirmed: 1, Ready: true}
	f.Report(report)
	f.untilPublished(sample("reports-1", 1))
	columns := func(arguments ...string) string {
		t.Helper()
		lines := strings.Split(kubectl(t, plane, append([]string{"get", "wn", "reports-1"}, arguments...)...), "\n")
		words := strings.Fields(lines[len(lines)-1])
		return strings.Join(words, " ")
	}
	shows := func(want string) {
		t.Helper()
		eventually(t, patience, "kubectl get wn shows "+want, func() bool { return strings.HasPrefix(columns(), want) })
	}
	shows("reports-1 True False strict 1/2 1440 10.0.0.1 v0.1.0")
	head := strings.Fields(kubectl(t, plane, "get", "wn"))[:9]
	if diff := cmp.Diff([]string{"NAME", "READY", "ENCRYPTED", "MODE", "PEERS", "MTU", "ENDPOINT", "VERSION", "AGE"}, head); diff != "" {
		t.Errorf("columns (-want +got)\n%s", diff)
	}
	if wide := columns("-o", "wide"); !strings.HasSuffix(wide, "False True "+recordtest.PublicKey(1).String()) {
		t.Errorf("wide: %s", wide)
	}

	writes, began := gate.writes(), time.Now()
	for range 20 {
		report.Confirmed = 3 - report.Confirmed // two reports by turns
		f.Report(report)
		time.Sleep(100 * time.Millisecond)
	}
	report.Confirmed = 2
	f.Report(report)
	shows("reports-1 True True strict 2/2 1440")
	if took, n := time.Since(began), gate.writes()-writes; n > 1+int(took/(5*time.Second)) {
		t.Errorf("%d writes in %v", n, took)
	}

	a.do(http.MethodPost, allConfigs, config(fields{"nodes": []fields{{"selector": fields{"matchLabels": fields{"zone": "-"}}}}}))
	f.untilProblem("spec.nodes[0].selector")
	f.Report(report)
	eventually(t, patience, "the condition names the field", func() bool {
		return strings.Contains(kubectl(t, plane, "get", "wn", "reports-1", "-o", `jsonpath={.status.conditions[?(@.type=="ConfigAccepted")]}`), "spec.nodes[0].selector")
	})
}

// TestDiscoveryRivals: two agents of the same name, with a key each, do not write without end, and both say so.
func TestDiscoveryRivals(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.addNode("twin-1", "10.99.0.1")
	t.Cleanup(func() { a.remove(allRecords + "/twin-1") })
	gate := openGate(t, a)
	first, second := follow(t, gate.config, "twin-1", nil), follow(t, gate.config, "twin-1", nil)
	first.untilSynced()
	second.untilSynced()
	_ = first.Publish(t.Context(), sample("twin-1", 1))
	_ = second.Publish(t.Context(), sample("twin-1", 2))
	first.untilProblem("another agent writes", recordtest.PublicKey(2).Short())
	second.untilProblem("another agent writes", recordtest.PublicKey(1).Short())
	writes := gate.writes()
	time.Sleep(15 * time.Second)
	if n := gate.writes() - writes; n > 6 {
		t.Errorf("%d writes in 15 seconds", n)
	}
}

// TestDiscoveryOddities: what people and clusters do to objects.
func TestDiscoveryOddities(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.addNode("odd-1", "10.99.0.1")
	all := []string{"odd-2", "odd-3", "odd-4", "odd-5", "odd-6"}
	t.Cleanup(func() {
		for _, name := range all {
			_, _, _ = a.Try(http.MethodPatch, allRecords+"/"+name, fields{"metadata": fields{"finalizers": nil}})
			a.remove(allRecords + "/" + name)
		}
	})
	f := follow(t, exposed(t, plane), "odd-1", nil)
	f.untilSynced()
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("odd-2", 2)))
	f.untilRecords("odd-2")

	t.Run("annotations as large as they may be", func(t *testing.T) {
		for _, name := range all[1:] {
			object := admin.WarrenNode(sample(name, name[4]))
			object["metadata"].(fields)["annotations"] = fields{"essay": strings.Repeat("x", 256<<10-len("essay"))}
			a.do(http.MethodPost, allRecords, object)
		}
		f.untilRecords(all...)
		second := follow(t, exposed(t, plane), "odd-1", nil) // and in a list
		second.untilRecords(all...)
		for _, name := range all[1:] {
			a.remove(allRecords + "/" + name)
		}
		f.untilRecords("odd-2")
	})
	t.Run("a finalizer", func(t *testing.T) {
		object := admin.WarrenNode(sample("odd-3", 3))
		object["metadata"].(fields)["finalizers"] = []string{"example.com/wait"}
		a.do(http.MethodPost, allRecords, object)
		f.untilRecords("odd-2", "odd-3")
		a.remove(allRecords + "/odd-3")
		a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("odd-4", 4)))
		f.untilRecords("odd-2", "odd-3", "odd-4")
		a.do(http.MethodPatch, allRecords+"/odd-3", fields{"metadata": fields{"finalizers": nil}})
		f.untilRecords("odd-2", "odd-4")
	})
	t.Run("deleted and made anew with another key", func(t *testing.T) {
		a.remove(allRecords + "/odd-4")
		a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("odd-4", 44)))
		f.until("odd-4 has its new key", func() bool {
			keys := f.records["odd-4"].Keys
			return len(keys) > 0 && keys[0].Public == recordtest.PublicKey(44)
		})
	})
	t.Run("address and prefix taken over by another node", func(t *testing.T) {
		heir := sample("odd-5", 44)
		heir.Keys[0].Public = recordtest.PublicKey(5)
		a.remove(allRecords + "/odd-4")
		a.do(http.MethodPost, allRecords, admin.WarrenNode(heir))
		f.untilRecords("odd-2", "odd-5")
		f.show(func() {
			if diff := cmp.Diff(heir, f.records["odd-5"], recordtest.SameNode); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	})
	t.Run("the record of a Node under another name", func(t *testing.T) {
		object := admin.WarrenNode(sample("odd-6", 6))
		object["metadata"].(fields)["ownerReferences"] = []fields{{"apiVersion": "v1", "kind": "Node", "name": "odd-1", "uid": "0"}}
		a.do(http.MethodPost, allRecords, object)
		f.untilProblem("WarrenNode odd-6", "record of Node odd-1")
		f.untilRecords("odd-2", "odd-5")
		a.remove(allRecords + "/odd-6")
		f.untilProblem()
	})
}

// TestDiscoveryGarbage: without a schema that holds people back, what they write is reported and the last good record
// stays, also over lists.
func TestDiscoveryGarbage(t *testing.T) {
	plane := controltest.Own(t)
	install(t, plane)
	a := administratorOf(t, plane)
	a.addNode("spoilt-1", "10.99.0.1")
	a.do(http.MethodPost, allRecords, admin.WarrenNode(sample("spoilt-2", 2)))
	gate := openGate(t, a)
	f := follow(t, gate.config, "spoilt-1", nil)
	f.untilRecords("spoilt-2")
	crd := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/warrennodes.warren.network"
	versions := a.do(http.MethodGet, crd, nil)["spec"].(fields)["versions"].([]any)
	versions[0].(fields)["schema"] = fields{"openAPIV3Schema": fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	a.do(http.MethodPatch, crd, fields{"spec": fields{"versions": versions}})

	for _, spoilt := range []struct {
		name, says string
		spec       any
	}{
		{"a text", "cannot unmarshal string", "x"},
		{"unknown fields", `unknown field "colour"`, fields{"colour": "red"}},
		{"a bad key", "spec.keys[0].public", fields{"keys": []fields{{"public": "x", "epoch": 1, "port": 1}}}},
		{"nothing", "spec.", nil},
	} {
		eventually(t, patience, spoilt.name+" is accepted", func() bool {
			status, _, err := a.Try(http.MethodPatch, allRecords+"/spoilt-2", fields{"spec": spoilt.spec})
			return err == nil && status == http.StatusOK
		})
		f.untilProblem("WarrenNode spoilt-2", spoilt.says, "is kept")
		gate.close(0) // cut, and listed anew
		a.do(http.MethodPatch, allRecords+"/spoilt-2", fields{"spec": nil})
		a.do(http.MethodPatch, allRecords+"/spoilt-2", fields{"spec": admin.WarrenNode(sample("spoilt-2", 2))["spec"]})
		f.untilProblem()
		f.untilRecords("spoilt-2")
	}
	f.show(func() {
		if slices.Contains(f.order, "delete spoilt-2") {
			t.Errorf("deleted meanwhile: %v", f.order)
		}
	})
}

// TestCRDRefusals holds what the API server says of objects that are wrong against a golden file.
func TestCRDRefusals(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	a := administratorOf(t, plane)
	cases, err := os.ReadFile("testdata/refusals.txt")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(cases)) {
		line = strings.TrimSpace(line)
		fmt.Fprintf(&text, "%s\n", line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fmt.Fprintf(&text, "    %s\n", strings.ReplaceAll(a.refusal(line), "\n", "\n    "))
	}
	recordtest.Golden(t, "testdata/refusals.golden", text.String())
}

// TestDocumentedResources: what the documentation shows is accepted.
func TestDocumentedResources(t *testing.T) {
	plane := controltest.Shared(t)
	install(t, plane)
	page, err := os.ReadFile("../../docs/warrennodes.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(page), "```yaml\n")[1:]
	if len(examples) < 2 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, example := range examples {
		text, _, _ := strings.Cut(example, "```")
		if _, err := plane.Kubectl(t.Context(), text, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

// TestDiscoveryWithItsRights: what the shipped manifests let an agent do is all that the engine needs, and what they do
// not let it do is said.
func TestDiscoveryWithItsRights(t *testing.T) {
	plane := controltest.Shared(t)
	manifest, err := filepath.Abs("../../deploy/warren.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, plane, "apply", "--server-side", "--force-conflicts", "-f", manifest)
	install(t, plane)
	a := administratorOf(t, plane)
	a.addNode("rights-1", "10.99.0.1", "10.244.1.0/24")
	a.addNode("rights-2", "10.99.0.2", "10.244.2.0/24")
	t.Cleanup(func() { a.remove(allRecords + "/rights-1") })
	agentOn(t, plane, "rights-1")
	token := kubectl(t, plane, "--namespace="+namespace, "create", "token", "warren", "--bound-object-kind=Pod", "--bound-object-name=agent-on-rights-1")
	at, err := plane.Expose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agent, err := plane.Kubeconfig(control.Client{User: "rights", Token: token, Server: at, Path: filepath.Join(t.TempDir(), "config")})
	if err != nil {
		t.Fatal(err)
	}

	f := follow(t, agent, "rights-1", nil)
	f.untilSynced()
	f.untilProblem()
	f.untilPublished(sample("rights-1", 1))
	f.Report(discovery.Report{Mode: "strict", Version: "v0.1.0", Ready: true})
	eventually(t, patience, "the status is there", func() bool {
		return kubectl(t, plane, "get", "wn", "rights-1", "-o", "jsonpath={.status.mode}") == "strict"
	})
	if err := f.Withdraw(t.Context()); err != nil {
		t.Error(err)
	}
	f.untilRecords()

	stranger := follow(t, agent, "rights-2", nil)
	stranger.untilSynced()
	eventually(t, patience, "the policy's words reach the agent", func() bool {
		err := stranger.Publish(t.Context(), sample("rights-2", 2))
		return err != nil && strings.Contains(err.Error(), "the agent on node rights-1 writes WarrenNode rights-1 only")
	})
}
