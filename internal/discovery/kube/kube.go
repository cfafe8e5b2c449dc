package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"warren/internal/cluster"
	"warren/internal/discovery"
)

// settle is how long changes are gathered before they are told: they come in bursts, and what they add up to is
// worked out from everything there is.
const settle = 100 * time.Millisecond

// Options of New.
type Options struct {
	// Kubeconfig is the file that says where the API server is and who this agent is there. Empty: what the
	// service account of a pod has.
	Kubeconfig string
	// Self names this machine; its name is that of its Node. Needed.
	Self cluster.NodeID
	// Log takes what the client library has to say, as debugging. Nil: nobody.
	Log *slog.Logger
}

// Kube is what one machine reads and writes of a cluster. Its methods may be called from different goroutines.
type Kube struct {
	self     cluster.NodeID
	log      *slog.Logger
	client   client
	troubles troubles
	desk     desk

	records mirror[entry]
	nodes   mirror[node]
	pods    mirror[[]netip.Addr]
	servers mirror[[]netip.AddrPort]
	configs mirror[configuration]

	// toTell and toKeep have an element when something changed since they were emptied.
	toTell, toKeep chan struct{}
}

var (
	_ discovery.Source    = (*Kube)(nil)
	_ discovery.Publisher = (*Kube)(nil)
	_ discovery.Reporter  = (*Kube)(nil)
)

// New returns a Kube without sending anything. It reads the kubeconfig, or what a pod has.
func New(o Options) (*Kube, error) {
	silence()
	client, server, err := connect(o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("prepare to reach the API server: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := &Kube{self: o.Self, log: o.Log, client: client, toTell: make(chan struct{}, 1), toKeep: make(chan struct{}, 1)}
	k.desk.turn = make(chan struct{}, 1)
	k.troubles = troubles{server: server, changed: k.changed, now: map[string]trouble{}}
	k.records = mirror[entry]{decode: entries(o.Self.Name), changed: k.changed}
	k.nodes = mirror[node]{decode: decodeNode, changed: k.changed}
	k.pods = mirror[[]netip.Addr]{decode: decodePod, changed: k.changed}
	k.servers = mirror[[]netip.AddrPort]{decode: decodeServers, changed: k.changed}
	k.configs = mirror[configuration]{decode: decodeConfig, changed: k.changed}
	return k, nil
}

// Run implements discovery.Source. It has no error that ends it: whatever is wrong with the API server may be
// put right, and is a problem until then. It may be called once.
func (k *Kube) Run(ctx context.Context, emit func(discovery.Event)) error {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.FromSlogHandler(debugging{k.log.Handler()})))
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for _, r := range k.reflectors() {
		group.Go(func() { r.RunWithContext(ctx) })
	}
	group.Go(func() { k.keep(ctx) })
	found := make(chan []netip.AddrPort)
	group.Go(func() { follow(ctx, k.reach, found) })
	var believed state
	for {
		var events []discovery.Event
		believed, events = believed.next(k.picture())
		for _, event := range events {
			emit(event)
		}
		if !k.wait(ctx, emit, found) {
			return nil
		}
	}
}

// wait returns when there is something to tell that the mirrors have; false when the work is over. Where the API server is
// reached it tells itself: in strict mode nothing else comes before that is known.
func (k *Kube) wait(ctx context.Context, emit func(discovery.Event), found <-chan []netip.AddrPort) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case servers := <-found:
			emit(discovery.Event{Kind: discovery.Servers, Servers: servers})
		case <-k.toTell:
			return discovery.Sleep(ctx, settle)
		}
	}
}

// changed wakes both loops.
func (k *Kube) changed() {
	for _, c := range []chan struct{}{k.toTell, k.toKeep} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// reflectors are what fills the mirrors.
func (k *Kube) reflectors() []*cache.Reflector {
	reflect := func(r resource, into cache.ReflectorStore) *cache.Reflector {
		place := r.group.WithResource(r.plural).GroupResource().String()
		lists := k.client.lists(r, func(err error) { k.troubles.note(place, err) })
		return cache.NewReflectorWithOptions(lists, &object{}, into, cache.ReflectorOptions{
			Name: place, Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 6, Cap: 15 * time.Second},
		})
	}
	return []*cache.Reflector{
		reflect(resource{group: warrenAPIs, plural: recordsPlural}, &k.records),
		reflect(resource{group: core, plural: "nodes", fields: named(k.self.Name)}, &k.nodes),
		reflect(resource{group: core, plural: "pods", fields: "spec.nodeName=" + k.self.Name}, &k.pods),
		reflect(resource{group: endpoints, plural: "endpointslices", namespace: "default", labels: "kubernetes.io/service-name=kubernetes"}, &k.servers),
		reflect(resource{group: warrenAPIs, plural: configsPlural, fields: named(configName)}, &k.configs),
	}
}

// picture returns what there is now.
func (k *Kube) picture() picture {
	k.desk.mu.Lock()
	troubles := k.desk.record.faults(k.self)
	k.desk.mu.Unlock()
	return picture{
		self: k.self.Name, records: read(&k.records), nodes: read(&k.nodes), pods: read(&k.pods), servers: read(&k.servers), configs: read(&k.configs),
		troubles: append(troubles, k.troubles.problems()...),
	}
}

// own returns what there is now of the own record.
func (k *Kube) own() (o own) {
	var recordsRead, nodeRead bool
	o.entry, _, recordsRead = k.records.one(k.self.Name)
	o.node, o.nodeThere, nodeRead = k.nodes.one(k.self.Name)
	o.read = recordsRead && nodeRead
	return o
}

// read returns all of a mirror, nil when it was not filled yet.
func read[T any](m *mirror[T]) map[string]T {
	items, read := m.all()
	if !read {
		return nil
	}
	return items
}

// silence drops what the client library says without having been given a logger: it would go to standard error.
var silence = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

// debugging says everything as debugging: what the client library calls an error is a problem already, or was put
// right by a retry.
type debugging struct{ slog.Handler }

// Enabled implements slog.Handler.
func (d debugging) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler. Errors come here without having asked.
func (d debugging) Handle(ctx context.Context, r slog.Record) error {
	if !d.Enabled(ctx, r.Level) {
		return nil
	}
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (d debugging) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugging{d.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (d debugging) WithGroup(name string) slog.Handler { return debugging{d.Handler.WithGroup(name)} }
