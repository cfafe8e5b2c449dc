package agent

import (
	"fmt"
	"strings"
	"time"

	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/discovery"
	"warren/internal/discovery/dir"
)

// engine carries the records of the cluster. It may be a discovery.Reporter as well.
type engine interface {
	discovery.Source
	discovery.Publisher
}

// openEngine opens the configured engine, which need not be reachable yet. create makes what records are
// kept in, where this machine is to make it.
func openEngine(c config.Config, self cluster.NodeID, create bool) (engine, error) {
	switch c.Discovery {
	case config.DiscoveryDir:
		return dir.New(dir.Options{Path: c.Dir.Path, Rescan: c.Dir.Rescan.Duration, Self: self, Create: create}), nil
	}
	open, ok := engines[c.Discovery]
	if !ok {
		return nil, fmt.Errorf("discovery by %s: this warren was built without it; take one that has it, or set discovery to another engine", c.Discovery)
	}
	return open(c, self)
}

// sourceOf is the rank of the records that an engine carries.
func sourceOf(engine config.Discovery) cluster.Source {
	switch engine {
	case config.DiscoveryKubernetes:
		return cluster.SourceCustomResource
	case config.DiscoveryEtcd:
		return cluster.SourceKVStore
	default:
		return cluster.SourceDirectory
	}
}

// lookFor is how long an agent looks for peers before it says that it has none: where the agents of all nodes are
// started together, the first ones find no record of another.
const lookFor = 30 * time.Second

// report tells the engine how this machine is doing, where it shows that. The mode is that of the programs: on the way to
// observe mode they go on encrypting for a while, and who waits for the node to have stopped must not be told before.
func (a *agent) report() {
	reporter, ok := a.engine.(discovery.Reporter)
	if !ok || !a.synced {
		return
	}
	missing := a.notReady()
	peers := a.world.Admission().Peers
	report := discovery.Report{
		Mode: a.view.mode.String(), Version: a.Version, MTU: a.deviceMTU(), Peers: len(peers), Ready: len(missing) == 0,
		Looking:  len(peers) == 0 && time.Since(a.syncedAt) < lookFor,
		NotReady: strings.Join(missing, "; "), KeyRotating: a.rotation != nil, Refused: a.refused,
	}
	for _, peer := range peers {
		if key, ok := a.world.KeyInUse(peer.ID); ok && a.world.Routes().Paths[key.Public].Send {
			report.Confirmed++
		}
	}
	reporter.Report(report)
}

// engines are those that a build can be without.
var engines = map[config.Discovery]func(config.Config, cluster.NodeID) (engine, error){}
