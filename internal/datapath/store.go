package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The maps of bpf/maps.h that are pinned.
const (
	mapExact       = "ipcache_exact"
	mapPrefix      = "ipcache_prefix"
	mapUnderlays   = "underlays"
	mapServers     = "servers"
	mapExemptions  = "exempt_prefixes"
	mapReasons     = "reasons"
	mapPeerReasons = "peer_reasons"
	mapDatagrams   = "own_datagrams"
	mapTold        = "told"
	mapFlows       = "clear_flows"
	mapFragments   = "path_fragments"
	mapArrivals    = "arrivals"
)

var pinnedMaps = []string{
	mapExact, mapPrefix, mapUnderlays, mapServers, mapExemptions,
	mapReasons, mapPeerReasons, mapDatagrams, mapTold, mapFlows, mapFragments, mapArrivals,
}

// The options that a user raises when a map is full.
const (
	optionAddresses = "ipcache.max-addresses"
	optionPrefixes  = "ipcache.max-prefixes"
)

// sizeOptions has the maps whose size the user chooses.
var sizeOptions = map[string]string{mapExact: optionAddresses, mapPrefix: optionPrefixes}

const (
	mapsFolderPrefix = "maps-v"
	linksFolder      = "links"
)

// mapsFolder returns the folder of the pinned maps below dir.
func mapsFolder(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%s%d", mapsFolderPrefix, LayoutVersion))
}

// makeFolders creates the folders of the pins.
func makeFolders(dir string) error {
	for _, folder := range []string{mapsFolder(dir), filepath.Join(dir, linksFolder)} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("create the folder for pins: %w", err)
		}
	}
	return nil
}

// onBPFFS looks at the folder, or at what will contain it.
func onBPFFS(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("the folder for pins has to be an absolute path, not %q", dir)
	}
	var fs unix.Statfs_t
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		err := unix.Statfs(at, &fs)
		if errors.Is(err, unix.ENOENT) && at != "/" {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at the file system of %s: %w", at, err)
		}
		if uint64(fs.Type) != unix.BPF_FS_MAGIC {
			return fmt.Errorf("%s is not on a BPF file system; mount one (mount -t bpf bpf /sys/fs/bpf)", dir)
		}
		return nil
	}
}

// openMaps adopts the pinned maps, or creates and pins them.
func openMaps(spec *ebpf.CollectionSpec, dir string, sizes map[string]uint32) (map[string]*ebpf.Map, error) {
	opened := map[string]*ebpf.Map{}
	for _, name := range pinnedMaps {
		m, err := openMap(spec.Maps[name].Copy(), mapsFolder(dir), sizes[name])
		if err != nil {
			closeMaps(opened)
			return nil, err
		}
		opened[name] = m
	}
	return opened, nil
}

// openMap opens one map; a size of 0 leaves the one in bpf/maps.h. A pinned map that is as it should be
// but for a size that the user chooses gets the new size.
func openMap(spec *ebpf.MapSpec, folder string, size uint32) (*ebpf.Map, error) {
	spec.Pinning = ebpf.PinByName
	if size != 0 {
		spec.MaxEntries = size
	}
	m, err := ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: folder})
	if errors.Is(err, ebpf.ErrMapIncompatible) && size != 0 {
		m, err = resize(spec, filepath.Join(folder, spec.Name))
	}
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		return nil, fmt.Errorf("%w: map %s: %w; `warren cleanup` makes room for a new map (nothing is encrypted until the agent is back)",
			ErrIncompatible, spec.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open map %s below %s: %w", spec.Name, folder, err)
	}
	return m, nil
}

// resize puts a map of the wanted size, with the same entries, in the place of the pinned one. The
// attached programs go on with the old map, which nobody changes any more, until Configure replaces
// them by programs with the new one: at no time does a packet meet a map without its entry.
//
// Errors: ebpf.ErrMapIncompatible when more than the size differs, ErrMapFull when the entries do not fit.
func resize(spec *ebpf.MapSpec, pin string) (*ebpf.Map, error) {
	old, err := ebpf.LoadPinnedMap(pin, nil)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	same := spec.Copy()
	same.MaxEntries = old.MaxEntries()
	if err := same.Compatible(old); err != nil {
		return nil, err
	}
	resized, err := copyMap(spec, old)
	if err != nil {
		return nil, err
	}
	// A name of its own first (one with a dot is not allowed there), since a pin cannot be overwritten
	// but by renaming.
	temporary := pin + "_resized"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, resized.Close())
	}
	if err := resized.Pin(temporary); err != nil {
		return nil, errors.Join(err, resized.Close())
	}
	if err := os.Rename(temporary, pin); err != nil {
		return nil, errors.Join(err, resized.Close())
	}
	return resized, nil
}

// copyMap returns a new map with the entries of old.
func copyMap(spec *ebpf.MapSpec, old *ebpf.Map) (*ebpf.Map, error) {
	spec = spec.Copy()
	spec.Pinning = ebpf.PinNone
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, err
	}
	var key, value []byte
	entries := old.Iterate()
	for entries.Next(&key, &value) {
		err = m.Put(key, value)
		if isFull(err) {
			err = fmt.Errorf("%w: %s has more entries than %d; raise %s", ErrMapFull, spec.Name, spec.MaxEntries, sizeOptions[spec.Name])
		}
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	if err := entries.Err(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func closeMaps(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		m.Close()
	}
}
