package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// alike has the versions that this one can take over from, and the maps that both have alike: the programs
// of both go on with one. All other maps begin empty.
var alike = map[int][]string{
	1: {mapUnderlays, mapReasons, mapPeerReasons, mapDatagrams},
}

// layout is what an older version of Warren left.
type layout struct {
	version int
	folder  string // of its pinned maps
}

// olderLayouts returns the layouts that are taken over, and an error when there is another one.
func olderLayouts(dir string) ([]layout, error) {
	folders, err := mapFolders(dir)
	if err != nil {
		return nil, err
	}
	var older []layout
	for _, folder := range folders {
		version, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(folder), mapsFolderPrefix))
		switch _, known := alike[version]; {
		case err == nil && version == LayoutVersion:
		case err == nil && known:
			older = append(older, layout{version, folder})
		default:
			return nil, fmt.Errorf("%w: %s is there, this version needs layout %d and cannot take over from that one; run the "+
				"version that made it, or `warren cleanup` first (nothing is encrypted until the agent is back)",
				ErrIncompatible, folder, LayoutVersion)
		}
	}
	return older, nil
}

// shareMaps pins the maps that need not be made anew in the folder of this layout too.
func shareMaps(spec *ebpf.CollectionSpec, older []layout, folder string) error {
	for _, layout := range older {
		for _, name := range alike[layout.version] {
			if err := shareMap(spec.Maps[name], filepath.Join(layout.folder, name), filepath.Join(folder, name)); err != nil {
				return fmt.Errorf("take over map %s of layout %d: %w", name, layout.version, err)
			}
		}
	}
	return nil
}

// shareMap changes nothing when the new pin is there already, or the old one is not.
func shareMap(spec *ebpf.MapSpec, from, to string) error {
	m, err := ebpf.LoadPinnedMap(from, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer m.Close()
	if err := spec.Compatible(m); err != nil {
		return fmt.Errorf("%w: %w", ErrIncompatible, err)
	}
	second, err := m.Clone() // the original would move its pin
	if err != nil {
		return err
	}
	defer second.Close()
	if err := second.Pin(to); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Migrating says that programs of an older version of Warren may still be attached, with maps of their own. The
// maps of this one have none of its entries: fill them before Configure puts the new programs in their
// place. The first Sync after that which succeeds ends it, and removes what the older version pinned.
// An agent that dies meanwhile finds it as it was.
func (d *Datapath) Migrating() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.older) > 0
}

// forgetOlder removes the pins of older versions, whose programs are replaced.
func (d *Datapath) forgetOlder() error {
	for len(d.older) > 0 {
		if err := removeFolder(d.older[0].folder); err != nil {
			return err
		}
		d.logger.Info("older version replaced", "layout", d.older[0].version)
		d.older = slices.Delete(d.older, 0, 1)
	}
	return nil
}
