package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"warren/internal/api"
	"warren/internal/config"
	"warren/internal/datapath"
	"warren/internal/discovery/dir"
	"warren/internal/netdev"
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
	device := tunnelDevice{links: links}
	// The record first: the others stop sending. The programs before the device: what is still sent
	// to it would be dropped.
	return errors.Join(
		withdraw(ctx, o),
		datapath.Cleanup(o.Config.BPFDir, links.Filters(), o.Log),
		device.remove(ctx, o.Config.Device),
		removeFiles(o),
	)
}

func withdraw(ctx context.Context, o CleanupOptions) error {
	id, err := o.Config.NodeID()
	if err != nil {
		return err
	}
	folder := dir.New(dir.Options{Path: o.Config.Dir.Path, Self: id})
	return folder.Withdraw(ctx)
}

func removeFiles(o CleanupOptions) error {
	run := o.Config.RunDir
	paths := []string{filepath.Join(run, api.SocketName), filepath.Join(run, "agent.lock")}
	logs, err := filepath.Glob(filepath.Join(run, "tunnel-"+o.Config.Device+".*"))
	if err != nil {
		return fmt.Errorf("list the run directory: %w", err)
	}
	paths = append(paths, logs...)
	if o.Purge {
		for _, name := range []string{keyFile, snapshotFile, modeFile} {
			paths = append(paths, filepath.Join(o.Config.StateDir, name))
		}
	}
	var problems []error
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	_ = os.Remove(run) // stays when somebody else has files in it
	if o.Purge {
		_ = os.Remove(o.Config.StateDir)
	}
	return errors.Join(problems...)
}
