package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/cilium/ebpf"

	"warren/internal/datapath/model"
)

// Filters is the traffic control of the kernel, by device. A filter is known by its name.
type Filters interface {
	// Replace attaches the program behind fd in direct-action mode to the clsact hook: on ingress
	// before the filters of others, on egress behind them. One of the same name is replaced in one step.
	Replace(ifindex uint32, egress bool, fd int, name string) error
	// Remove detaches; a filter, qdisc or device that is gone is no error.
	Remove(ifindex uint32, egress bool, name string) error
	// Has reports whether the filter is there, and the id of its program.
	Has(ifindex uint32, egress bool, name string) (progID uint32, found bool, err error)
}

// FilterPrefix begins the name of every filter of Warren's; the name of the program follows.
const FilterPrefix = "warren/"

// clsact attaches programs by filters. Filters are found by their name, on any device.
type clsact struct {
	filters Filters
	logger  *slog.Logger

	// known has the hooks with a filter of ours; nil before all devices were looked at.
	known map[hook]bool
}

func newClsact(filters Filters, logger *slog.Logger) *clsact {
	return &clsact{filters: filters, logger: logger}
}

func (c *clsact) mode() AttachMode { return Clsact }

func filterName(h hook) string { return FilterPrefix + h.program.String() }

func (c *clsact) attached() ([]hook, error) {
	if c.known == nil {
		known, err := c.search()
		if err != nil {
			return nil, err
		}
		c.known = known
	}
	var hooks []hook
	for h := range c.known {
		_, found, err := c.filters.Has(h.ifindex, h.egress(), filterName(h))
		if err != nil {
			return nil, err
		}
		if !found {
			delete(c.known, h)
			continue
		}
		hooks = append(hooks, h)
	}
	slices.SortFunc(hooks, compareHooks)
	return hooks, nil
}

// search looks at every device, for what an earlier process attached.
func (c *clsact) search() (map[hook]bool, error) {
	devices, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("look for filters: list devices: %w", err)
	}
	known := map[hook]bool{}
	for _, device := range devices {
		for _, program := range model.Programs() {
			h := hook{program: program, ifindex: uint32(device.Index)}
			_, found, err := c.filters.Has(h.ifindex, h.egress(), filterName(h))
			if err != nil {
				return nil, err
			}
			if found {
				known[h] = true
			}
		}
	}
	return known, nil
}

func (c *clsact) ensure(h hook, program *ebpf.Program, _ func() (*ebpf.Program, error)) error {
	info, err := program.Info()
	if err != nil {
		return fmt.Errorf("read program %v: %w", h.program, err)
	}
	want, _ := info.ID()
	id, found, err := c.filters.Has(h.ifindex, h.egress(), filterName(h))
	if err != nil || found && id == uint32(want) {
		return err
	}
	if err := c.filters.Replace(h.ifindex, h.egress(), program.FD(), filterName(h)); err != nil {
		return err
	}
	if c.known != nil { // otherwise a search will find it
		c.known[h] = true
	}
	if !found {
		c.logger.Info("program attached", "program", h.program, "device", h.ifindex, "mode", Clsact)
	}
	return nil
}

func (c *clsact) remove(h hook) error {
	if err := c.filters.Remove(h.ifindex, h.egress(), filterName(h)); err != nil {
		return err
	}
	delete(c.known, h)
	c.logger.Info("program detached", "program", h.program, "device", h.ifindex, "mode", Clsact)
	return nil
}

func (c *clsact) look(h hook) (Attachment, error) {
	id, found, err := c.filters.Has(h.ifindex, h.egress(), filterName(h))
	if err != nil {
		return Attachment{}, err
	}
	if !found {
		return Attachment{}, errors.New("filter " + filterName(h) + " went away")
	}
	return Attachment{Program: h.program, Ifindex: h.ifindex, Mode: Clsact, ProgramID: id}, nil
}
