package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/ipcache"
	"warren/internal/metrics"
	"warren/internal/netdev"
	"warren/internal/plan"
	"warren/internal/probe"
	"warren/internal/wireguard"
)

// notReady lists what keeps this node from encrypting as configured.
func (a *agent) notReady() []string {
	missing := []string{}
	if !a.synced {
		missing = append(missing, "discovery has not delivered all records yet")
	}
	if !a.view.published {
		missing = append(missing, "this node's own record is not published yet")
	}
	if !a.view.complete || !a.pending.Empty() {
		missing = append(missing, "changes are not in the kernel yet")
	}
	for _, p := range a.problems.ofSteps() {
		missing = append(missing, p.Where+": "+p.Message)
	}
	return missing
}

func (a *agent) status() (api.Status, error) {
	self, missing := a.world.Self(), a.notReady()
	actual, err := a.readDevices()
	if err != nil {
		return api.Status{}, err
	}
	reasons, err := a.reasons()
	if err != nil {
		return api.Status{}, err
	}
	return api.Status{
		Version: a.Version, Node: a.id.Name, Cluster: a.id.Cluster, PID: os.Getpid(), Started: a.started.UTC(),
		Ready: len(missing) == 0, NotReady: missing,
		Mode: a.Config.Mode.String(), ModeSource: a.mode().Source, Ingress: string(a.Config.Ingress), PublicKey: a.newest().public.String(),
		Addresses: texts(self.Addresses), Prefixes: texts(self.Prefixes), Exempt: texts(a.Config.Exempt),
		Device: a.firstDevice(actual), Devices: a.devices(actual), Rotation: a.rotationStatus(), Underlay: a.underlayStatus(), Peers: a.peers(actual),
		Entries: a.world.Cache().Len(), Reasons: reasons, Problems: a.problems.all(),
	}, nil
}

func (a *agent) underlayStatus() []api.Underlay {
	list := []api.Underlay{}
	for _, link := range a.view.underlays {
		list = append(list, api.Underlay{
			Name: link.Name, Index: link.Index, MTU: link.MTU, Attach: a.attachedBy(link),
			Primary: link.Index == a.view.primary, Addrs: texts(link.Addrs),
		})
	}
	return list
}

// attachedBy returns how both programs are attached to an underlay, "" when one is missing.
func (a *agent) attachedBy(link netdev.Link) string {
	how, hooks := "", 0
	for _, attachment := range a.view.attachments {
		if attachment.Ifindex == link.Index && attachment.ProgramID != 0 {
			how = attachment.Mode.String()
			hooks++
		}
	}
	if hooks < 2 {
		return ""
	}
	return how
}

func (a *agent) peers(actual map[plan.Slot]wireguard.Actual) []api.Peer {
	states := map[channel]wireguard.PeerState{}
	for slot, device := range actual {
		for _, state := range device.Peers {
			states[channel{slot, state.Peer.Key}] = state
		}
	}
	list := []api.Peer{}
	for _, node := range a.world.Admission().Peers {
		key, _ := a.world.KeyInUse(node.ID)
		want, ok := a.world.Routes().Peers[key.Public]
		if !ok {
			continue
		}
		c := a.channelTo(key)
		state, installed := states[c]
		peer := api.Peer{
			Node: node.ID.Name, Cluster: node.ID.Cluster, PublicKey: key.Public.String(), Epoch: key.Epoch, Endpoint: want.In(c.slot).Endpoint.String(),
			AllowedIPs: texts(state.AllowedIPs), Installed: installed && len(state.AllowedIPs) > 0,
		}
		for other := range a.channelsTo(node) {
			peer.ReceivedBytes, peer.SentBytes = peer.ReceivedBytes+states[other].Rx, peer.SentBytes+states[other].Tx
		}
		if !state.LastHandshake.IsZero() {
			handshake := state.LastHandshake.UTC()
			peer.LastHandshake = &handshake
		}
		a.addPath(&peer, c)
		list = append(list, peer)
	}
	return list
}

// channelTo returns the channel by which a peer's key in use is sent to, or would be.
func (a *agent) channelTo(key cluster.Key) channel {
	if path := a.world.Routes().Paths[key.Public]; path.Send {
		return channel{path.Slot, key.Public}
	}
	return channel{plan.SlotOf(a.newest().epoch, key.Epoch), key.Public}
}

// channelsTo yields all channels to a node, in use or not.
func (a *agent) channelsTo(node *plan.Record) iter.Seq[channel] {
	return func(yield func(channel) bool) {
		for _, key := range plan.LiveKeys(&node.Node) {
			for _, own := range a.keys {
				if !yield(channel{plan.SlotOf(own.epoch, key.Epoch), key.Public}) {
					return
				}
			}
		}
	}
}

// addPath adds what is known of the way to a peer.
func (a *agent) addPath(status *api.Peer, c channel) {
	path := a.world.Routes().Paths[c.peer]
	status.Encrypting, status.Enforcing = path.Send && a.datapathMode() != cluster.ModeObserve, path.Enforce && a.Config.Mode == cluster.ModeStrict
	status.MTU, status.State = int(cmp.Or(path.MTU, uint16(a.deviceMTU()))), probe.Unknown.String()
	peer, known := a.probing.peers[c]
	if !known {
		return
	}
	now := monotonic()
	state := peer.State(now)
	status.State, status.Since = state.Phase.String(), time.Now().Add(state.Since-now).UTC().Truncate(time.Millisecond)
	status.RTT, status.PathMTU = float64(state.RTT.Microseconds())/1000, state.PathMTU
	if state.Requests > 0 {
		status.Loss = float64(state.Lost) / float64(state.Requests)
	}
	if state.Heard {
		status.Mode = state.Peer.Mode.String()
	}
}

func (a *agent) reasons() ([]api.Reason, error) {
	counters, err := a.data.Counters()
	if err != nil {
		return nil, err
	}
	list := []api.Reason{}
	for _, c := range counters {
		list = append(list, api.Reason{
			Program: c.Program.String(), Reason: c.Reason.String(), Packets: c.Packets, Bytes: c.Bytes, Description: c.Reason.Description(),
		})
	}
	return list, nil
}

func (a *agent) nodes() []api.Node {
	admission := a.world.Admission()
	problems := map[cluster.NodeID]string{}
	for _, r := range admission.Refused {
		problems[r.Node] = r.Problem + "; remedy: " + r.Remedy
	}
	held, until := a.departures.Held()
	remembered := a.world.Remembered()
	list := []api.Node{nodeStatus(a.world.Self(), "self", "")}
	list[0].Self = true
	for _, node := range a.world.Records() {
		problem, refused := problems[node.ID]
		switch {
		case refused:
			list = append(list, nodeStatus(node, "refused", problem))
		case slices.Contains(held, node.ID):
			list = append(list, nodeStatus(node, "held", a.heldBecause(until)))
		case slices.Contains(remembered, node.ID):
			list = append(list, nodeStatus(node, "remembered", "known from before this agent's start; discovery has not brought its record so far"))
		case node.ID != a.id:
			list = append(list, nodeStatus(node, "peer", ""))
		}
	}
	return list
}

func nodeStatus(node cluster.Node, state, problem string) api.Node {
	status := api.Node{
		Name: node.ID.Name, Cluster: node.ID.Cluster, Addresses: orEmpty(node.Addresses), Prefixes: orEmpty(node.Prefixes), Keys: []api.Key{},
		Issued: node.Issued, Capabilities: orEmpty(node.Capabilities), Version: node.Version, State: state, Problem: problem,
	}
	for _, key := range node.Keys {
		status.Keys = append(status.Keys, api.Key{Public: key.Public.String(), Epoch: key.Epoch, Port: key.Port})
	}
	return status
}

func (a *agent) entries(filter api.Filter) []api.Entry {
	list := []api.Entry{}
	fits := a.filter(filter)
	for prefix, entry := range a.world.Cache().All() {
		if fits(prefix, entry) {
			list = append(list, entryStatus(prefix, entry))
		}
	}
	return list
}

// filter returns the filter as a condition.
func (a *agent) filter(f api.Filter) func(netip.Prefix, ipcache.Entry) bool {
	conflicted := map[netip.Prefix]bool{}
	if f.Conflict {
		for _, conflict := range a.world.Cache().Conflicts() {
			conflicted[conflict.Prefix] = true
		}
	}
	return func(prefix netip.Prefix, entry ipcache.Entry) bool {
		return (f.Node == "" || f.Node == entry.Owner.Name || f.Node == entry.Owner.String()) &&
			(f.Identity == nil || *f.Identity == uint32(entry.Identity)) &&
			(!f.Conflict || conflicted[prefix]) &&
			(f.Source == 0 || a.states(f.Source, prefix))
	}
}

// states reports whether the source has a fact about exactly this prefix.
func (a *agent) states(source cluster.Source, prefix netip.Prefix) bool {
	explanation, _ := a.world.Cache().Explain(prefix)
	return slices.ContainsFunc(explanation.Facts, func(e ipcache.Evidence) bool {
		return e.Fact.Source == source && e.Fact.Prefix == prefix
	})
}

func (a *agent) entry(addr netip.Addr) (api.EntryDetail, error) {
	prefix, entry, ok := a.world.Cache().Lookup(addr)
	if !ok {
		return api.EntryDetail{}, fmt.Errorf("%w: no prefix covers %s; it is not in the cluster, and packets to it pass as they are", api.ErrNotFound, addr)
	}
	detail := api.EntryDetail{Entry: entryStatus(prefix, entry), Address: addr.String(), Facts: []api.Fact{}, Fields: []api.FieldFrom{}}
	if explanation, ok := a.world.Cache().Explain(prefix); ok {
		addEvidence(&detail, explanation)
	}
	kernel, found, err := a.data.Lookup(addr)
	if err != nil {
		return api.EntryDetail{}, err
	}
	if found {
		status := kernelStatus(prefix, kernel)
		detail.Kernel = &status
	}
	want, known := a.world.Lookup(addr)
	detail.Agree = found == known && kernel == want
	return detail, nil
}

func addEvidence(detail *api.EntryDetail, explanation ipcache.Explanation) {
	for _, evidence := range explanation.Facts {
		detail.Facts = append(detail.Facts, factStatus(evidence.Fact))
	}
	from := func(field string, fact *cluster.Fact) {
		if fact != nil {
			detail.Fields = append(detail.Fields, api.FieldFrom{Field: field, Source: fact.Source, Resource: fact.Resource})
		}
	}
	from("owner", explanation.Owner)
	from("pair", explanation.Pair)
	for _, label := range explanation.Labels {
		from(label.Label, label.Fact)
	}
}

func (a *agent) conflicts() []api.Conflict {
	list := []api.Conflict{}
	for _, c := range a.world.Cache().Conflicts() {
		conflict := api.Conflict{Prefix: c.Prefix, Field: string(c.Field), Winner: factStatus(c.Winner), Losers: []api.Fact{}}
		for _, loser := range c.Losers {
			conflict.Losers = append(conflict.Losers, factStatus(loser))
		}
		list = append(list, conflict)
	}
	return list
}

func factStatus(fact cluster.Fact) api.Fact {
	status := api.Fact{
		Prefix: fact.Prefix, Source: fact.Source, Resource: fact.Resource, Labels: orEmpty(fact.Info.Labels),
		Endpoint: endpointText(fact.Info.Pair.Endpoint, fact.Info.HasPair), Key: uint8(fact.Info.Pair.Key), HasPair: fact.Info.HasPair,
		Owner: fact.Info.Owner.String(), Flags: flagTexts(fact.Info.Flags),
	}
	if fact.Issued != 0 {
		issued := time.Unix(fact.Issued, 0).UTC()
		status.Issued = &issued
	}
	return status
}

func entryStatus(prefix netip.Prefix, entry ipcache.Entry) api.Entry {
	return api.Entry{
		Prefix: prefix, Identity: uint32(entry.Identity), Labels: orEmpty(entry.Labels.Strings()),
		Endpoint: endpointText(entry.Pair.Endpoint, entry.HasPair), Key: uint8(entry.Pair.Key), HasPair: entry.HasPair,
		Owner: entry.Owner.String(), Flags: flagTexts(entry.Flags),
	}
}

// kernelStatus is what the datapath finds for an address of the prefix. It knows neither labels nor owner.
func kernelStatus(prefix netip.Prefix, e plan.Entry) api.Entry {
	return api.Entry{
		Prefix: prefix, Identity: e.Identity, Labels: []string{}, Endpoint: endpointText(e.Endpoint, e.HasPair),
		Key: uint8(e.Key), HasPair: e.HasPair, Owner: cluster.NodeID{}.String(), Flags: flagTexts(e.Flags),
	}
}

func endpointText(addr netip.Addr, has bool) string {
	if !has || !addr.IsValid() {
		return ""
	}
	return addr.String()
}

func flagTexts(flags cluster.Flags) []string {
	list := []string{}
	if flags&cluster.FlagNode != 0 {
		list = append(list, "node")
	}
	if flags&cluster.FlagLocal != 0 {
		list = append(list, "local")
	}
	return list
}

// heldBecause says why a node whose record vanished is a peer.
func (a *agent) heldBecause(until time.Time) string {
	if holdRule(a.Config).Silence {
		return fmt.Sprintf("its key ran out, its agent is away; it stays a peer until nothing has come from it for %s", a.Config.Hold.Wait)
	}
	return "its record vanished together with others; it stays a peer until " + until.UTC().Format(time.RFC3339)
}

// snapshot is the status in the form that metrics needs.
func (a *agent) snapshot(ctx context.Context) (s metrics.Snapshot, err error) {
	askErr := a.ask(ctx, func() { s, err = a.metrics() })
	return s, errors.Join(askErr, err)
}

func (a *agent) metrics() (metrics.Snapshot, error) {
	status, err := a.status()
	if err != nil {
		return metrics.Snapshot{}, err
	}
	held, _ := a.departures.Held()
	s := metrics.Snapshot{
		KeyEpoch: status.Rotation.Epoch, KeysMoved: len(status.Rotation.Moved), KeysWaiting: len(status.Rotation.Waiting),
		NodesHeld: len(held), KeyChanges: a.keyChanges, Renewals: a.renewals, Recreations: a.recreations,
		Version: status.Version, Engine: status.Device.Engine, Mode: status.Mode, Ready: status.Ready, Synced: a.synced,
		Entries: status.Entries, NodesRefused: len(a.world.Admission().Refused), Conflicts: a.world.Cache().Conflicted(),
		Problems: len(status.Problems), Pending: a.pendingOperations(), Underlays: len(status.Underlay), DeviceMTU: status.Device.MTU,
		Maps: a.maps(), Failures: maps.Clone(a.failures), Rounds: a.rounds, Repairs: a.repairs, Operations: a.written,
	}
	for _, u := range status.Underlay {
		if u.Attach != "" {
			s.Attached++
		}
	}
	for _, p := range status.Peers {
		peer := metrics.Peer{
			Node: p.Node, Received: p.ReceivedBytes, Sent: p.SentBytes, State: p.State,
			RTT: time.Duration(p.RTT * float64(time.Millisecond)), Loss: p.Loss, MTU: p.MTU,
		}
		if p.LastHandshake != nil {
			peer.LastHandshake = *p.LastHandshake
		}
		s.Peers = append(s.Peers, peer)
	}
	for _, r := range status.Reasons {
		s.Reasons = append(s.Reasons, metrics.Reason{Program: r.Program, Reason: r.Reason, Packets: r.Packets, Bytes: r.Bytes})
	}
	s.PeerReasons, err = a.peerReasons()
	return s, err
}

// maps counts what the datapath's maps hold, as last read or written.
func (a *agent) maps() []metrics.Map {
	addresses := 0
	for prefix := range a.have.Entries {
		if prefix.IsSingleIP() {
			addresses++
		}
	}
	c := a.Config.IPCache
	return []metrics.Map{
		{Name: "ipcache.max-addresses", Entries: addresses, Max: int(c.MaxAddresses)},
		{Name: "ipcache.max-prefixes", Entries: len(a.have.Entries) - addresses, Max: int(c.MaxPrefixes)},
	}
}

// pendingOperations counts what a round would do now.
func (a *agent) pendingOperations() int {
	if a.pending.Empty() {
		return 0
	}
	options := plan.Options{Prune: a.synced}
	pending := plan.Diff(a.world.WantEntries(a.pending), a.pending.Of(a.have), options).Len()
	for _, t := range a.tunnelsInUse() {
		pending += plan.Diff(a.world.WantTunnel(a.pending, t.slot), a.pending.Of(t.have), options).Len()
	}
	return pending
}

// peerReasons names the node behind each endpoint that the datapath counted abnormal packets for.
func (a *agent) peerReasons() ([]metrics.PeerReason, error) {
	counters, err := a.data.PeerCounters()
	if err != nil {
		return nil, err
	}
	names := map[netip.Addr]string{}
	for _, peer := range a.world.Routes().Peers {
		names[peer.Endpoint.Addr()] = peer.Node.Name
	}
	type key struct{ node, program, reason string }
	sums := map[key]metrics.PeerReason{}
	for _, c := range counters {
		node, ok := names[c.Endpoint]
		if !ok {
			node = "unknown"
		}
		k := key{node, c.Program.String(), c.Reason.String()}
		sums[k] = metrics.PeerReason{Node: node, Program: k.program, Reason: k.reason, Packets: sums[k].Packets + c.Packets, Bytes: sums[k].Bytes + c.Bytes}
	}
	list := make([]metrics.PeerReason, 0, len(sums))
	for _, r := range sums {
		list = append(list, r)
	}
	return list, nil
}

func texts[T fmt.Stringer](values []T) []string {
	list := make([]string, 0, len(values))
	for _, value := range values {
		list = append(list, value.String())
	}
	return list
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
