package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"warren/internal/lab/netns"
)

// Join adds a node with pods to a running lab and returns its name. Where agents run, it returns when
// every agent has the new peer. The number of a node that left is given out again.
func Join(ctx context.Context, name string, options Options) (string, error) {
	var joined string
	err := change(ctx, name, options, func(l *Lab) (err error) {
		joined, err = l.join(ctx)
		return err
	})
	if err != nil {
		return joined, fmt.Errorf("add a node to lab %s: %w", name, err)
	}
	l, err := Open(name, options)
	if err != nil || l.Spec.Agent == nil {
		return joined, err
	}
	return joined, l.WaitReady(ctx, options.ready())
}

func (l *Lab) join(ctx context.Context) (string, error) {
	number := l.Spec.nextNode()
	l.Spec.Nodes = append(slices.Clone(l.Spec.Nodes), number)
	slices.Sort(l.Spec.Nodes)
	if err := l.Spec.Validate(); err != nil {
		return "", err
	}
	l.Topology = l.Spec.Topology()
	// Written first: what follows may be interrupted, and leave must then know the node.
	if err := saveSpec(l.Spec); err != nil {
		return "", err
	}
	node, _ := l.Topology.Node(nodeName(number))
	if err := l.makeNode(ctx, node); err != nil {
		return node.Name, err
	}
	recipe := newRecipe(l.Spec)
	for _, other := range l.Topology.Others(node.Name) {
		if err := run(ctx, slices.Concat(recipe.join(node, other), recipe.join(other, node))); err != nil {
			return node.Name, err
		}
	}
	if err := settle(ctx, node.Namespaces()); err != nil {
		return node.Name, err
	}
	if l.Spec.Kube != nil {
		if err := l.register(ctx, []Node{node}); err != nil {
			return node.Name, err
		}
	}
	if l.Spec.Agent == nil {
		return node.Name, nil
	}
	return node.Name, l.startAgents([]Node{node})
}

// Leave removes a node from a running lab as if its machine had been taken away: its agent ends, its
// record goes, and then the machine.
func Leave(ctx context.Context, name, nodeName string, options Options) error {
	err := change(ctx, name, options, func(l *Lab) error { return l.leave(ctx, nodeName) })
	if err != nil {
		return fmt.Errorf("remove %s from lab %s: %w", nodeName, name, err)
	}
	return nil
}

func (l *Lab) leave(ctx context.Context, name string) error {
	node, ok := l.Topology.Node(name)
	switch {
	case !ok:
		return l.unknown(name)
	case len(l.Topology.Nodes) == 1:
		return fmt.Errorf("it is the last node; '%s' removes the lab", downCommand(l.Spec.Name))
	case l.Spec.Kube != nil && name == controlNode:
		return errors.New("it runs the control plane")
	}
	if err := netns.End(ctx, endTime, node.Namespaces()...); err != nil {
		return err
	}
	if err := l.removeRecord(ctx, node); err != nil {
		return err
	}
	recipe := newRecipe(l.Spec)
	for _, other := range l.Topology.Others(name) {
		// Routes that an interrupted join had not yet made are no reason to keep the node.
		_ = run(ctx, recipe.part(other, node))
	}
	// The kernel takes its time with the devices of a namespace, and a node that joins gets this port's name. An interrupted
	// join has not made it.
	_ = run(ctx, []netns.Script{ip(l.Topology.Wire, f("link delete %s", node.Name))})
	if err := removeThese(ctx, node.Namespaces()); err != nil {
		return err
	}
	root := l.dirs(node).root
	if err := unmountBelow(root); err != nil {
		return err
	}
	if err := os.RemoveAll(root); err != nil {
		return fmt.Errorf("remove its files: %w", err)
	}
	l.Spec.Nodes = slices.DeleteFunc(l.Spec.Nodes, func(n int) bool { return n == node.Number })
	return saveSpec(l.Spec)
}

// removeRecord takes a node out of what the others find.
func (l *Lab) removeRecord(ctx context.Context, node Node) error {
	if l.Spec.Kube != nil {
		return l.deregister(ctx, node)
	}
	if err := os.Remove(l.RecordPath(node.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove its record: %w", err)
	}
	return nil
}

// RecordPath is the file in which a node's agent publishes its record.
func (l *Lab) RecordPath(node string) string { return filepath.Join(l.RecordDir(), node+".yaml") }

// Reboot ends everything on a node and builds the machine anew, with its disk or, if that is lost, without. Its record
// stays where it is. Where agents run, its agent is started; Reboot does not wait for it.
func Reboot(ctx context.Context, name, nodeName string, loseDisk bool, options Options) error {
	err := change(ctx, name, options, func(l *Lab) error { return l.reboot(ctx, nodeName, loseDisk) })
	if err != nil {
		return fmt.Errorf("reboot %s of lab %s: %w", nodeName, name, err)
	}
	return nil
}

func (l *Lab) reboot(ctx context.Context, name string, loseDisk bool) error {
	node, ok := l.Topology.Node(name)
	if !ok {
		return l.unknown(name)
	}
	if err := netns.End(ctx, endTime, node.Namespaces()...); err != nil {
		return err
	}
	// The kernel takes its time with the devices of a namespace; this one has to be gone.
	if err := run(ctx, []netns.Script{ip(l.Topology.Wire, f("link delete %s", node.Name))}); err != nil {
		return err
	}
	if err := removeThese(ctx, node.Namespaces()); err != nil {
		return err
	}
	if err := l.dirs(node).powerOff(loseDisk); err != nil {
		return err
	}
	if err := l.makeNode(ctx, node); err != nil {
		return err
	}
	recipe := newRecipe(l.Spec)
	for _, other := range l.Topology.Others(name) {
		if err := run(ctx, recipe.join(node, other)); err != nil {
			return err
		}
	}
	if err := settle(ctx, node.Namespaces()); err != nil {
		return err
	}
	if l.Spec.Kube != nil && name == controlNode {
		if err := l.startControl(ctx); err != nil {
			return err
		}
	}
	if l.Spec.Agent == nil {
		return nil
	}
	return l.startAgents([]Node{node})
}

// powerOff removes what a machine loses when it goes off, and the state directory if the disk is lost.
func (d nodeDirs) powerOff(loseDisk bool) error {
	if err := unmountBelow(d.root); err != nil {
		return err
	}
	lost := []string{d.run(), d.bpf(), d.wireguard(), d.cni()}
	if loseDisk {
		lost = append(lost, d.state())
	}
	for _, path := range lost {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove its files: %w", err)
		}
	}
	return nil
}
