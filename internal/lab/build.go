package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"warren/internal/lab/netns"
)

// Up builds a lab and waits until every agent has all its peers. ErrExists when the name is taken.
// When the network cannot be built, what was built is removed again. When an agent does not get
// ready, the lab stays, to be looked at.
func Up(ctx context.Context, spec Spec, options Options) (*Lab, error) {
	if err := errors.Join(spec.Validate(), usable()); err != nil {
		return nil, err
	}
	if err := claim(ctx, spec.Name); err != nil {
		return nil, err
	}
	l := newLab(spec, options)
	if err := l.buildLocked(ctx); err != nil {
		if cleanup := Down(context.WithoutCancel(ctx), spec.Name); cleanup != nil {
			err = fmt.Errorf("%w; removing it again: %w", err, cleanup)
		}
		return nil, err
	}
	if spec.Agent == nil {
		return l, nil
	}
	if err := l.WaitReady(ctx, options.ready()); err != nil {
		return nil, fmt.Errorf("%w\nthe lab is left as it is: look with 'warren lab status%[2]s', remove it with '%[3]s'",
			err, nameFlag(spec.Name), downCommand(spec.Name))
	}
	return l, nil
}

// usable reports what the machine lacks for a lab.
func usable() error {
	if unix.Geteuid() != 0 {
		return errors.New("a lab makes network namespaces: run it as root")
	}
	for _, tool := range []string{"ip", "bridge"} {
		if _, err := exec.LookPath(tool); err != nil {
			return netns.ErrNoIproute2
		}
	}
	return nil
}

func (l *Lab) buildLocked(ctx context.Context) error {
	unlock, err := lockLab(ctx, l.Spec.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := saveSpec(l.Spec); err != nil {
		return err
	}
	return l.build(ctx)
}

func (l *Lab) build(ctx context.Context) error {
	recipe := newRecipe(l.Spec)
	l.progress(fmt.Sprintf("wire: namespace %s", l.Topology.Wire))
	if err := netns.Create(ctx, l.Topology.Wire); err != nil {
		return err
	}
	if err := netns.Set(l.Topology.Wire, wireSettings()); err != nil {
		return err
	}
	if err := run(ctx, recipe.wire()); err != nil {
		return err
	}
	if err := l.makeRouter(ctx); err != nil {
		return fmt.Errorf("build the router: %w", err)
	}
	for _, node := range l.Topology.Nodes {
		if err := l.makeNode(ctx, node); err != nil {
			return fmt.Errorf("build node %s: %w", node.Name, err)
		}
	}
	for _, node := range l.Topology.Nodes {
		for _, other := range l.Topology.Others(node.Name) {
			if err := run(ctx, recipe.join(node, other)); err != nil {
				return fmt.Errorf("tell node %s of %s: %w", node.Name, other.Name, err)
			}
		}
	}
	if err := settle(ctx, l.Topology.Namespaces()[1:]); err != nil {
		return err
	}
	if l.Spec.Kube != nil {
		if err := l.makeCluster(ctx); err != nil {
			return fmt.Errorf("make the Kubernetes cluster: %w", err)
		}
	}
	if l.Spec.Agent == nil {
		return nil
	}
	return l.startAgents(l.Topology.Nodes)
}

// makeRouter makes the router, if there is one.
func (l *Lab) makeRouter(ctx context.Context) error {
	router := l.Topology.Router
	if router == nil {
		return nil
	}
	l.progress(fmt.Sprintf("router: %s, forwards %d bytes", router.Namespace, l.Spec.Path.MTU))
	if err := netns.Create(ctx, router.Namespace); err != nil {
		return err
	}
	if err := netns.Set(router.Namespace, hostSettings(true)); err != nil {
		return err
	}
	return run(ctx, newRecipe(l.Spec).router())
}

// makeNode makes a node with its pods and plugs it in. It knows no pods of others yet.
func (l *Lab) makeNode(ctx context.Context, node Node) error {
	l.progress(fmt.Sprintf("node %s: %s, pods in %s", node.Name, strings.Join(texts(node.Addresses), " "), strings.Join(texts(node.Prefixes), " ")))
	if err := l.makeDirs(node); err != nil {
		return err
	}
	if err := netns.Create(ctx, node.Namespaces()...); err != nil {
		return err
	}
	for i, namespace := range node.Namespaces() {
		if err := netns.Set(namespace, hostSettings(i == 0)); err != nil {
			return err
		}
	}
	if err := run(ctx, newRecipe(l.Spec).node(node)); err != nil {
		return err
	}
	if l.Spec.Kube == nil {
		return nil
	}
	return l.attachPods(ctx, node)
}

func run(ctx context.Context, scripts []netns.Script) error {
	for _, script := range scripts {
		if err := netns.Batch(ctx, script); err != nil {
			return err
		}
	}
	return nil
}
