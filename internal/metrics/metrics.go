// Package metrics turns what the agent knows into Prometheus metrics. It is the only importer of the
// Prometheus client, holds no state of its own, and asks for a Snapshot at each scrape.
//
//	handler := metrics.Handler(func(ctx context.Context) (metrics.Snapshot, error) { … })
//	mux.Handle("GET /metrics", handler)
package metrics

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapeTimeout bounds how long a scrape waits for the agent.
const scrapeTimeout = 5 * time.Second

// Snapshot is the agent's state at one moment.
type Snapshot struct {
	Version, Engine, Mode string
	Ready                 bool
	Synced                bool
	Entries               int
	NodesRefused          int
	NodesHeld             int    // whose records vanished together
	Renewals, Recreations uint64 // of peers and of the device, since they were stuck
	KeyChanges            uint64 // keys that nobody announced and that were accepted
	Conflicts             int
	Problems              int
	Pending               int // operations that are not carried out yet
	Attached              int // underlay devices with the datapath on them
	Underlays             int // underlay devices
	DeviceMTU             int
	Peers                 []Peer
	Reasons               []Reason
	PeerReasons           []PeerReason
	Maps                  []Map
	Failures              map[string]uint64 // failed rounds by step since the start
	Rounds                uint64            // rounds of reconciliation since the start
	Repairs               uint64            // drift that was found and mended
	Operations            uint64            // changes of peers, allowed IPs and entries since the start
}

// Map is one of the datapath's maps of addresses.
type Map struct {
	Name string // that of the option that sizes it
	// Entries in it, and the most that it holds.
	Entries, Max int
}

// Peer is one WireGuard peer.
type Peer struct {
	Node          string
	Received      uint64 // bytes
	Sent          uint64 // bytes
	LastHandshake time.Time
	State         string        // "configured", "confirmed", …
	RTT           time.Duration // 0: not measured
	Loss          float64       // of its last probes, 0 to 1
	MTU           int           // largest packet that the tunnel carries whole to it, bytes
}

// Reason is a way out of a datapath program.
type Reason struct {
	Program, Reason string
	Packets, Bytes  uint64
}

// PeerReason is an abnormal way out with the node that it concerns.
type PeerReason struct {
	Node, Program, Reason string
	Packets, Bytes        uint64
}

// Handler serves the metrics of each scrape's snapshot, and those of the Go runtime and the process.
// When there is no snapshot, the scrape fails: metrics that stand still would look like health.
func Handler(snapshot func(context.Context) (Snapshot, error)) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collector{snapshot},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError, Timeout: 2 * scrapeTimeout})
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("warren_"+name, help, labels, nil)
}

// The metrics. Each help says what to do when the value moves.
var (
	build       = describe("build_info", "Always 1. Versions that differ between nodes mean an unfinished upgrade.", "version", "engine", "mode")
	ready       = describe("ready", "1 when the node encrypts as configured. At 0, `warren status` says why.")
	synced      = describe("discovery_synced", "1 when discovery has delivered everything once. At 0 nothing is removed; look at the discovery engine.")
	entries     = describe("ipcache_entries", "Prefixes in the IPCache. A sudden fall means that records are disappearing.")
	refused     = describe("nodes_refused", "Records that were not admitted. Above 0, `warren nodes` names them and the remedy.")
	held        = describe("nodes_held", "Nodes that stay peers although their records vanished, since many did at once. Above 0: bring the records back, or run `warren nodes forget`.")
	keyChanges  = describe("key_changes_total", "Keys of known nodes that changed without announcement and were accepted, since the agent started. Each should be a machine that was rebuilt.")
	renewals    = describe("peer_renewals_total", "Peers that were set up anew since nothing came back from them. A machine that is off, or a tunnel that was stuck: the log names it.")
	recreations = describe("device_recreations_total", "WireGuard devices made anew since no peer answered. Growth: look at the underlay, at firewalls for the port, and at the kernel's log.")
	conflicts   = describe("ipcache_conflicts", "Prefixes about which sources disagree. Above 0, `warren ipcache list` shows who owns them.")
	problems    = describe("problems", "Things an operator has to mend. Above 0, `warren status` lists them.")
	pending     = describe("pending_operations", "Changes that are not in the kernel yet. When it stays above 0, `warren status` shows the error.")
	underlays   = describe("underlay_devices", "Devices by which clear packets can leave this node.")
	mapEntries  = describe("map_entries", "Entries in the datapath's map. Near warren_map_max_entries, raise the option that the label names.", "option")
	mapMax      = describe("map_max_entries", "The most entries that the datapath's map holds; the option that the label names sets it.", "option")
	attached    = describe("underlay_attached", "Underlay devices with the datapath on them. Less than warren_underlay_devices means that packets leave unseen.")
	mtu         = describe("device_mtu_bytes", "MTU of the WireGuard device. It follows the underlay's MTU.")
	received    = describe("peer_received_bytes_total", "UDP payload received from the peer. When it stands still while sent grows, the peer cannot decrypt or answer.", "node")
	sent        = describe("peer_sent_bytes_total", "UDP payload sent to the peer.", "node")
	handshake   = describe("peer_handshake_timestamp_seconds", "Unix time of the last handshake, 0 before the first. Older than 3 minutes under traffic: the peer does not answer.", "node")
	peerState   = describe("peer_state", "1 for the state that the peer is in. Not confirmed: it does not answer through the tunnel; see docs/operations.md.", "node", "state")
	rtt         = describe("peer_rtt_seconds", "Smoothed round-trip time through the tunnel, 0 before the first answer.", "node")
	loss        = describe("peer_probe_loss_ratio", "Share of the last probes that the peer did not answer. Above 0 for long: look at the underlay between the two.", "node")
	peerMTU     = describe("peer_mtu_bytes", "Largest packet that the tunnel carries whole to the peer. Less than warren_device_mtu_bytes: the path is narrower than this node's device.", "node")
	packets     = describe("datapath_packets_total", "Packets by program and way out (docs/architecture.md has the table).", "program", "reason")
	byteTotal   = describe("datapath_bytes_total", "Bytes by program and way out.", "program", "reason")
	peerPackets = describe("peer_datapath_packets_total", "Packets that left in clear or were dropped although they concern this node. Any growth needs an explanation.", "node", "program", "reason")
	failures    = describe("failures_total", "Rounds in which a step failed and will be retried. Growth: `warren status` shows the error.", "step")
	rounds      = describe("rounds_total", "Rounds of reconciliation.")
	operations  = describe("operations_total", "Peers, allowed IPs and map entries written or removed since the agent started; 0 after a restart with nothing changed.")
	repairs     = describe("repairs_total", "Drift that was found and mended. Growth: something else on this node changes what Warren set up.")
)

var descriptions = []*prometheus.Desc{
	build, ready, synced, entries, refused, held, keyChanges, renewals, recreations, conflicts, problems, pending, underlays, attached, mapEntries, mapMax, mtu,
	received, sent, handshake, peerState, rtt, loss, peerMTU, packets, byteTotal, peerPackets, failures, rounds, operations, repairs,
}

var _ prometheus.Collector = collector{}

type collector struct {
	snapshot func(context.Context) (Snapshot, error)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	s, err := c.snapshot(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(build, err)
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	gauge(build, 1, s.Version, s.Engine, s.Mode)
	gauge(ready, truth(s.Ready))
	gauge(synced, truth(s.Synced))
	gauge(entries, float64(s.Entries))
	gauge(refused, float64(s.NodesRefused))
	gauge(held, float64(s.NodesHeld))
	counter(keyChanges, s.KeyChanges)
	counter(renewals, s.Renewals)
	counter(recreations, s.Recreations)
	gauge(conflicts, float64(s.Conflicts))
	gauge(problems, float64(s.Problems))
	gauge(pending, float64(s.Pending))
	gauge(underlays, float64(s.Underlays))
	gauge(attached, float64(s.Attached))
	gauge(mtu, float64(s.DeviceMTU))
	counter(rounds, s.Rounds)
	counter(operations, s.Operations)
	counter(repairs, s.Repairs)
	for _, m := range s.Maps {
		gauge(mapEntries, float64(m.Entries), m.Name)
		gauge(mapMax, float64(m.Max), m.Name)
	}
	for step, n := range s.Failures {
		counter(failures, n, step)
	}
	for _, p := range s.Peers {
		counter(received, p.Received, p.Node)
		counter(sent, p.Sent, p.Node)
		gauge(handshake, unix(p.LastHandshake), p.Node)
		gauge(peerState, 1, p.Node, p.State)
		gauge(rtt, p.RTT.Seconds(), p.Node)
		gauge(loss, p.Loss, p.Node)
		gauge(peerMTU, float64(p.MTU), p.Node)
	}
	for _, r := range s.Reasons {
		counter(packets, r.Packets, r.Program, r.Reason)
		counter(byteTotal, r.Bytes, r.Program, r.Reason)
	}
	for _, r := range s.PeerReasons {
		counter(peerPackets, r.Packets, r.Node, r.Program, r.Reason)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
