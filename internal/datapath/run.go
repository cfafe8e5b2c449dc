package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"warren/internal/datapath/model"
)

// Input is a packet for Run.
type Input struct {
	// Frame begins with the Ethernet header; for from_tunnel and with L3, with the IP header.
	// The kernel wants at least 14 bytes, and since Linux 6.17 a whole IP header behind the ethertypes
	// of IPv4 and IPv6.
	Frame []byte
	// Mark of the packet.
	Mark uint32
	// L3 runs the program as it is on a device without link layer header.
	L3 bool
}

// Run passes a packet through a program as it is configured, with the maps as they are, and
// returns what the program did. Nothing is sent and nothing is counted: it is a copy of the program
// with counters of its own that the kernel runs (BPF_PROG_RUN). The copies also remember datagrams and connections of
// their own: a later fragment is WireGuard's if Run saw its first fragment less than a second ago. The device that it
// runs on is the loopback, so that a pod's packet that does not fit is answered there.
func (d *Datapath) Run(program model.Program, in Input) (model.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	probe, err := d.probe(variant{program: program, l3: in.L3 && program != model.ProgramFromTunnel})
	if err != nil {
		return model.Result{}, err
	}
	result, err := probe.run(in)
	if err != nil {
		return model.Result{}, fmt.Errorf("run a packet through %v: %w", program, err)
	}
	return result, nil
}

// probe is a copy of a program that reports its verdicts and counts for itself.
type probe struct {
	collection *ebpf.Collection
	program    *ebpf.Program
}

// sharedWithProbes are the maps that decisions are made by.
var sharedWithProbes = []string{mapExact, mapPrefix, mapUnderlays, mapServers, mapExemptions}

// probe loads the copy of a program once per configuration.
func (d *Datapath) probe(v variant) (*probe, error) {
	if d.programs == nil {
		return nil, errors.New("run a packet: the programs are not configured yet")
	}
	if probe, ok := d.probes[v]; ok {
		return probe, nil
	}
	shared := map[string]*ebpf.Map{}
	for _, name := range sharedWithProbes {
		shared[name] = d.maps[name]
	}
	for _, other := range d.probes { // what one has let in is answered by another
		shared[mapFlows] = other.collection.Maps[mapFlows]
	}
	collection, err := load(d.spec, v, v.variables(d.config, true), shared)
	if err != nil {
		return nil, err
	}
	if d.probes == nil {
		d.probes = map[variant]*probe{}
	}
	d.probes[v] = &probe{collection: collection, program: collection.Programs[v.program.String()]}
	return d.probes[v], nil
}

func (p *probe) close() { p.collection.Close() }

// socketBuffer is struct __sk_buff (linux/bpf.h), which may grow: the kernel refuses to fill in less
// than it has, and ignores zeros beyond that.
type socketBuffer struct {
	_       [2]uint32
	Mark    uint32
	_       [9]uint32
	Control [5]uint32
	_       [47]uint32
}

// Where report() in bpf/warren.c leaves what.
const (
	reportAction = iota
	reportReason
	reportIfindex
)

// Return values of the programs (linux/pkt_cls.h).
const (
	actUnspec   = 0xffffffff
	actShot     = 2
	actRedirect = 7
)

var returnOf = map[model.Verdict]uint32{
	model.Pass: actUnspec, model.Drop: actShot, model.Tunnel: actRedirect, model.HandBack: actRedirect,
}

// roomToGrow is how much longer a program may make a packet.
const roomToGrow = 256

func (p *probe) run(in Input) (model.Result, error) {
	if len(in.Frame) < etherLen {
		return model.Result{}, fmt.Errorf("%d bytes are too few: the kernel runs packets of %d bytes and more", len(in.Frame), etherLen)
	}
	var out socketBuffer
	options := ebpf.RunOptions{
		Data:       in.Frame,
		DataOut:    make([]byte, len(in.Frame)+roomToGrow),
		Context:    socketBuffer{Mark: in.Mark},
		ContextOut: &out,
	}
	returned, err := p.program.Run(&options)
	if err != nil {
		return model.Result{}, err
	}
	result := model.Result{
		Verdict: model.Verdict(out.Control[reportAction]),
		Reason:  model.Reason(out.Control[reportReason]),
		Ifindex: out.Control[reportIfindex],
		Mark:    out.Mark,
		Frame:   options.DataOut,
	}
	if want := returnOf[result.Verdict]; returned != want {
		return result, fmt.Errorf("the program decided %v (%d) and returned %d", result.Verdict, want, int32(returned))
	}
	return result, nil
}
