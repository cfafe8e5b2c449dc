package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

func (p *Plane) dataDir() string { return p.path("etcd") }

// Snapshot copies etcd's data to a folder, which must not exist. etcd is stopped meanwhile and started
// again if it ran; the API server waits for it.
func (p *Plane) Snapshot(ctx context.Context, to string) error {
	running := p.PID(Etcd) != 0
	err := p.StopComponent(ctx, Etcd)
	if err == nil {
		err = copyFolder(p.dataDir(), to)
	}
	if running {
		err = errors.Join(err, p.StartComponent(ctx, Etcd))
	}
	if err != nil {
		return fmt.Errorf("take a snapshot of etcd: %w", err)
	}
	return nil
}

// Restore replaces etcd's data by a snapshot; "" leaves an empty etcd. What runs is started again, the API
// server included, whose memory of the old data would be wrong. Revisions go back: watches of clients are
// from the future then.
func (p *Plane) Restore(ctx context.Context, from string) error {
	var running []Component
	for _, c := range p.components() {
		if p.PID(c) != 0 {
			running = append(running, c)
		}
	}
	for _, c := range slices.Backward(running) {
		if err := p.KillComponent(ctx, c); err != nil {
			return fmt.Errorf("restore etcd: %w", err)
		}
	}
	if err := p.replaceData(from); err != nil {
		return fmt.Errorf("restore etcd: %w", err)
	}
	for _, c := range running {
		if err := p.StartComponent(ctx, c); err != nil {
			return fmt.Errorf("restore etcd: %w", err)
		}
	}
	return nil
}

func (p *Plane) replaceData(from string) error {
	if err := os.RemoveAll(p.dataDir()); err != nil {
		return fmt.Errorf("remove the old data: %w", err)
	}
	if from == "" {
		return nil
	}
	return copyFolder(from, p.dataDir())
}

func copyFolder(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	// etcd refuses data that others may read, and os.CopyFS does not keep the folder's mode.
	if err := os.Chmod(to, 0o700); err != nil {
		return fmt.Errorf("protect %s: %w", to, err)
	}
	return nil
}
