package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
)

// Errors that callers tell apart.
var (
	// ErrIncompatible: pinned maps are of another layout or size. Nothing was changed.
	ErrIncompatible = errors.New("pinned maps do not fit")
	// ErrMapFull: a map has no room for new entries. Those that are in it stay.
	ErrMapFull = errors.New("map is full")
	// ErrNoFilters: programs have to be attached by clsact, and Options.Filters is nil.
	ErrNoFilters = errors.New("attaching by clsact needs filters")
)

// Sizes of the ipcache maps unless Options says otherwise. An entry that is not there takes no memory,
// but for 16 bytes for each of MaxAddresses.
const (
	DefaultMaxAddresses = 1 << 19
	DefaultMaxPrefixes  = 1 << 16
)

// Options of Open.
type Options struct {
	// Dir is the folder of the pins, an absolute path on a BPF file system. It is created.
	Dir string
	// Attach is how programs are attached; the zero value chooses.
	Attach AttachMode
	// MaxAddresses is how many single addresses the maps hold; 0 is DefaultMaxAddresses.
	MaxAddresses uint32
	// MaxPrefixes is how many shorter prefixes the maps hold; 0 is DefaultMaxPrefixes.
	MaxPrefixes uint32
	// Filters attaches programs where TCX is missing or not wanted; nil if that cannot happen.
	Filters Filters
	// Logger; nil discards.
	Logger *slog.Logger
}

// Datapath is what is in the kernel, seen from one process.
type Datapath struct {
	spec   *ebpf.CollectionSpec
	maps   map[string]*ebpf.Map
	hooks  attacher
	others []attacher // whose attachments an earlier process may have left
	logger *slog.Logger

	mu       sync.Mutex // guards what follows
	older    []layout   // of attached programs that are still to be replaced
	config   model.Config
	programs map[variant]*ebpf.Program // loaded with config; nil before Configure
	probes   map[variant]*probe        // copies for Run, loaded with config
}

// Open adopts the maps and attachments below options.Dir, or creates the maps. Attached programs
// go on as they are until Configure. See Migrating for what an older version of Warren left.
//
// Errors: ErrIncompatible when another version left what this one cannot take over.
func Open(options Options) (*Datapath, error) {
	options.Logger = cmp.Or(options.Logger, slog.New(slog.DiscardHandler))
	hooks, others, err := newAttachers(options)
	if err != nil {
		return nil, err
	}
	spec, err := loadSpec()
	if err != nil {
		return nil, err
	}
	if err := onBPFFS(options.Dir); err != nil {
		return nil, err
	}
	older, err := olderLayouts(options.Dir)
	if err != nil {
		return nil, err
	}
	if err := makeFolders(options.Dir); err != nil {
		return nil, err
	}
	if err := shareMaps(spec, older, mapsFolder(options.Dir)); err != nil {
		return nil, err
	}
	opened, err := openMaps(spec, options.Dir, map[string]uint32{
		mapExact:  cmp.Or(options.MaxAddresses, DefaultMaxAddresses),
		mapPrefix: cmp.Or(options.MaxPrefixes, DefaultMaxPrefixes),
	})
	if err != nil {
		return nil, err
	}
	return &Datapath{spec: spec, maps: opened, hooks: hooks, others: others, logger: options.Logger, older: older}, nil
}

// Close lets go of the kernel objects. All that is pinned stays, and programs stay attached.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unload()
	closeMaps(d.maps)
	return nil
}

// AttachMode returns how the programs are attached: TCX or Clsact.
func (d *Datapath) AttachMode() AttachMode { return d.hooks.mode() }

// Configure gives the programs their constants and replaces those that are attached, each in one
// step: every packet meets the old program or the new one. Called again with the same value, it
// does nothing. After an error in replacing them some are still the old ones, until the next Sync.
func (d *Datapath) Configure(config model.Config) error {
	if err := validate(config); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.programs != nil && d.config == config {
		return nil
	}
	loaded, err := d.loadPrograms(config)
	if err != nil {
		return err
	}
	d.unload()
	d.config, d.programs = config, loaded
	d.logger.Info("datapath configured", "mode", config.Mode, "ingress", config.Ingress,
		"tunnels", config.Tunnels, "underlay", config.PrimaryUnderlay)
	return d.replaceAttached()
}

func validate(config model.Config) error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if config.Mark == 0 || config.Mark&^config.MarkMask != 0 {
		problem("mark %#x/%#x: the value has to be a part of the mask, and not 0", config.Mark, config.MarkMask)
	}
	if config.Port == 0 {
		problem("port 0")
	}
	if config.Mode > cluster.ModeStrict {
		problem("unknown %v", config.Mode)
	}
	if config.Oversize > model.OversizeICMP {
		problem("unknown %v", config.Oversize)
	}
	if config.Ingress > model.IngressDevice {
		problem("unknown %v", config.Ingress)
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("configure the datapath: %w", err)
	}
	return nil
}

// loadPrograms loads every program once, so that a kernel that refuses one refuses the configuration.
// Variants for other kinds of devices are loaded when there is such a device.
func (d *Datapath) loadPrograms(config model.Config) (map[variant]*ebpf.Program, error) {
	loaded := map[variant]*ebpf.Program{}
	for _, program := range model.Programs() {
		v := variant{program: program}
		p, err := d.loadProgram(v, config)
		if err != nil {
			closePrograms(loaded)
			return nil, err
		}
		loaded[v] = p
	}
	return loaded, nil
}

// loadProgram loads a program that shares all maps.
func (d *Datapath) loadProgram(v variant, config model.Config) (*ebpf.Program, error) {
	collection, err := load(d.spec, v, v.variables(config, false), d.maps)
	if err != nil {
		return nil, err
	}
	defer collection.Close()
	return collection.DetachProgram(v.program.String()), nil
}

func (d *Datapath) unload() {
	closePrograms(d.programs)
	for _, probe := range d.probes {
		probe.close()
	}
	d.programs, d.probes = nil, nil
}

func closePrograms(programs map[variant]*ebpf.Program) {
	for _, program := range programs {
		program.Close()
	}
}

// replaceAttached puts the loaded programs where programs are attached. A device that is no underlay
// any more keeps its old program until Sync detaches it.
func (d *Datapath) replaceAttached() error {
	attached, err := d.hooks.attached()
	if err != nil {
		return err
	}
	known, err := d.readUnderlays()
	if err != nil {
		return err
	}
	var problems []error
	for _, h := range attached {
		underlay, ok := known[h.ifindex]
		if ok || h.program == model.ProgramFromTunnel {
			problems = append(problems, d.ensure(h, underlay.L3 != 0))
		}
	}
	return errors.Join(problems...)
}

// ensure attaches the program with the present configuration to a hook.
func (d *Datapath) ensure(h hook, l3 bool) error {
	v := variant{program: h.program, l3: l3 && h.program != model.ProgramFromTunnel}
	if d.programs[v] == nil {
		program, err := d.loadProgram(v, d.config)
		if err != nil {
			return err
		}
		d.programs[v] = program
	}
	return d.hooks.ensure(h, d.programs[v], func() (*ebpf.Program, error) { return d.loadProgram(v, d.config) })
}

func (d *Datapath) readUnderlays() (map[uint32]underlayValue, error) {
	known := map[uint32]underlayValue{}
	var ifindex uint32
	var value underlayValue
	iterator := d.maps[mapUnderlays].Iterate()
	for iterator.Next(&ifindex, &value) {
		known[ifindex] = value
	}
	if err := iterator.Err(); err != nil {
		return nil, fmt.Errorf("read map %s: %w", mapUnderlays, err)
	}
	return known, nil
}

func sortedKeys[V any](m map[uint32]V) []uint32 { return slices.Sorted(maps.Keys(m)) }
