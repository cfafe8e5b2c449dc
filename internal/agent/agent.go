package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/datapath"
	"warren/internal/discovery"
	"warren/internal/ipcache"
	"warren/internal/netdev"
	"warren/internal/plan"
)

// ErrRunning says that an agent has the run directory.
var ErrRunning = errors.New("another agent runs")

// Options of Run; all are needed.
type Options struct {
	Config  config.Config
	Version string
	// Executable is started as `EXECUTABLE tunnel …` where the kernel has no WireGuard.
	Executable string
	Log        *slog.Logger
	// LogLevel is the level of Log; it follows the configuration.
	LogLevel *slog.LevelVar
	// Reload reads the configuration anew, when Hangup receives something.
	Reload func() (config.Config, error)
	Hangup <-chan os.Signal
}

// agent is the state of the loop. Only the loop's goroutine touches it.
type agent struct {
	Options
	started time.Time
	id      cluster.NodeID
	// configured is the mode that the configuration says; commanded says that another one was set.
	configured cluster.Mode
	commanded  bool
	// base is the configuration without what the engine says; refused is what it says and cannot count.
	base       config.Config
	engineSays told
	refused    []discovery.Problem
	// keys are this node's own, oldest first; two while the older one is being replaced.
	keys []ownKey

	links   *netdev.Netdev
	tunnels [plan.Slots]*tunnel // nil where this node has no device
	data    *datapath.Datapath
	engine  engine
	// engineServers is where the engine is reached.
	engineServers []netip.AddrPort

	world       *plan.World
	departures  *plan.Departures
	probing     *probing
	leave       *leaving       // nil while this node stays
	rotation    *plan.Rotation // nil while this node has one key
	rotated     time.Time      // when the rotation was looked at last
	have        plan.State     // the entries that the kernel has, as last read or written
	pending     plan.Scope     // what is still to be looked at
	draining    plan.Scope     // what is to be looked at again when the devices are drained,
	drained     time.Time      // which is then
	synced      bool
	syncedAt    time.Time
	memory      memory
	view        view
	problems    problems
	backoff     backoff
	failures    map[string]uint64
	rounds      uint64
	repairs     uint64
	written     uint64 // operations carried out
	keyChanges  uint64 // keys that nobody announced and that were accepted
	renewals    uint64 // of peers that were stuck
	recreations uint64 // of the device
	questions   chan func()
	watchers    watchers
}

// view is what the last round saw.
type view struct {
	underlays   []netdev.Link
	primary     uint32
	attachments []datapath.Attachment
	mode        cluster.Mode // of the programs
	published   bool
	complete    bool // the last round did everything
	swept       bool // devices that an earlier agent had no use for are gone
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
	o.Log.Info("agent starts", "version", o.Version, "node", a.id, "public_key", a.newest().public, "epoch", a.newest().epoch, "mode", a.Config.Mode)
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
			return nil, fmt.Errorf("%w with the run directory %s; stop it, or give this one its own (--run-dir)", ErrRunning, runDir)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}

// open opens the drivers. Nothing is changed on the node yet, except for a first private key.
func open(o Options) (*agent, error) {
	a := &agent{
		Options: o, base: o.Config, configured: o.Config.Mode, started: time.Now(), failures: map[string]uint64{}, questions: make(chan func()), watchers: watchers{},
		have: plan.NewState(), pending: plan.Scope{All: true},
	}
	a.recallTold()
	a.world = plan.NewWorld(sourceOf(a.Config.Discovery), a.Config.KeyChange == config.KeyChangeHold)
	a.departures = plan.NewDepartures(holdRule(a.Config))
	a.world.Watch = func(deltas []ipcache.Delta) { a.watchers.send(deltas, time.Now()) }
	var err error
	if a.id, err = a.Config.NodeID(); err != nil {
		return nil, err
	}
	if a.keys, err = a.ownKeys().load(); err != nil {
		return nil, err
	}
	if len(a.keys) > 1 {
		a.rotation = plan.NewRotation(a.newest().made)
	}
	a.probing = newProbing()
	if err := a.openDrivers(); err != nil {
		a.close()
		return nil, err
	}
	a.recallMode()
	a.remember()
	a.apply(configuredFacts(a.Config.Facts))
	return a, nil
}

func (a *agent) openDrivers() (err error) {
	c := a.Config
	if a.links, err = netdev.Open(); err != nil {
		return err
	}
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
	a.engine, err = openEngine(c, a.id, true)
	return err
}

func (a *agent) close() {
	for _, t := range a.tunnels {
		if t != nil {
			t.close()
		}
	}
	if a.data != nil {
		_ = a.data.Close()
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
	events, arrivals := make(chan discovery.Event, 256), make(chan datapath.Arrival, arrivalsQueued)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return a.engine.Run(ctx, func(event discovery.Event) {
			select {
			case events <- event:
			case <-ctx.Done():
			}
		})
	})
	group.Go(func() error { return servers.serve(ctx) })
	group.Go(func() error { return a.listenForProbes(ctx, arrivals) })
	group.Go(func() error {
		a.loop(ctx, news{events, links, arrivals})
		return nil
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// news is what the loop takes in from other goroutines.
type news struct {
	events   <-chan discovery.Event
	links    <-chan struct{}
	arrivals <-chan datapath.Arrival
}

// loop takes in news and works in rounds, until ctx ends.
func (a *agent) loop(ctx context.Context, n news) {
	resync := time.NewTicker(a.Config.Resync.Duration)
	defer resync.Stop()
	retry := time.NewTimer(0) // the first round, at once
	defer retry.Stop()
	wake := time.NewTimer(0) // what is due by itself
	defer wake.Stop()
	for {
		wake.Reset(a.untilDue())
		full := false
		select {
		case <-ctx.Done():
			return
		case question := <-a.questions:
			question()
		case event := <-n.events:
			a.take(event, n.events)
		case arrival := <-n.arrivals:
			a.arrived(arrival, n.arrivals)
		case <-n.links:
			full = true
		case <-resync.C:
			full = true
		case <-retry.C:
			full = true
		case <-a.Hangup:
			a.reload()
			full = true
		case <-wake.C:
		}
		a.doDue()
		full = full || a.view.mode != a.datapathMode()
		if !full && a.idle() {
			continue
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

// idle reports whether a round would find nothing to do.
func (a *agent) idle() bool {
	save, stale := a.memory.due()
	return a.view.complete && a.pending.Empty() && !(a.synced && stale && !time.Now().Before(save))
}

// untilDue returns how long nothing is due that comes by itself.
func (a *agent) untilDue() time.Duration {
	next := time.Hour
	if at, ok := a.departures.Next(); ok {
		next = min(next, time.Until(at))
	}
	if a.leave != nil || len(a.world.Admission().Candidates) > 0 {
		next = min(next, soon)
	}
	next = min(next, time.Until(a.rotationDue()))
	if !a.draining.Empty() {
		next = min(next, time.Until(a.drained))
	}
	// A round saves at its end: after one that failed the next one comes by itself.
	if at, stale := a.memory.due(); a.synced && stale && a.backoff.failures == 0 {
		next = min(next, time.Until(at))
	}
	return max(0, min(next, a.probing.next(a.world.Cache().Len())-monotonic()))
}

// soon is when to look again at what waits for answers of peers.
const soon = 200 * time.Millisecond

// doDue does what comes by itself.
func (a *agent) doDue() {
	a.letGo(time.Now())
	a.advanceLeave()
	if !a.draining.Empty() && !time.Now().Before(a.drained) {
		a.pending.Add(a.draining)
		a.draining = plan.Scope{}
	}
	a.advanceRotation(time.Now())
	now := monotonic()
	a.probe(now)
	a.settle(now)
	a.releaseKeys(now)
}

// take applies an event, and those that wait behind it, in one step.
func (a *agent) take(event discovery.Event, more <-chan discovery.Event) {
	var changes []plan.Change
	for {
		switch event.Kind {
		case discovery.Upsert:
			node := event.Node
			a.departures.Back(node.ID)
			changes = append(changes, plan.Change{Upsert: &node})
		case discovery.Delete:
			if event.Left || a.world.Leaving(event.ID) {
				a.departures.Back(event.ID)
				changes = append(changes, plan.Change{Delete: &event.ID})
			} else {
				a.departures.Gone(event.ID, time.Now())
			}
		case discovery.Synced:
			a.apply(append(changes, plan.Change{Synced: true})...)
			changes = nil
			a.sync()
		case discovery.APIServers:
			changes = append(changes, a.setAPIServers(event.APIServers))
		case discovery.Servers:
			a.engineServers, a.view.complete = event.Servers, false // the datapath is to have them
		case discovery.Local:
			if !reflect.DeepEqual(event.Local, a.engineSays.Machine) {
				a.noteTold(func(t *told) { t.Machine = event.Local })
			}
		case discovery.Settings:
			a.hearSettings(event.Settings)
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
		a.synced, a.syncedAt = true, time.Now()
		if !a.memory.told {
			a.apply(a.setAPIServers(nil)) // there are none any more
		}
		for _, id := range a.world.Remembered() {
			a.departures.Gone(id, time.Now())
		}
		a.memory.stale = true
		a.pending.All = true // what was kept until now may go
		a.view.complete = false
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
	a.view.complete = a.view.complete && !a.lacksTunnel()
	a.memory.stale = a.memory.stale || !slices.EqualFunc(before, a.world.Admission().Peers, sayTheSame)
	a.problems.set("admission", refusals(a.world), time.Now(), a.Log)
}

func sayTheSame(a, b *plan.Record) bool { return plan.SameContent(&a.Node, &b.Node) }

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
