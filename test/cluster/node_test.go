package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"warren/internal/lab"
	"warren/internal/lab/control"
	"warren/internal/lab/netns"
)

// node is one machine of the cluster. Its disk is a folder, which survives a reboot.
type node struct {
	lab.Node
	run      run
	guest    string // the program of that name
	binaries string // folder of Kubernetes' programs
	init     *exec.Cmd
}

// Folders of a node, as seen from inside.
const (
	kubeDir       = "/opt/kube" // the programs of scripts/kubetools.sh
	configDir     = "/etc/cluster"
	containerdLog = "/var/log/containerd.log"
	kubeletLog    = "/var/log/kubelet.log"
	proxyLog      = "/var/log/kube-proxy.log"
)

// root is the node's disk on the machine below.
func (n *node) root() string { return filepath.Join(n.run.dir, n.Name) }

// path is where a file of the node is on the machine below. What is in /run, /tmp, /proc and /sys is not there.
func (n *node) path(inside string) string { return filepath.Join(n.root(), inside) }

// group is the control group of everything on the node.
func (n *node) group() string { return n.run.name + "-" + n.Name }

// write puts a file on the node's disk.
func (n *node) write(inside, text string) error {
	if err := os.MkdirAll(filepath.Dir(n.path(inside)), 0o755); err != nil {
		return fmt.Errorf("write %s of %s: %w", inside, n.Name, err)
	}
	if err := os.WriteFile(n.path(inside), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write %s of %s: %w", inside, n.Name, err)
	}
	return nil
}

// take copies a file of the machine below to the node's disk.
func (n *node) take(from, inside string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("write %s of %s: %w", inside, n.Name, err)
	}
	return n.write(inside, string(text))
}

// boot starts the node's first process, which makes a machine of the namespaces.
func (n *node) boot() error {
	if err := makeGroups(n.group()); err != nil {
		return err
	}
	if err := os.MkdirAll(n.root(), 0o755); err != nil {
		return fmt.Errorf("make the disk of %s: %w", n.Name, err)
	}
	n.init = exec.Command(n.guest, "init", n.Name, n.root(), n.binaries)
	n.init.Env = []string{"PATH=/usr/sbin:/usr/bin"}
	n.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	var complaint bytes.Buffer
	n.init.Stderr = &complaint
	// Nobody writes to it: that it ends with this process is what the node lives by.
	if _, err := n.init.StdinPipe(); err != nil {
		return err
	}
	said, err := n.init.StdoutPipe()
	if err != nil {
		return err
	}
	if err := netns.Do(n.Namespace, n.init.Start); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "ready\n" {
		_ = n.init.Wait()
		return fmt.Errorf("start %s: %w: %s", n.Name, err, complaint.String())
	}
	return nil
}

// kill ends everything on the node at once, as pulling the plug does.
func (n *node) kill() error {
	if n.init == nil || n.init.ProcessState != nil {
		return nil
	}
	if err := n.init.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", n.Name, err)
	}
	_ = n.init.Wait() // which says that it was killed
	return nil
}

// command is a command inside the node. The caller owns the process, which ends with the node at the latest.
func (n *node) command(name string, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(n.init.Process.Pid), "--net", "--mount", "--uts", "--ipc", "--pid", "--", name}
	command := exec.Command("nsenter", append(enter, args...)...)
	command.Env = []string{"PATH=" + kubeDir + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	return command
}

// do runs a command inside the node to its end and returns what it prints.
func (n *node) do(name string, args ...string) (string, error) {
	command := n.command(name, args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s on %s: %w: %s", name, strings.Join(args, " "), n.Name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// start starts a program that runs until it is ended, with its output in a file on the node's disk.
func (n *node) start(log, name string, args ...string) error {
	if err := os.MkdirAll(filepath.Dir(n.path(log)), 0o755); err != nil {
		return fmt.Errorf("open the log of %s on %s: %w", name, n.Name, err)
	}
	file, err := os.OpenFile(n.path(log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s on %s: %w", name, n.Name, err)
	}
	defer file.Close()
	command := n.command("sh", append([]string{"-c", `echo $$ >"/run/$0.pid"; exec "$0" "$@"`, name}, args...)...)
	command.Stdout, command.Stderr = file, file
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s on %s: %w", name, n.Name, err)
	}
	go func() { _ = command.Wait() }() // so that one that ends early is no zombie
	return nil
}

// end ends a program that start has started, and waits until it has ended. That it does not run is not an error.
func (n *node) end(name string) error {
	_, err := n.do("sh", "-c", `! read -r pid <"/run/$0.pid" || while kill "$pid"; do sleep 0.1; done 2>/dev/null`, name)
	return err
}

// startContainerd starts the container runtime and waits until it answers.
func (n *node) startContainerd(ctx context.Context) error {
	if err := n.start(containerdLog, "containerd", "--config", configDir+"/containerd.toml"); err != nil {
		return err
	}
	return n.await(ctx, containerdLog, func() error {
		_, err := n.do("ctr", "version")
		return err
	})
}

// startKubelet starts the kubelet, which announces the node to the API server.
func (n *node) startKubelet() error {
	return n.start(kubeletLog, "kubelet", "--config="+configDir+"/kubelet.yaml", "--kubeconfig="+configDir+"/kubeconfig",
		"--hostname-override="+n.Name, "--node-ip="+joined(n.Addresses), "--v=2")
}

// await asks again and again until there is no error; the last one comes with the end of a log.
func (n *node) await(ctx context.Context, log string, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w\nthe end of %s on %s:\n%s", errors.Join(ctx.Err(), err), log, n.Name, control.LogTail(n.path(log), 15))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func joined(addresses []netip.Addr) string {
	var words []string
	for _, address := range addresses {
		words = append(words, address.String())
	}
	return strings.Join(words, ",")
}
