package cluster

import (
	"encoding/json"
	"fmt"

	"warren/internal/lab"
)

// containerdConfig: the machine may not let its root raise the priority of anybody in the face of the out-of-memory
// killer, hence restrict_oom_score_adj.
const containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "` + kubeDir + `"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
`

// kubeletConfig: the file systems that the kubelet watches are those of the machine, so it must not judge how full
// they are.
func kubeletConfig(n *node) string {
	return object(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false}, "x509": map[string]any{"clientCAFile": configDir + "/ca.crt"}},
		"authorization":  map[string]any{"mode": "Webhook"},
		"tlsCertFile":    configDir + "/kubelet.crt", "tlsPrivateKeyFile": configDir + "/kubelet.key",
		"cgroupDriver": "cgroupfs", "cgroupRoot": "/" + n.group(), "failCgroupV1": false, "failSwapOn": false,
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"enforceNodeAllocatable":   []string{},
		"evictionHard":             map[string]any{"memory.available": "100Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		"resolvConf":               "",
	})
}

// networkConfig is for the CNI plugins bridge and host-local: pods have addresses of the node's prefixes, and others
// see them as they are.
func networkConfig(n lab.Node) string {
	var ranges [][]map[string]any
	for _, prefix := range n.Prefixes {
		ranges = append(ranges, []map[string]any{{"subnet": prefix.String()}})
	}
	return object(map[string]any{
		"cniVersion": "1.0.0", "name": "pods",
		"plugins": []map[string]any{{
			"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
			"ipam": map[string]any{
				"type": "host-local", "ranges": ranges,
				"routes": []map[string]any{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}},
			},
		}},
	})
}

// nodeObject announces a node before its kubelet does, which knows no prefixes of pods.
func nodeObject(n lab.Node) string {
	var prefixes []string
	for _, prefix := range n.Prefixes {
		prefixes = append(prefixes, prefix.String())
	}
	return object(map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": n.Name},
		"spec": map[string]any{"podCIDR": prefixes[0], "podCIDRs": prefixes},
	})
}

// object prints what JSON can express; all readers of these files take JSON for YAML.
func object(fields map[string]any) string {
	text, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("marshal %v: %v", fields, err)) // maps of strings always can be
	}
	return string(text) + "\n"
}
