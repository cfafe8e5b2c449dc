package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/datapath"
	"warren/internal/datapath/model"
	"warren/internal/netdev"
)

// errQuestion: the question cannot be understood.
var errQuestion = errors.New("bad question")

// Protocol numbers (IANA) of the packets that can be asked about.
var protocols = map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17}

const protocolICMPv6 = 58

func questionOf(r *http.Request) (q api.Question, err error) {
	query := r.URL.Query()
	if q.Source, err = netip.ParseAddr(query.Get("source")); err != nil {
		return q, fmt.Errorf("%w: source %q is not an IP address", errQuestion, query.Get("source"))
	}
	if q.Destination, err = netip.ParseAddr(query.Get("destination")); err != nil {
		return q, fmt.Errorf("%w: destination %q is not an IP address", errQuestion, query.Get("destination"))
	}
	if q.Source.Is4() != q.Destination.Is4() {
		return q, fmt.Errorf("%w: %s and %s are of two families; no packet has both", errQuestion, q.Source, q.Destination)
	}
	q.Protocol = query.Get("protocol")
	if _, ok := protocols[q.Protocol]; !ok {
		return q, fmt.Errorf("%w: protocol %q; udp, tcp or icmp", errQuestion, q.Protocol)
	}
	port, err := strconv.ParseUint(query.Get("port"), 10, 16)
	if err != nil {
		return q, fmt.Errorf("%w: port %q", errQuestion, query.Get("port"))
	}
	q.Port = uint16(port)
	return q, nil
}

// explain judges a packet twice at each program that it meets on this node: by the Go model, from what
// the agent wants, and by the loaded program, from what is in the kernel.
func (a *agent) explain(q api.Question) (api.Explanation, error) {
	answer := api.Explanation{
		Source: q.Source.String(), Destination: q.Destination.String(), Protocol: q.Protocol, Port: q.Port,
		SourceEntry: a.entryOf(q.Source), DestEntry: a.entryOf(q.Destination), Agree: true, Notes: []string{},
	}
	for _, program := range a.meets(q) {
		step, err := a.step(program, packetFor(q))
		if err != nil {
			return api.Explanation{}, err
		}
		answer.Agree = answer.Agree && step.Model == step.Kernel
		answer.Steps = append(answer.Steps, step)
	}
	answer.Notes = a.notes(q)
	return answer, nil
}

// meets returns the programs on the packet's way: it leaves by an underlay device unless it is for
// this node; then it comes in by one, in clear.
func (a *agent) meets(q api.Question) []model.Program {
	if a.local(q.Destination) && !a.local(q.Source) {
		return []model.Program{model.ProgramFromNetdev}
	}
	return []model.Program{model.ProgramToNetdev}
}

func (a *agent) local(addr netip.Addr) bool {
	_, entry, ok := a.world.Cache().Lookup(addr)
	return ok && entry.Flags&cluster.FlagLocal != 0
}

var hookNames = map[model.Program]string{
	model.ProgramToNetdev:   "leaves by an underlay device",
	model.ProgramFromNetdev: "comes in by an underlay device, in clear",
}

func (a *agent) step(program model.Program, frame []byte) (api.Step, error) {
	constants, err := a.constants()
	if err != nil {
		return api.Step{}, err
	}
	judge := model.ToNetdev
	if program == model.ProgramFromNetdev {
		judge = model.FromNetdev
	}
	world := model.World{Lookup: a.world.Lookup, Servers: map[netip.AddrPort]bool{}, Exemptions: exemptions(a.Config)}
	for _, server := range a.bootstrapServers() {
		world.Servers[server] = true
	}
	var freeErr error
	world.Free = func(f model.Flow) (free bool) {
		free, freeErr = netdev.Accepts(f.Server, f.Client)
		return free
	}
	byModel := judge(frame, model.Meta{}, constants, world)
	if freeErr != nil {
		return api.Step{}, freeErr
	}
	byKernel, err := a.data.Run(program, datapath.Input{Frame: frame})
	if err != nil {
		return api.Step{}, err
	}
	return api.Step{
		Program: program.String(), Hook: hookNames[program], Description: byModel.Reason.Description(),
		Model:  api.Verdict{Verdict: byModel.Verdict.String(), Reason: byModel.Reason.String()},
		Kernel: api.Verdict{Verdict: byKernel.Verdict.String(), Reason: byKernel.Reason.String()},
	}, nil
}

func (a *agent) entryOf(addr netip.Addr) *api.Entry {
	prefix, entry, ok := a.world.Cache().Lookup(addr)
	if !ok {
		return nil
	}
	status := entryStatus(prefix, entry)
	return &status
}

// notes says what the programs cannot know.
func (a *agent) notes(q api.Question) []string {
	notes := []string{}
	if a.local(q.Source) && a.local(q.Destination) {
		notes = append(notes, "both addresses are this node's: such a packet does not reach an underlay device at all")
	}
	for _, end := range []netip.Addr{q.Source, q.Destination} {
		if entry, ok := a.world.Lookup(end); ok && entry.Silent && q.Protocol == "tcp" {
			notes = append(notes, fmt.Sprintf("%s does not answer: what belongs to a connection that it has begun in clear with an API server on this node "+
				"passes in clear, both ways; only such a beginning is judged here", end))
		}
	}
	_, entry, ok := a.world.Cache().Lookup(q.Destination)
	if !ok || !entry.HasPair || entry.Pair.Key == cluster.NoEncryption || a.local(q.Destination) {
		return notes
	}
	if _, peer := a.world.Routes().Peer(entry); !peer {
		notes = append(notes, fmt.Sprintf("no admitted node has the tunnel endpoint %s with key %d: WireGuard drops the packet", entry.Pair.Endpoint, entry.Pair.Key))
	}
	return notes
}

// packetFor builds the smallest Ethernet frame that the question describes; of TCP, one that begins a connection.
func packetFor(q api.Question) []byte {
	const macs, ephemeral = 12, 40000
	frame := make([]byte, macs, 80)
	protocol, payload := protocols[q.Protocol], byte(8)
	if q.Protocol == "tcp" {
		payload = 20
	}
	if q.Source.Is4() {
		frame = binary.BigEndian.AppendUint16(frame, 0x0800)
		frame = append(frame, 0x45, 0, 0, 20+payload, 0, 0, 0, 0, 64, protocol, 0, 0)
	} else {
		if q.Protocol == "icmp" {
			protocol = protocolICMPv6
		}
		frame = binary.BigEndian.AppendUint16(frame, 0x86dd)
		frame = append(frame, 0x60, 0, 0, 0, 0, payload, protocol, 64)
	}
	frame = append(frame, q.Source.AsSlice()...)
	frame = append(frame, q.Destination.AsSlice()...)
	if q.Protocol == "icmp" {
		echo := byte(8)
		if protocol == protocolICMPv6 {
			echo = 128
		}
		return append(frame, echo, 0, 0, 0, 0, 0, 0, 0)
	}
	frame = binary.BigEndian.AppendUint16(frame, ephemeral)
	frame = binary.BigEndian.AppendUint16(frame, q.Port)
	if q.Protocol == "udp" {
		return append(frame, 0, payload, 0, 0)
	}
	const words, flagSYN = 5, 0x02
	return append(frame, 0, 0, 0, 0, 0, 0, 0, 0, words<<4, flagSYN, 0, 0, 0, 0, 0, 0)
}
