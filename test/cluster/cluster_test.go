package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"warren/internal/lab"
	"warren/internal/lab/control"
	"warren/internal/lab/control/controltest"
)

const (
	nodes  = 3
	upTime = 3 * time.Minute // for everything to be ready, on a busy machine
)

// cluster is a Kubernetes cluster of three machines.
type cluster struct {
	run      run
	topology lab.Topology
	nodes    []*node
	plane    *control.Plane
	binaries string // folder of Kubernetes' programs
}

// theCluster is made for the first test that needs it.
var theCluster struct {
	once sync.Once
	*cluster
	err error
}

// up returns the cluster; its nodes are ready.
func up(t *testing.T) *cluster {
	t.Helper()
	controltest.Need(t)
	theCluster.once.Do(func() {
		started := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), upTime)
		defer cancel()
		theCluster.cluster = &cluster{run: thisRun(), topology: topologyOf(thisRun(), nodes)}
		theCluster.err = theCluster.start(ctx)
		t.Logf("%5.1f s: the cluster is up", time.Since(started).Seconds())
	})
	if theCluster.err != nil {
		t.Fatal(theCluster.err)
	}
	return theCluster.cluster
}

// down ends the cluster, if it was made. What is left is for the sweep.
func down() error {
	c := theCluster.cluster
	if c == nil {
		return nil
	}
	var problems []error
	for _, n := range c.nodes {
		problems = append(problems, n.kill())
	}
	if c.plane != nil {
		problems = append(problems, c.plane.Stop(context.Background()))
	}
	return errors.Join(problems...)
}

// start brings everything up: the machines and the control plane side by side, then the kubelets.
func (c *cluster) start(ctx context.Context) (err error) {
	if c.binaries, err = control.FindBinaries(""); err != nil {
		return err
	}
	if err := c.build(ctx); err != nil {
		return err
	}
	if err := plugIn(ctx, c.topology); err != nil {
		return err
	}
	starting, startCtx := errgroup.WithContext(ctx)
	for _, n := range c.topology.Nodes {
		n := &node{Node: n, run: c.run, guest: c.file("guest"), binaries: c.binaries}
		c.nodes = append(c.nodes, n)
		starting.Go(func() error { return c.prepare(startCtx, n) })
	}
	starting.Go(func() (err error) {
		c.plane, err = control.Start(startCtx, control.Options{
			Dir: c.file("plane"), Binaries: c.binaries, Managers: true, Services: servicePrefixes,
			Namespace: c.topology.Nodes[0].Namespace, Address: c.topology.Nodes[0].Addresses[0],
		})
		return err
	})
	if err := starting.Wait(); err != nil {
		return err
	}
	return c.join(ctx)
}

// file is a file of the run.
func (c *cluster) file(name string) string { return filepath.Join(c.run.dir, name) }

// image is one that every node has.
type image struct{ tag, dockerfile string }

func (c *cluster) images() []image {
	return []image{
		{"localhost/pause:1", "test/cluster/testdata/pause.Dockerfile"},
		{"localhost/guest:dev", "test/cluster/testdata/guest.Dockerfile"},
		{"localhost/warren:dev", "deploy/Dockerfile"},
	}
}

// archive is the file of an image.
func (c *cluster) archive(i image) string {
	return c.file(strings.NewReplacer("/", "-", ":", "-").Replace(i.tag) + ".tar")
}

// build makes the programs that are not there yet, and the images. The folder of the run is the context of all.
func (c *cluster) build(ctx context.Context) error {
	if err := goBuild(ctx, c.file("guest"), "warren/test/cluster/guest"); err != nil {
		return err
	}
	if given := os.Getenv("WARREN_BINARY"); given == "" {
		if err := goBuild(ctx, c.file("bin/warren"), "warren/cmd/warren"); err != nil {
			return err
		}
	} else if err := errors.Join(os.Mkdir(c.file("bin"), 0o755), os.Symlink(given, c.file("bin/warren"))); err != nil {
		return fmt.Errorf("take the given warren: %w", err)
	}
	for _, i := range c.images() {
		command := exec.CommandContext(ctx, "go", "run", "./scripts/image", "-file", i.dockerfile, "-context", c.run.dir, "-tag", i.tag, "-out", c.archive(i))
		command.Dir = "../.."
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("build the image %s: %w\n%s", i.tag, err, output)
		}
	}
	return nil
}

func goBuild(ctx context.Context, to, program string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", to, program)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", program, err, output)
	}
	return nil
}

// prepare boots a node and gives its container runtime the images.
func (c *cluster) prepare(ctx context.Context, n *node) error {
	for _, file := range []struct{ path, text string }{
		{configDir + "/containerd.toml", containerdConfig},
		{configDir + "/kubelet.yaml", kubeletConfig(n)},
		{"/etc/cni/net.d/10-pods.conflist", networkConfig(n.Node)},
		{"/etc/machine-id", fmt.Sprintf("%032x\n", n.Number)},
		{"/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"},
		{"/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"},
	} {
		if err := n.write(file.path, file.text); err != nil {
			return err
		}
	}
	if err := n.boot(); err != nil {
		return err
	}
	if err := n.startContainerd(ctx); err != nil {
		return err
	}
	for _, i := range c.images() {
		if err := n.load(c.archive(i)); err != nil {
			return err
		}
	}
	return nil
}

// load imports an image from an archive.
func (n *node) load(archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("load an image on %s: %w", n.Name, err)
	}
	defer file.Close()
	command := n.command("ctr", "--namespace", "k8s.io", "images", "import", "-")
	command.Stdin = file
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("load %s on %s: %w\n%s", filepath.Base(archive), n.Name, err, output)
	}
	return nil
}

// join starts the kubelets and waits until Kubernetes says that all nodes are ready.
func (c *cluster) join(ctx context.Context) error {
	var objects []string
	for _, n := range c.nodes {
		objects = append(objects, nodeObject(n.Node))
	}
	if _, err := c.plane.Kubectl(ctx, strings.Join(objects, "---\n"), "apply", "-f", "-"); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.credentials(n); err != nil {
			return err
		}
		if err := n.startKubelet(); err != nil {
			return err
		}
	}
	if err := c.proxy(ctx, iptables); err != nil {
		return err
	}
	_, err := c.plane.Kubectl(ctx, "", "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
	if err != nil {
		return fmt.Errorf("%w\nthe end of %s on %s:\n%s", err, kubeletLog, c.nodes[1].Name, control.LogTail(c.nodes[1].path(kubeletLog), 20))
	}
	return nil
}

// credentials gives a node what its kubelet shows to the API server, and by what it knows it.
func (c *cluster) credentials(n *node) error {
	config, err := c.plane.Kubeconfig(control.Client{User: "system:node:" + n.Name, Groups: []string{"system:nodes"}})
	if err != nil {
		return err
	}
	certificate, key, err := c.plane.NodeCertificate(n.Name, n.Addresses...)
	if err != nil {
		return err
	}
	return errors.Join(
		n.take(config, configDir+"/kubeconfig"), n.take(c.plane.Authority(), configDir+"/ca.crt"),
		n.take(certificate, configDir+"/kubelet.crt"), n.take(key, configDir+"/kubelet.key"))
}
