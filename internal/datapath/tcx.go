package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"warren/internal/datapath/model"
)

// tcx attaches programs by links that are pinned below folder. The pins are all it knows: what an
// earlier process attached is adopted, and a program is replaced by updating its link.
//
// A link cannot be moved in the chain of a hook. Where ours has to be last and is not, a second one,
// with a copy of the program, is attached behind the others, and only then the first one goes: a
// packet may meet both, never none. Meanwhile it is pinned as "NAME-next".
type tcx struct {
	folder string
	logger *slog.Logger

	// yielded has the programs of others behind which ours was moved once. One that is in its
	// place again insists on it, and then it has its way: two that fight help nobody.
	yielded map[hook]map[ebpf.ProgramID]bool
	// told are the hooks of which the log already says that others have their way.
	told map[hook]bool
}

const nextSuffix = "-next"

func newTCX(dir string, logger *slog.Logger) *tcx {
	return &tcx{
		folder:  filepath.Join(dir, linksFolder),
		logger:  logger,
		yielded: map[hook]map[ebpf.ProgramID]bool{},
		told:    map[hook]bool{},
	}
}

func (t *tcx) mode() AttachMode { return TCX }

func attachType(h hook) ebpf.AttachType {
	if h.egress() {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

func (t *tcx) pin(h hook) string {
	return filepath.Join(t.folder, fmt.Sprintf("%v-%d", h.program, h.ifindex))
}

// hookOfPin is the inverse of pin, for both names that the link of a hook may have.
func hookOfPin(name string) (hook, bool) {
	name = strings.TrimSuffix(name, nextSuffix)
	for _, program := range model.Programs() {
		if digits, ok := strings.CutPrefix(name, program.String()+"-"); ok {
			ifindex, err := strconv.ParseUint(digits, 10, 32)
			return hook{program: program, ifindex: uint32(ifindex)}, err == nil
		}
	}
	return hook{}, false
}

func (t *tcx) attached() ([]hook, error) {
	pins, err := os.ReadDir(t.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the pinned links: %w", err)
	}
	var hooks []hook
	for _, pin := range pins {
		h, ok := hookOfPin(pin.Name())
		if !ok || slices.Contains(hooks, h) {
			continue
		}
		l, err := t.open(h)
		if err != nil {
			return nil, err
		}
		if l == nil {
			continue
		}
		l.close()
		hooks = append(hooks, h)
	}
	slices.SortFunc(hooks, compareHooks)
	return hooks, nil
}

// pinned is an attached link.
type pinned struct {
	link.Link
	id      link.ID
	program ebpf.ProgramID
}

func (p pinned) close() { _ = p.Close() } // a file descriptor; the pin keeps the link

// open returns the link of a hook; nil when there is none, or it lost its device or was detached, and
// then its pin is removed.
func (t *tcx) open(h hook) (*pinned, error) {
	l, err := openPin(t.pin(h))
	if err != nil {
		return nil, err
	}
	next := t.pin(h) + nextSuffix
	if l != nil {
		// Is there a second one, a move was interrupted; the one that was there first stays.
		if err := removePin(next); err != nil {
			l.close()
			return nil, err
		}
		return l, nil
	}
	if l, err = openPin(next); err != nil || l == nil {
		return nil, err
	}
	if err := os.Rename(next, t.pin(h)); err != nil {
		l.close()
		return nil, fmt.Errorf("pin %v: %w", h, err)
	}
	return l, nil
}

// openPin returns nil when there is no such pin, or its link is not attached any more, and then it
// removes the pin.
func openPin(path string) (*pinned, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open pinned link %s: %w", path, err)
	}
	info, err := l.Info()
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("read pinned link %s: %w", path, err)
	}
	// The kernel takes the device from a link whose device is deleted, and from a detached one.
	if info.TCX() == nil || info.TCX().Ifindex == 0 {
		_ = l.Close()
		return nil, removePin(path)
	}
	return &pinned{Link: l, id: info.ID, program: info.Program}, nil
}

// removePin detaches the link of a pin, if it still is attached, and removes the pin.
func removePin(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pinned link %s: %w", path, err)
	}
	defer l.Close()
	// The last reference to a link goes some time after its pin; detached is it at once.
	if err := l.Detach(); err != nil {
		return fmt.Errorf("detach pinned link %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pinned link: %w", err)
	}
	return nil
}

func (t *tcx) remove(h hook) error {
	delete(t.yielded, h)
	delete(t.told, h)
	if err := errors.Join(removePin(t.pin(h)), removePin(t.pin(h)+nextSuffix)); err != nil {
		return err
	}
	t.logger.Info("program detached", "program", h.program, "device", h.ifindex, "mode", TCX)
	return nil
}

func (t *tcx) ensure(h hook, program *ebpf.Program, copy func() (*ebpf.Program, error)) error {
	l, err := t.open(h)
	if err != nil {
		return err
	}
	if l == nil {
		if l, err = t.attachNew(h, program, copy); err != nil {
			return err
		}
		t.logger.Info("program attached", "program", h.program, "device", h.ifindex, "mode", TCX)
	} else if err := replaceProgram(h, l, program); err != nil {
		l.close()
		return err
	}
	defer func() { l.close() }()
	neighbours, err := t.neighbours(h, l.id)
	if err != nil || !t.misplaced(h, neighbours) {
		return err
	}
	moved, err := t.move(h, l, program, copy)
	if err != nil {
		return fmt.Errorf("move %v to its place in the chain: %w", h, err)
	}
	l = moved
	return nil
}

// attachNew attaches where nothing of ours is pinned. A link whose pin somebody removed goes a little
// later, and until then its program cannot be attached again; a copy can.
func (t *tcx) attachNew(h hook, program *ebpf.Program, copy func() (*ebpf.Program, error)) (*pinned, error) {
	l, err := t.attach(h, program, t.pin(h))
	if !errors.Is(err, unix.EEXIST) {
		return l, err
	}
	twin, err := copy()
	if err != nil {
		return nil, err
	}
	defer twin.Close()
	return t.attach(h, twin, t.pin(h))
}

// attach attaches and pins a link: last on egress, first on ingress.
func (t *tcx) attach(h hook, program *ebpf.Program, pin string) (*pinned, error) {
	anchor := link.Head()
	if h.egress() {
		anchor = link.Tail()
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: int(h.ifindex), Program: program, Attach: attachType(h), Anchor: anchor})
	if err != nil {
		return nil, fmt.Errorf("attach %v: %w", h, err)
	}
	if err := l.Pin(pin); err != nil {
		_ = l.Close() // the only reference: it is detached
		return nil, fmt.Errorf("pin %v: %w", h, err)
	}
	info, err := l.Info()
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("read link of %v: %w", h, err)
	}
	return &pinned{Link: l, id: info.ID, program: info.Program}, nil
}

// replaceProgram puts the program behind a link, unless it is there.
func replaceProgram(h hook, l *pinned, program *ebpf.Program) error {
	info, err := program.Info()
	if err != nil {
		return fmt.Errorf("read program %v: %w", h.program, err)
	}
	id, _ := info.ID()
	if id == l.program {
		return nil
	}
	if err := l.Update(program); err != nil {
		return fmt.Errorf("replace %v: %w", h, err)
	}
	l.program = id
	return nil
}

// chain is what others have attached around a link of ours.
type chain struct{ before, after []ebpf.ProgramID }

// outside returns the programs on the wrong side.
func (c chain) outside(h hook) []ebpf.ProgramID {
	if h.egress() {
		return c.after
	}
	return c.before
}

func (t *tcx) neighbours(h hook, id link.ID) (chain, error) {
	result, err := link.QueryPrograms(link.QueryOptions{Target: int(h.ifindex), Attach: attachType(h)})
	if err != nil {
		return chain{}, fmt.Errorf("read what is attached beside %v: %w", h, err)
	}
	var c chain
	seen := false
	for _, attached := range result.Programs {
		if linkID, ok := attached.LinkID(); ok && linkID == id {
			seen = true
		} else if seen {
			c.after = append(c.after, attached.ID)
		} else {
			c.before = append(c.before, attached.ID)
		}
	}
	return c, nil
}

// misplaced says whether the link has to be moved, and remembers for whom.
func (t *tcx) misplaced(h hook, c chain) bool {
	outside := c.outside(h)
	if len(outside) == 0 {
		return false
	}
	if t.yielded[h] == nil {
		t.yielded[h] = map[ebpf.ProgramID]bool{}
	}
	fresh := false
	for _, id := range outside {
		fresh = fresh || !t.yielded[h][id]
		t.yielded[h][id] = true
	}
	if !fresh && !t.told[h] {
		t.told[h] = true
		t.logger.Warn("another program insists on Warren's place in the chain",
			"program", h.program, "device", h.ifindex, "others", outside)
	}
	return fresh
}

// move attaches a second link in the right place, takes the first one away, and gives the second its
// program and its pin. A process that dies in between leaves both, or the second: see open.
func (t *tcx) move(h hook, old *pinned, program *ebpf.Program, copy func() (*ebpf.Program, error)) (*pinned, error) {
	twin, err := copy() // a chain takes a program only once
	if err != nil {
		return nil, err
	}
	defer twin.Close()
	next, err := t.attach(h, twin, t.pin(h)+nextSuffix)
	if err != nil {
		return nil, err
	}
	if err := removePin(t.pin(h)); err != nil {
		next.close()
		return nil, err
	}
	if err := os.Rename(t.pin(h)+nextSuffix, t.pin(h)); err != nil {
		next.close()
		return nil, fmt.Errorf("pin %v: %w", h, err)
	}
	old.close()
	t.logger.Info("program moved to its place in the chain", "program", h.program, "device", h.ifindex)
	return next, replaceProgram(h, next, program)
}

func (t *tcx) look(h hook) (Attachment, error) {
	attachment := Attachment{Program: h.program, Ifindex: h.ifindex, Mode: TCX}
	l, err := t.open(h)
	if err != nil || l == nil {
		return attachment, err
	}
	defer l.close()
	neighbours, err := t.neighbours(h, l.id)
	if err != nil {
		return attachment, err
	}
	attachment.ProgramID = uint32(l.program)
	attachment.Before, attachment.After = numbers(neighbours.before), numbers(neighbours.after)
	return attachment, nil
}

func numbers(ids []ebpf.ProgramID) []uint32 {
	var all []uint32
	for _, id := range ids {
		all = append(all, uint32(id))
	}
	return all
}
