package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/identity"
	"warren/internal/lab"
	"warren/internal/lab/control"
	"warren/internal/lab/wire"
	"warren/test/admin"
	"warren/test/flow"
)

// TestKubeServerMoves: the endpoint of the API server moves from node to node and to an address outside of the cluster, in
// every order with the record of n4 and with restarts of the agents of those that stay. After each step every node says
// of every address what follows from the facts. Meanwhile nothing is lost between the nodes that stay, no pair of theirs
// changes, and nothing is in clear.
func TestKubeServerMoves(t *testing.T) {
	t.Parallel()
	m := newMoves(t, upKube(t, "kmoves", "--pods", "1", "--mode", "strict"))
	w, learned := m.watch(t), followPairs(t, m)
	for _, step := range []struct {
		name string
		do   event
	}{
		{"the API server is on n1", moveTo("n1")},
		{"it moves to n2", moveTo("n2")},
		{"and back", moveTo("n1")},
		{"to n2 again", moveTo("n2")},
		{"out of the cluster", moveTo(outside)},
		{"to n3", moveTo("n3")},
		{"there is one everywhere", moveTo("n1", "n2", "n3", outside)},
		{"there is none", moveTo()},
		{"it is back on n1", moveTo("n1")},

		{"endpoint before record: it moves to n4, which is not there", moveTo("n4")},
		{"with the endpoint alone: agents restart", restart},
		{"the record comes, since n4 joins", join},
		{"with endpoint before record: agents restart", restart},
		{"the record goes first", lose},
		{"then the endpoint", moveTo("n2")},

		{"record before endpoint: it is back", publish},
		{"with the record alone: agents restart", restart},
		{"it moves to n4, which is there", moveTo("n4")},
		{"with record before endpoint: agents restart", restart},
		{"the record is deleted, and written again by its agent", rewrite},
		{"the endpoint goes first", moveTo(outside)},
		{"then the record", lose},

		{"both come while agents are away", meanwhile(moveTo("n4"), publish)},
		{"both go while agents are away", meanwhile(lose, moveTo("n3"))},
		{"the record is back", publish},
		{"and the endpoint", moveTo("n4")},
		{"n4 leaves, the endpoint stays", leave},
		{"the API server is on n1 again", moveTo("n1")},
	} {
		if !t.Run(step.name, func(t *testing.T) { m.in(t).step(step.do) }) {
			break
		}
	}
	learned.finish(t, m)
	w.finish(t)
}

// outside is where an API server is that runs on no node.
const outside = "outside"

// moves is a lab in which the API server is said to be here and there, and the facts as the test has made them.
type moves struct {
	*testLab
	*facts
	plane *control.Plane
	nodes []lab.Node // n1 to n3, which stay, and n4, also while it is not there
}

type facts struct {
	servers []netip.Addr // named by an EndpointSlice
	fourth  bool         // n4 has a record, and its agent runs
}

// newMoves leaves the EndpointSlices to the test: an API server writes the one of its own Service every ten seconds,
// unless it is told to let it be.
func newMoves(t *testing.T, c *testLab) *moves {
	t.Helper()
	spec := c.open().Spec
	spec.Nodes = lab.NodeNumbers(4)
	m := &moves{testLab: c, facts: &facts{}, plane: c.control(), nodes: spec.Topology().Nodes}
	restartAPIServer(t, m.plane, "--endpoint-reconciler-type=none")
	for _, node := range m.nodes[1:3] { // on n1 there is a real one
		for _, address := range node.Addresses {
			serveEcho(t, node.Namespace, netip.AddrPortFrom(address, apiPort))
		}
	}
	return m
}

func (m *moves) in(t *testing.T) *moves {
	inside := *m
	inside.testLab = m.testLab.in(t)
	return &inside
}

// fourth owns the addresses of n4.
const fourth = cluster.DefaultCluster + "/n4"

// staying are the names of the nodes that are there all the time.
func (m *moves) staying() []string { return []string{"n1", "n2", "n3"} }

// watch starts traffic to every address of those that stay, and of pods, and a capture that knows n4 as well. Of its way to
// the API server the beginning may be in clear, until it is confirmed.
func (m *moves) watch(t *testing.T) *watched {
	t.Helper()
	spec := m.open().Spec
	spec.Nodes = lab.NodeNumbers(4)
	w := &watched{testLab: m.testLab, flows: crossing(t, m.nodes[:3]), capture: listen(t, spec.Topology()), mayBeClear: m.bootstrap}
	for i, a := range m.nodes[:3] {
		for j, b := range m.nodes[:3] {
			if i != j {
				family := 1 - (i+j)%2 // the one that crossing leaves to pods
				w.flows = append(w.flows, flow.StartStream(t, flow.Host(a, family), flow.Host(b, family)))
			}
		}
	}
	return w
}

func (m *moves) bootstrap(frame wire.Frame) bool {
	server, n4 := m.plane.Server(), m.nodes[3].Addresses
	from, to := frame.Flow.Source, frame.Flow.Destination
	return from == server && slices.Contains(n4, to.Addr()) || to == server && slices.Contains(n4, from.Addr())
}

// event makes something true, in the lab and in the facts.
type event func(*moves)

// moveTo moves the API server to places: nodes, or outside.
func moveTo(places ...string) event {
	return func(m *moves) {
		m.servers = nil
		for _, place := range places {
			m.servers = append(m.servers, m.addressesOf(place)...)
		}
		m.apply(endpointSlice("kubernetes", "IPv4", m.servers, netip.Addr.Is4), endpointSlice("kubernetes-6", "IPv6", m.servers, netip.Addr.Is6))
	}
}

func (m *moves) addressesOf(place string) []netip.Addr {
	for _, node := range m.nodes {
		if node.Name == place {
			return node.Addresses
		}
	}
	return []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8::9")}
}

// endpointSlice is one of the Service default/kubernetes, with those addresses that belong to it.
func endpointSlice(name, family string, addresses []netip.Addr, belongs func(netip.Addr) bool) admin.Fields {
	type object = admin.Fields
	endpoints := []object{}
	for _, address := range addresses {
		if belongs(address) {
			endpoints = append(endpoints, object{"addresses": []string{address.String()}, "conditions": object{"ready": true}})
		}
	}
	return object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family, "endpoints": endpoints,
		"metadata": object{"name": name, "namespace": "default", "labels": object{"kubernetes.io/service-name": "kubernetes"}},
		"ports":    []object{{"name": "https", "port": apiPort, "protocol": "TCP"}},
	}
}

// restart starts the agents of those that stay anew.
func restart(m *moves) { meanwhile()(m) }

// meanwhile makes events happen while those that stay have no agents.
func meanwhile(events ...event) event {
	return func(m *moves) {
		m.must("agent", append([]string{"kill"}, m.staying()...)...)
		for _, do := range events {
			do(m)
		}
		m.must("agent", append([]string{"start"}, m.staying()...)...)
	}
}

func join(m *moves) {
	m.must("join")
	m.fourth = true
}

func leave(m *moves) {
	m.must("leave", "n4")
	m.fourth = false
}

// lose takes the record of n4 away, and its agent, which would write it again.
func lose(m *moves) {
	m.must("agent", "kill", "n4")
	m.kubectl("delete", "warrennode", "n4")
	m.fourth = false
}

// publish boots n4, and its agent writes its record. Without that, in strict mode, it would go on encrypting to peers that
// do not know it any more, also what it has to say to the API server on one of them.
func publish(m *moves) {
	m.must("reboot", "n4")
	m.fourth = true
}

// rewrite deletes the record of n4 and waits until there is another.
func rewrite(m *moves) {
	uid := func() string {
		return m.kubectl("get", "warrennode", "n4", "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
	}
	old := uid()
	m.kubectl("delete", "warrennode", "n4")
	eventually(m.t, time.Minute, "n4 writes its record again", func() bool {
		now := uid()
		return now != "" && now != old
	})
}

// knowTime is how long a node may take to know what has happened: a record that went is looked at for two seconds.
const knowTime = 30 * time.Second

// step makes something happen and looks at what every node then says of every address.
func (m *moves) step(do event) {
	do(m)
	since := time.Now()
	addresses := m.addressesOf(outside)
	for _, node := range m.nodes {
		addresses = append(addresses, node.Addresses...)
	}
	for _, node := range m.live() {
		diff := m.compare(node.Name, addresses, m.ask)
		for ; diff != "" && time.Since(since) < knowTime; diff = m.compare(node.Name, addresses, m.ask) {
			time.Sleep(20 * time.Millisecond)
		}
		if diff != "" {
			m.t.Errorf("%s says (-want +got):\n%s", node.Name, diff)
		}
	}
	m.t.Logf("every node was asked until %v after it had happened", time.Since(since).Round(time.Millisecond))
	m.command()
	m.reach()
}

// command looks at what `warren ipcache get` prints of the first address of the API server.
func (m *moves) command() {
	for _, node := range m.live() {
		if diff := m.compare(node.Name, m.servers[:min(1, len(m.servers))], m.lookup); diff != "" {
			m.t.Errorf("warren ipcache get on %s (-want +got):\n%s", node.Name, diff)
		}
	}
}

// ask has the agent say what `warren ipcache get` prints.
func (m *moves) ask(node string, addr netip.Addr) (api.EntryDetail, bool) {
	entry, err := m.client(node).Entry(m.t.Context(), addr)
	return entry, !errors.Is(err, api.ErrNotFound)
}

// reach connects to the port of the API server on n2 and n3, whether it is said to be there or not.
func (m *moves) reach() {
	for _, way := range [][2]int{{0, 1}, {1, 2}, {2, 1}} {
		for _, address := range m.nodes[way[1]].Addresses {
			if at := netip.AddrPortFrom(address, apiPort); !echoes(m.nodes[way[0]].Namespace, at, 5*time.Second) {
				m.t.Errorf("%s does not reach %s", m.nodes[way[0]].Name, at)
			}
		}
	}
}

// compare returns how what a node says of addresses differs from what it should say.
func (m *moves) compare(node string, addresses []netip.Addr, ask func(node string, addr netip.Addr) (api.EntryDetail, bool)) string {
	want, got := map[netip.Addr]api.EntryDetail{}, map[netip.Addr]api.EntryDetail{}
	for _, addr := range addresses {
		if entry, known := m.want(node, addr); known {
			want[addr] = entry
		}
		if entry, known := ask(node, addr); known {
			got[addr] = entry
		}
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.IgnoreFields(api.EntryDetail{}, "Facts", "Fields", "Kernel"))
}

// want works out what a node should say of an address, from the facts alone; false is nothing.
func (m *moves) want(node string, addr netip.Addr) (api.EntryDetail, bool) {
	serves := slices.Contains(m.servers, addr)
	owner, owned := m.owner(addr)
	if !serves && !owned {
		return api.EntryDetail{}, false
	}
	entry := api.Entry{Prefix: cluster.HostPrefix(addr), Owner: cluster.NodeID{}.String()}
	switch {
	case !owned:
		entry.Labels = []string{"cidr:" + entry.Prefix.String(), identity.LabelWorld}
	case owner.Name == node:
		entry.Labels, entry.Flags = []string{identity.LabelHost}, []string{"node", "local"}
	default:
		entry.Labels, entry.Flags = []string{identity.LabelRemoteNode}, []string{"node"}
		entry.Endpoint, entry.Key, entry.HasPair = owner.Addresses[0].String(), 1, true
	}
	if owned {
		entry.Owner = cluster.NodeID{Cluster: cluster.DefaultCluster, Name: owner.Name}.String()
	}
	if serves {
		entry.Labels = append(entry.Labels, identity.LabelKubeAPIServer)
	}
	slices.Sort(entry.Labels)
	entry.Identity = numberOf(entry.Labels)
	return api.EntryDetail{Entry: entry, Address: addr.String(), Agree: true}, true
}

// live are the nodes that have a record, and an agent.
func (m *moves) live() []lab.Node {
	if m.fourth {
		return m.nodes
	}
	return m.nodes[:3]
}

// owner is the node with a record that has the address.
func (m *moves) owner(addr netip.Addr) (node lab.Node, owned bool) {
	for _, node := range m.live() {
		if slices.Contains(node.Addresses, addr) {
			return node, true
		}
	}
	return lab.Node{}, false
}

// numberOf is the identity of labels as docs/ipcache.md has it.
func numberOf(labels []string) uint32 {
	switch strings.Join(labels, " ") {
	case "reserved:host", "reserved:host reserved:kube-apiserver":
		return 1
	case "reserved:remote-node":
		return 6
	case "reserved:kube-apiserver reserved:remote-node":
		return 7
	}
	return uint32(identity.PreferredNumber(identity.NewLabels(labels...)))
}

// pairWatch reads along what the nodes that stay learn, and notes whenever the pair of an address of theirs changes.
type pairWatch struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	mutex   sync.Mutex
	renamed map[string]int // addresses with a pair that got another identity, by the node that learned it
	broken  []string
}

func followPairs(t *testing.T, m *moves) *pairWatch {
	ctx, cancel := context.WithCancel(t.Context())
	p := &pairWatch{stop: cancel, renamed: map[string]int{}}
	for _, node := range m.staying() {
		p.running.Go(func() {
			for ctx.Err() == nil {
				// It ends with the agent, and the next one begins with all that there is.
				_ = m.client(node).Watch(ctx, func(d api.Delta) error {
					p.take(node, d)
					return nil
				})
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	return p
}

func (p *pairWatch) take(node string, d api.Delta) {
	if d.Old == nil || !d.Old.HasPair || d.Old.Owner == fourth {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if d.New == nil || !d.New.HasPair || d.New.Endpoint != d.Old.Endpoint || d.New.Key != d.Old.Key {
		p.broken = append(p.broken, fmt.Sprintf("%s at %v: %+v became %+v", node, d.Time, *d.Old, d.New))
	} else if d.New.Identity != d.Old.Identity {
		p.renamed[node]++
	}
}

func (p *pairWatch) finish(t *testing.T, m *moves) {
	t.Helper()
	p.stop()
	p.running.Wait()
	for _, what := range p.broken {
		t.Error(what)
	}
	for _, node := range m.staying() {
		if p.renamed[node] == 0 {
			t.Errorf("%s saw no address with a pair become the API server's", node)
		}
	}
}
