package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"warren/internal/api"
	"warren/internal/config"
	"warren/internal/datapath"
	"warren/internal/netdev"
	"warren/internal/plan"
	"warren/internal/wireguard/userspace"
)

// CleanupOptions of Cleanup; Config and Log are needed.
type CleanupOptions struct {
	Config config.Config
	// Purge removes what survives a reboot as well: the private key, the snapshot, and the mode that
	// was set.
	Purge bool
	Log   *slog.Logger
}

// Cleanup removes all that agents left on this node: this node's record, programs, pins and maps, the
// device with its tunnel process, and the files in the run directory. It goes on after an error and may
// be repeated. It refuses while an agent runs.
func Cleanup(ctx context.Context, o CleanupOptions) error {
	unlock, err := lockRunDir(o.Config.RunDir)
	if err != nil {
		return err
	}
	defer unlock()
	links, err := netdev.Open()
	if err != nil {
		return err
	}
	defer links.Close()
	// The record first: the others stop sending. The programs before the device: what is still sent
	// to it would be dropped.
	return errors.Join(
		withdraw(ctx, o),
		datapath.Cleanup(o.Config.BPFDir, links.Filters(), o.Log),
		removeDevices(ctx, links, o.Config.Device),
		removeFiles(o),
	)
}

func removeDevices(ctx context.Context, links *netdev.Netdev, base string) error {
	var problems []error
	for slot := range plan.Slot(plan.Slots) {
		device := tunnelDevice{links: links}
		problems = append(problems, device.remove(ctx, slot.Device(base)))
	}
	return errors.Join(problems...)
}

func withdraw(ctx context.Context, o CleanupOptions) error {
	id, err := o.Config.NodeID()
	if err != nil {
		return err
	}
	engine, err := openEngine(o.Config, id, false)
	if err != nil {
		return err
	}
	return engine.Withdraw(ctx)
}

// socketFolder is the folder in the run directory that deploy/ mounts where tunnel processes have their sockets.
const socketFolder = "wireguard"

func removeFiles(o CleanupOptions) error {
	run := o.Config.RunDir
	paths := []string{filepath.Join(run, api.SocketName), filepath.Join(run, "agent.lock"), filepath.Join(run, userspace.LauncherSocket)}
	for slot := range plan.Slot(plan.Slots) {
		paths = append(paths, filepath.Join(run, socketFolder, slot.Device(o.Config.Device)+".sock"))
		logs, err := filepath.Glob(filepath.Join(run, "tunnel-"+slot.Device(o.Config.Device)+".*"))
		if err != nil {
			return fmt.Errorf("list the run directory: %w", err)
		}
		paths = append(paths, logs...)
	}
	if o.Purge {
		keys, err := ownKeys{o.Config.StateDir}.paths()
		if err != nil {
			return err
		}
		paths = slices.AppendSeq(paths, maps.Values(keys))
		for _, name := range []string{snapshotFile, modeFile, toldFile} {
			paths = append(paths, filepath.Join(o.Config.StateDir, name))
		}
	}
	var problems []error
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	// A folder stays when somebody else has files in it.
	_ = os.Remove(filepath.Join(run, socketFolder))
	_ = os.Remove(run)
	if o.Purge {
		_ = os.Remove(o.Config.StateDir)
	}
	return errors.Join(problems...)
}
