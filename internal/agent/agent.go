package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/datapath"
	"warren/internal/discovery"
	"warren/internal/discovery/dir"
	"warren/internal/ipcache"
	"warren/internal/netdev"
	"warren/internal/plan"
	"warren/internal/wireguard"
	"warren/internal/wireguard/userspace"
)

// keyFile is the name of the private key in the state directory.
const keyFile = "private.key"

// Options of Run; all are needed.
type Options struct {
	Config  config.Config
	Version string
	// Executable is started as `EXECUTABLE tunnel …` where the kernel has no WireGuard.
	Executable string
	Log        *slog.Logger
}

// agent is the state of the loop. Only the loop's goroutine touches it.
type agent struct {
	Options
	started time.Time
	id      cluster.NodeID
	key     cluster.PrivateKey

	links  *netdev.Netdev
	wg     *wireguard.Device
	device tunnelDevice
	data   *datapath.Datapath
	folder *dir.Dir

	world     *plan.World
	have      plan.State // what the kernel has, as last read or written
	pending   plan.Scope // what is still to be looked at
	synced    bool
	memory    memory
	view      view
	problems  problems
	backoff   backoff
	failures  map[string]uint64
	rounds    uint64
	repairs   uint64
	written   uint64 // operations carried out
	questions chan func()
	watchers  watchers
}

// view is what the last round saw.
type view struct {
	underlays   []netdev.Link
	primary     uint32
	link        netdev.Link
	attachments []datapath.Attachment
	published   bool
	complete    bool // the last round did everything
}

// Run runs the agent until ctx ends. It leaves device, programs and maps in place. An error means that
// it could not start; what fails later is retried, and visible in the status.
func Run(ctx context.Context, o Options) error {
	unlock, err := lockRunDir(o.Config.RunDir)
	if err != nil {
		return err
	}
	defer unlock()
	a, err := open(o)
	if err != nil {
		return err
	}
	defer a.close()
	servers, err := a.listen()
	if err != nil {
		return err
	}
	defer servers.close()
	o.Log.Info("agent starts", "version", o.Version, "node", a.id, "public_key", a.key.Public(), "mode", o.Config.Mode)
	defer o.Log.Info("agent ends; the datapath stays in place")
	return a.run(ctx, servers)
}

// lockRunDir makes the run directory (0700) and keeps a second agent out of it.
func lockRunDir(runDir string) (unlock func(), err error) {
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the run directory: %w", err)
	}
	path := filepath.Join(runDir, "agent.lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the run directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another agent runs with the run directory %s; stop it, or give this one its own (--run-dir)", runDir)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}

// open opens the drivers. Nothing is changed on the node yet, except for a first private key.
func open(o Options) (*agent, error) {
	a := &agent{
		Options: o, started: time.Now(), failures: map[string]uint64{}, questions: make(chan func()), watchers: watchers{},
		world: plan.NewWorld(cluster.SourceDirectory), have: plan.NewState(), pending: plan.Scope{All: true},
	}
	a.world.Watch = func(deltas []ipcache.Delta) { a.watchers.send(deltas, time.Now()) }
	var err error
	if a.id, err = o.Config.NodeID(); err != nil {
		return nil, err
	}
	var created bool
	keyPath := filepath.Join(o.Config.StateDir, keyFile)
	if a.key, created, err = wireguard.LoadOrCreateKey(keyPath); err != nil {
		return nil, err
	}
	if created {
		o.Log.Info("private key created", "path", keyPath, "public_key", a.key.Public())
	}
	if err := a.openDrivers(); err != nil {
		a.close()
		return nil, err
	}
	a.remember()
	a.apply(configuredFacts(o.Config.Facts))
	return a, nil
}

func (a *agent) openDrivers() (err error) {
	c := a.Config
	if a.links, err = netdev.Open(); err != nil {
		return err
	}
	if a.wg, err = wireguard.Open(c.Device, a.Log); err != nil {
		return err
	}
	process := userspace.NewTunnel(userspace.TunnelOptions{Executable: a.Executable, Device: c.Device, RunDir: c.RunDir}, a.Log)
	a.device = tunnelDevice{engine: c.Engine, links: a.links, process: process}
	var attach datapath.AttachMode
	if err := attach.UnmarshalText([]byte(c.Attach)); err != nil {
		return err
	}
	a.data, err = datapath.Open(datapath.Options{
		Dir: c.BPFDir, Attach: attach, Filters: a.links.Filters(), Logger: a.Log,
		MaxAddresses: c.IPCache.MaxAddresses, MaxPrefixes: c.IPCache.MaxPrefixes,
	})
	if err != nil {
		return err
	}
	a.folder = dir.New(dir.Options{Path: c.Dir.Path, Rescan: c.Dir.Rescan.Duration, Self: a.id, Create: true})
	return nil
}

func (a *agent) close() {
	if a.data != nil {
		_ = a.data.Close()
	}
	if a.wg != nil {
		_ = a.wg.Close()
	}
	if a.links != nil {
		a.links.Close()
	}
}

// run starts the goroutines and waits for them.
func (a *agent) run(ctx context.Context, servers *servers) error {
	links, err := a.links.Watch(ctx)
	if err != nil {
		return err
	}
	events := make(chan discovery.Event, 256)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return a.folder.Run(ctx, func(event discovery.Event) {
			select {
			case events <- event:
			case <-ctx.Done():
			}
		})
	})
	group.Go(func() error { return servers.serve(ctx) })
	group.Go(func() error {
		a.loop(ctx, events, links)
		return nil
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// loop takes in news and works in rounds, until ctx ends.
func (a *agent) loop(ctx context.Context, events <-chan discovery.Event, links <-chan struct{}) {
	resync := time.NewTicker(a.Config.Resync.Duration)
	defer resync.Stop()
	retry := time.NewTimer(0) // the first round, at once
	defer retry.Stop()
	for {
		full := false
		select {
		case <-ctx.Done():
			return
		case question := <-a.questions:
			question()
			continue
		case event := <-events:
			a.take(event, events)
		case <-links:
			full = true
		case <-resync.C:
			full = true
		case <-retry.C:
			full = true
		}
		if err := a.round(ctx, full); err != nil && ctx.Err() == nil {
			pause := a.backoff.fail()
			a.Log.Debug("round failed", "error", err, "retry_in", pause)
			retry.Reset(pause)
			continue
		}
		a.backoff.reset()
	}
}

// take applies an event, and those that wait behind it, in one step.
func (a *agent) take(event discovery.Event, more <-chan discovery.Event) {
	var changes []plan.Change
	for {
		switch event.Kind {
		case discovery.Upsert:
			node := event.Node
			changes = append(changes, plan.Change{Upsert: &node})
		case discovery.Delete:
			id := event.ID
			changes = append(changes, plan.Change{Delete: &id})
		case discovery.Synced:
			a.sync()
			changes = append(changes, plan.Change{Synced: true})
		case discovery.APIServers:
			changes = append(changes, a.setAPIServers(event.APIServers))
		case discovery.Problems:
			a.problems.set("discovery", recordProblems(event.Problems), time.Now(), a.Log)
		}
		select {
		case event = <-more:
			continue
		default:
		}
		break
	}
	a.apply(changes...)
	if len(a.view.underlays) > 1 {
		a.apply(plan.Change{Underlay: a.underlayRoutes()})
	}
}

// sync notes that discovery has delivered everything: what nobody confirmed may go from now on.
func (a *agent) sync() {
	if !a.synced {
		a.synced = true
		a.memory.stale = true
		a.pending.All = true // what was kept until now may go
		a.Log.Info("discovery is synced")
	}
}

// apply takes news into the world and notes what has to be looked at.
func (a *agent) apply(changes ...plan.Change) {
	if len(changes) == 0 {
		return
	}
	before := a.world.Admission().Peers
	a.world.Apply(changes...)
	a.pending.Add(a.world.Changed())
	a.memory.stale = a.memory.stale || !slices.EqualFunc(before, a.world.Admission().Peers, sayTheSame)
	a.problems.set("admission", refusals(a.world), time.Now(), a.Log)
}

func sayTheSame(a, b *plan.Record) bool { return plan.SameContent(&a.Node, &b.Node) }

// configuredFacts is what the configuration states, as one resource.
func configuredFacts(facts []config.Fact) plan.Change {
	statement := plan.Statement{Source: cluster.SourceFile, Resource: "file/config"}
	for _, fact := range facts {
		statement.Facts = append(statement.Facts, cluster.Fact{Prefix: fact.Prefix, Info: fact.Info})
	}
	return plan.Change{Statement: &statement}
}

func recordProblems(found []discovery.Problem) []api.Problem {
	list := make([]api.Problem, 0, len(found))
	for _, p := range found {
		list = append(list, api.Problem{Where: p.Where, Message: p.Message, Remedy: p.Remedy})
	}
	return list
}

// refusals are the records that are not admitted, and the prefixes that two nodes claim.
func refusals(world *plan.World) []api.Problem {
	list := []api.Problem{}
	for _, r := range world.Admission().Refused {
		list = append(list, api.Problem{Where: "node " + r.Node.String(), Message: "record refused: " + r.Problem, Remedy: r.Remedy})
	}
	for _, c := range world.Cache().Conflicts() {
		for _, loser := range c.Losers {
			list = append(list, api.Problem{
				Where:   "prefix " + c.Prefix.String(),
				Message: fmt.Sprintf("%s says %s otherwise than %s, which counts", loser.Resource, c.Field, c.Winner.Resource),
				Remedy:  "take the prefix out of one of the two records; if one of them is a machine that is gone, remove its record",
			})
		}
	}
	return list
}
