package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"warren/internal/lab/netns"
)

// In a lab with Kubernetes, pods are attached by what attaches them on a real node: the reference plugins of
// CNI, called as a container runtime calls them (CNI specification 1.0.0, sections 2 and 4).

// attachment is one call of a plugin for one device of a pod.
type attachment struct {
	plugin, device string
	config         []byte // JSON
}

// attachments are the plugins that give a pod its devices, in order. IPAM remembers in a folder of the node
// which addresses are given out; the lab asks for those that its topology says.
func (r recipe) attachments(n Node, p Pod, dataDir string) []attachment {
	type object = map[string]any
	loopback := object{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}
	bridge := object{
		"cniVersion": "1.0.0", "name": "warren-lab", "type": "bridge",
		"bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true, "mtu": r.spec.podMTU(),
		"ipam": object{
			"type": "host-local", "dataDir": dataDir,
			"ranges": [][]object{{{"subnet": n.Prefixes[0].String()}}, {{"subnet": n.Prefixes[1].String()}}},
			"routes": []object{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}},
		},
		"args": object{"cni": object{"ips": texts(p.Addresses), "mac": p.MAC.String()}},
	}
	return []attachment{{"loopback", "lo", asJSON(loopback)}, {"bridge", "eth0", asJSON(bridge)}}
}

// asJSON is for values of maps, strings and numbers, which can always be written.
func asJSON(value any) []byte {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic(err)
	}
	return text
}

// attachPods gives every pod of a node its devices.
func (l *Lab) attachPods(ctx context.Context, node Node) error {
	for _, pod := range node.Pods {
		for _, a := range newRecipe(l.Spec).attachments(node, pod, l.dirs(node).cni()) {
			result, err := l.plug(ctx, node, pod, a)
			if err == nil && a.plugin == "bridge" {
				err = gave(result, pod.Addresses)
			}
			if err != nil {
				return fmt.Errorf("attach pod %s with the CNI plugin %s: %w", pod.Name, a.plugin, err)
			}
		}
	}
	return nil
}

// plug calls a plugin on the node and returns what it prints.
func (l *Lab) plug(ctx context.Context, node Node, pod Pod, a attachment) ([]byte, error) {
	binaries := l.Spec.Kube.Binaries
	command := exec.CommandContext(ctx, filepath.Join(binaries, a.plugin))
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=ADD", "CNI_CONTAINERID=" + pod.Namespace, "CNI_NETNS=" + netns.Path(pod.Namespace),
		"CNI_IFNAME=" + a.device, "CNI_PATH=" + binaries,
	}
	var stdout bytes.Buffer
	command.Stdin, command.Stdout = bytes.NewReader(a.config), &stdout
	if err := l.nodeView(node).Start(command); err != nil {
		return nil, err
	}
	if err := command.Wait(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stdout.Bytes())) // plugins say on standard output what is wrong
	}
	return stdout.Bytes(), nil
}

// gave reports whether a plugin's result has exactly the addresses that a pod should have.
func gave(result []byte, want []netip.Addr) error {
	var given struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(result, &given); err != nil {
		return fmt.Errorf("read its result: %w", err)
	}
	var got []netip.Addr
	for _, ip := range given.IPs {
		got = append(got, ip.Address.Addr())
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("it gave the addresses %v, not %v", got, want)
	}
	return nil
}
