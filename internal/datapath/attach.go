package datapath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"warren/internal/datapath/model"
)

// AttachMode is the kernel interface by which programs are attached.
type AttachMode uint8

// The modes.
const (
	// Auto is TCX where the kernel has it, else Clsact.
	Auto AttachMode = iota
	// TCX (Linux 6.6): links, pinned, in one order with those of others.
	TCX
	// Clsact: filters on a clsact qdisc, on every kernel that Warren runs on.
	Clsact
)

var attachModeNames = [...]string{Auto: "auto", TCX: "tcx", Clsact: "clsact"}

// String returns the name that the configuration uses.
func (m AttachMode) String() string {
	if int(m) < len(attachModeNames) {
		return attachModeNames[m]
	}
	return fmt.Sprintf("attach(%d)", uint8(m))
}

// MarshalText implements encoding.TextMarshaler.
func (m AttachMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText accepts what String returns.
func (m *AttachMode) UnmarshalText(text []byte) error {
	number := slices.Index(attachModeNames[:], string(text))
	if number < 0 {
		return fmt.Errorf("attach %q: one of %v", text, attachModeNames)
	}
	*m = AttachMode(number)
	return nil
}

// Underlay is a device that the cluster's packets come and go by.
type Underlay struct {
	Index uint32
	// Name is for messages.
	Name string
	// MAC is the device's own; unused if L3.
	MAC net.HardwareAddr
	// L3: the device has no link layer header (tun, ppp).
	L3 bool
}

// Attachment is one program on one device, as the kernel has it.
type Attachment struct {
	Program model.Program
	Ifindex uint32
	Mode    AttachMode
	// ProgramID of the attached program; 0 if the pinned link is not attached any more.
	ProgramID uint32
	// Before and After are the programs of others that run before and after this one by the same
	// kernel interface, in their order. On egress, what is after Warren sees what Warren let pass, and
	// may change it; what is before can keep packets from Warren. Empty with Clsact.
	Before, After []uint32
}

// hook is where a program is attached.
type hook struct {
	program model.Program
	ifindex uint32
}

func (h hook) egress() bool { return h.program == model.ProgramToNetdev }

func (h hook) String() string {
	if h.egress() {
		return fmt.Sprintf("%v to egress of device %d", h.program, h.ifindex)
	}
	return fmt.Sprintf("%v to ingress of device %d", h.program, h.ifindex)
}

func compareHooks(a, b hook) int {
	return cmp.Or(cmp.Compare(a.ifindex, b.ifindex), cmp.Compare(a.program, b.program))
}

// attacher is one of the two ways to attach a program. It is used by one goroutine at a time.
type attacher interface {
	mode() AttachMode
	// attached returns the hooks that this or an earlier process attached to, without those whose
	// device is gone; what is left of these it removes.
	attached() ([]hook, error)
	// ensure attaches the program where it is not, in place of an older one without a gap. copy
	// loads another one like it.
	ensure(h hook, program *ebpf.Program, copy func() (*ebpf.Program, error)) error
	// remove detaches; what is gone is no error.
	remove(h hook) error
	// look reads one attachment.
	look(h hook) (Attachment, error)
}

// newAttachers returns the attacher to use, and those whose leftovers are to be removed.
func newAttachers(options Options) (use attacher, others []attacher, err error) {
	tcx := newTCX(options.Dir, options.Logger)
	mode := options.Attach
	if mode == Auto {
		mode = Clsact
		if haveTCX() {
			mode = TCX
		}
	}
	switch {
	case mode == TCX && !haveTCX():
		return nil, nil, fmt.Errorf("attach by TCX needs Linux 6.6: %w", ebpf.ErrNotSupported)
	case mode == TCX && options.Filters == nil:
		return tcx, nil, nil
	case mode == TCX:
		return tcx, []attacher{newClsact(options.Filters, options.Logger)}, nil
	case options.Filters == nil:
		return nil, nil, ErrNoFilters
	case haveTCX():
		others = append(others, tcx)
	}
	return newClsact(options.Filters, options.Logger), others, nil
}

// loopback has index 1 in every network namespace.
const loopback = 1

// haveTCX asks for the programs on a device that is always there; older kernels do not know what is
// meant.
func haveTCX() bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXIngress})
	return err == nil
}

// Sync makes the attachments exactly so: from_tunnel on the tunnel device (0: there is none), from_netdev
// and to_netdev on every underlay. It attaches what is missing or was detached, replaces what is
// older, and detaches from all other devices. What is to receive is attached before what sends. Every
// device is tried, whatever the others say. Call it again to heal drift; where all is well it
// changes nothing.
func (d *Datapath) Sync(ctx context.Context, underlays []Underlay, tunnel uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.programs == nil {
		return errors.New("attach programs: they are not configured yet")
	}
	problems := []error{d.writeUnderlays(underlays)}
	want := map[hook]bool{}
	for _, step := range attachSteps(underlays, tunnel) {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(problems, err)...)
		}
		want[step.hook] = true
		problems = append(problems, d.ensure(step.hook, step.l3))
	}
	problems = append(problems, d.detachOthers(want), d.forgetUnderlays(underlays))
	if err := errors.Join(problems...); err != nil {
		return err
	}
	return d.forgetOlder()
}

type attachStep struct {
	hook hook
	l3   bool
}

// attachSteps returns what has to be attached, receivers first.
func attachSteps(underlays []Underlay, tunnel uint32) []attachStep {
	var steps []attachStep
	if tunnel != 0 {
		steps = append(steps, attachStep{hook: hook{program: model.ProgramFromTunnel, ifindex: tunnel}})
	}
	for _, program := range []model.Program{model.ProgramFromNetdev, model.ProgramToNetdev} {
		for _, underlay := range underlays {
			steps = append(steps, attachStep{hook: hook{program: program, ifindex: underlay.Index}, l3: underlay.L3})
		}
	}
	return steps
}

// detachOthers removes what an earlier set of devices, or an earlier process, left attached.
func (d *Datapath) detachOthers(want map[hook]bool) error {
	problems := []error{removeAllBut(d.hooks, want)}
	var unfinished []attacher
	for _, other := range d.others {
		if err := removeAllBut(other, nil); err != nil {
			problems = append(problems, err)
			unfinished = append(unfinished, other)
		}
	}
	d.others = unfinished // a process attaches in one mode only: once is enough
	return errors.Join(problems...)
}

func removeAllBut(from attacher, want map[hook]bool) error {
	attached, err := from.attached()
	if err != nil {
		return err
	}
	var problems []error
	for _, h := range attached {
		if !want[h] {
			problems = append(problems, from.remove(h))
		}
	}
	return errors.Join(problems...)
}

// writeUnderlays tells from_tunnel about devices before it may have to hand packets to them. What is
// there already is not written again: packets may be reading it.
func (d *Datapath) writeUnderlays(underlays []Underlay) error {
	known, err := d.readUnderlays()
	if err != nil {
		return err
	}
	var problems []error
	for _, underlay := range underlays {
		value, err := underlayValueOf(underlay)
		if old, ok := known[underlay.Index]; err == nil && (!ok || old != value) {
			err = d.maps[mapUnderlays].Put(underlay.Index, value)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("write underlay %s to map %s: %w", underlay.Name, mapUnderlays, err))
		}
	}
	return errors.Join(problems...)
}

func underlayValueOf(underlay Underlay) (value underlayValue, err error) {
	if underlay.L3 {
		return underlayValue{L3: 1}, nil
	}
	if copy(value.MAC[:], underlay.MAC) != len(value.MAC) {
		err = fmt.Errorf("hardware address %q is not an Ethernet address", underlay.MAC)
	}
	return value, err
}

func (d *Datapath) forgetUnderlays(underlays []Underlay) error {
	known, err := d.readUnderlays()
	if err != nil {
		return err
	}
	for _, underlay := range underlays {
		delete(known, underlay.Index)
	}
	for _, ifindex := range sortedKeys(known) {
		if err := d.maps[mapUnderlays].Delete(ifindex); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove underlay %d from map %s: %w", ifindex, mapUnderlays, err)
		}
	}
	return nil
}

// Attachments reads from the kernel what is attached where, by device and program.
func (d *Datapath) Attachments() ([]Attachment, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	attached, err := d.hooks.attached()
	if err != nil {
		return nil, err
	}
	var all []Attachment
	for _, h := range attached {
		attachment, err := d.hooks.look(h)
		if err != nil {
			return nil, err
		}
		all = append(all, attachment)
	}
	return all, nil
}
