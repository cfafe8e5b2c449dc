package agent

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/discovery/snapshot"
	"warren/internal/plan"
)

const (
	snapshotFile = "snapshot.json"
	// savePause is the least time between two writes of the snapshot, for when records come in a row.
	savePause = time.Second
)

// memory is the snapshot on disk: what the next agent, perhaps after a reboot, begins with.
type memory struct {
	apiServers []netip.AddrPort // as discovery says, or an earlier run until it does
	told       bool             // discovery has said where they are
	stale      bool             // the file is not what is known now
	saved      time.Time
	failed     bool                       // the last write did
	keys       map[cluster.PublicKey]bool // of the peers in the file
}

// due returns when the snapshot is to be written.
func (m *memory) due() (at time.Time, ok bool) { return m.saved.Add(savePause), m.stale }

// wrote notes the peers in the file.
func (m *memory) wrote(peers []cluster.Node) {
	m.keys = make(map[cluster.PublicKey]bool, len(peers))
	for _, node := range peers {
		for _, key := range node.Keys {
			m.keys[key.Public] = true
		}
	}
}

// has reports whether a peer with that key is known after a reboot, as far as can be: a disk that is full
// does not keep this node from encrypting.
func (m *memory) has(key cluster.PublicKey) bool { return m.failed || m.keys[key] }

func (a *agent) snapshotPath() string { return filepath.Join(a.Config.StateDir, snapshotFile) }

// remember takes in the snapshot, until every source is synced.
func (a *agent) remember() {
	last, err := snapshot.Load(a.snapshotPath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		a.Log.Warn("nothing is remembered of an earlier run", "error", err)
		return
	}
	a.Log.Info("the snapshot of an earlier run counts until discovery is synced", "peers", len(last.Peers), "api_servers", len(last.APIServers))
	a.memory.wrote(last.Peers)
	a.memory.apiServers = last.APIServers
	a.apply(
		plan.Change{Remember: last.Peers},
		plan.Change{Statement: &plan.Statement{Source: cluster.SourceRestored, Resource: plan.APIServers, Facts: plan.APIServerFacts(last.APIServers)}},
	)
}

// setAPIServers takes in where the API server is reached.
func (a *agent) setAPIServers(servers []netip.AddrPort) plan.Change {
	a.memory.told = true
	a.view.complete = a.view.complete && slices.Equal(servers, a.memory.apiServers) // the datapath has them too
	if !slices.Equal(servers, a.memory.apiServers) {
		a.memory.apiServers, a.memory.stale = servers, true
	}
	return plan.Change{Statement: &plan.Statement{Source: cluster.SourceKubeAPIServer, Resource: plan.APIServers, Facts: plan.APIServerFacts(servers)}}
}

// saveMemory writes the snapshot when it is stale. Before everything is synced there is nothing that is
// worth more than the last one. What fails is a problem, holds up nothing else, and is tried again.
func (a *agent) saveMemory(context.Context) error {
	if !a.synced || !a.memory.stale || time.Since(a.memory.saved) < savePause {
		return nil
	}
	var found []api.Problem
	now := snapshot.Snapshot{APIServers: a.memory.apiServers}
	for _, record := range a.world.Admission().Peers {
		now.Peers = append(now.Peers, record.Node)
	}
	if err := snapshot.Save(a.snapshotPath(), now); err != nil {
		found = []api.Problem{{Where: a.snapshotPath(), Message: err.Error(), Remedy: "make room in the state directory, or make it writable"}}
	}
	if found == nil {
		a.memory.wrote(now.Peers)
	}
	a.memory.saved, a.memory.stale, a.memory.failed = time.Now(), found != nil, found != nil
	a.problems.set("snapshot", found, time.Now(), a.Log)
	return nil
}
