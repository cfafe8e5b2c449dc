package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"warren/internal/lab/control"
	"warren/internal/lab/netns"
)

// endTime is how long processes in a lab may take to end before they are killed.
const endTime = 3 * time.Second

// Down removes a lab and whatever is left of it: processes, namespaces, mounts and files, found by
// name and place rather than by what an interrupted command may have failed to write down. That there
// is no such lab is not an error.
func Down(ctx context.Context, name string) error {
	if err := ValidName(name); err != nil {
		return err
	}
	unlock, err := lockLab(ctx, name)
	if err != nil && !errors.Is(err, errVanished) {
		return fmt.Errorf("remove lab %s: %w", name, err)
	}
	if err == nil {
		defer unlock()
	}
	if err := errors.Join(downControls(ctx, name), remove(ctx, name)); err != nil {
		return fmt.Errorf("remove lab %s: %w", name, err)
	}
	return nil
}

func remove(ctx context.Context, name string) error {
	if err := killControl(ctx, name); err != nil {
		return err
	}
	if err := removeNamespaces(ctx, name); err != nil {
		return err
	}
	if err := unmountBelow(labDir(name)); err != nil {
		return err
	}
	return release(ctx, name)
}

// killControl ends a control plane at once: an API server that is asked to end together with its etcd waits for it.
func killControl(ctx context.Context, name string) error {
	plane, err := control.Open(filepath.Join(labDir(name), "control"))
	if err != nil {
		return nil // there is none, or what is left of one will end with its namespace
	}
	return errors.Join(plane.KillComponent(ctx, control.APIServer), plane.KillComponent(ctx, control.Etcd))
}

// removeNamespaces looks again until there are none: the tool that an interrupted `up` had started
// may make another one meanwhile.
func removeNamespaces(ctx context.Context, name string) error {
	for range 5 {
		all, err := netns.List()
		if err != nil {
			return err
		}
		own := ownNamespaces(name, all)
		if len(own) == 0 {
			return nil
		}
		if err := removeThese(ctx, own); err != nil {
			return err
		}
	}
	return errors.New("namespaces keep coming: is 'warren lab up' running?")
}

func removeThese(ctx context.Context, namespaces []string) error {
	if err := netns.End(ctx, endTime, namespaces...); err != nil {
		return err
	}
	for _, namespace := range namespaces {
		if err := netns.Delete(namespace); err != nil {
			return err
		}
	}
	return nil
}

// downControls removes the labs that were built as controls of this one and left by an interrupted
// `verify`.
func downControls(ctx context.Context, name string) error {
	names, err := Names()
	if err != nil {
		return err
	}
	var problems []error
	for _, other := range names {
		spec, err := readSpec(other)
		if err == nil && spec.ControlOf == name && other != name {
			problems = append(problems, Down(ctx, other))
		}
	}
	return errors.Join(problems...)
}
