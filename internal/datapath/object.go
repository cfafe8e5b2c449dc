package datapath

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"warren/internal/datapath/model"
)

// object is what scripts/generate-bpf.sh compiles bpf/warren.c to. It is little-endian; a big-endian
// kernel refuses to load it.
//
//go:embed warren.bpf.o
var object []byte

func loadSpec() (*ebpf.CollectionSpec, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("read the embedded eBPF object: %w", err)
	}
	return spec, nil
}

// etherLen is the length of an Ethernet header.
const etherLen = 14

// variant is a program as it has to be for one kind of device.
type variant struct {
	program model.Program
	// l3: the device has no link layer header. from_tunnel never looks for one.
	l3 bool
}

// name is what bpftool shows (at most 15 characters).
func (v variant) name() string {
	if v.l3 {
		return v.program.String() + "_l3"
	}
	return v.program.String()
}

// variables are the values of the constants in bpf/config.h.
func (v variant) variables(config model.Config, report bool) map[string]any {
	linkLen := uint8(etherLen)
	if v.l3 {
		linkLen = 0
	}
	return map[string]any{
		"link_header_len":  linkLen,
		"mode":             uint8(config.Mode),
		"exempting":        byteOf(config.Exemptions),
		"ingress_mode":     uint8(config.Ingress),
		"mark_mask":        config.MarkMask,
		"mark_value":       config.Mark,
		"wireguard_port":   config.Port,
		"tunnel_ifindex":   config.TunnelIfindex,
		"primary_underlay": config.PrimaryUnderlay,
		"inner_mtu":        config.InnerMTU,
		"oversize":         uint8(config.Oversize),
		"report_verdict":   byteOf(report),
	}
}

func byteOf(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// load puts one program into the kernel: the only one of the returned collection, under its name in
// the C source. Maps that shared does not have are the collection's own.
func load(spec *ebpf.CollectionSpec, v variant, variables map[string]any, shared map[string]*ebpf.Map) (*ebpf.Collection, error) {
	spec = spec.Copy()
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != v.program.String() })
	spec.Programs[v.program.String()].Name = v.name()
	for name, value := range variables {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s of program %s: %w", name, v.name(), err)
		}
	}
	for name, m := range shared {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps.Clone(shared)})
	if err != nil {
		return nil, fmt.Errorf("load program %s: %w", v.name(), err)
	}
	return collection, nil
}
