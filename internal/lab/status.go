package lab

import "context"

// Status is a lab as it is now, for `lab status`; the field names are stable.
type Status struct {
	Name       string        `json:"name"`
	CNI        CNI           `json:"cni"`
	MTU        int           `json:"mtu"`
	Encryption bool          `json:"encryption"`
	Wire       string        `json:"wire"`             // its namespace
	Router     *RouterStatus `json:"router,omitempty"` // absent where there is none
	Nodes      []NodeStatus  `json:"nodes"`
	// Control is absent in a lab without Kubernetes.
	Control *ControlStatus `json:"control,omitempty"`
}

// ControlStatus is the control plane.
type ControlStatus struct {
	Node       string   `json:"node"`
	Server     string   `json:"server"`     // where nodes reach the API server
	Kubeconfig string   `json:"kubeconfig"` // for this machine's kubectl
	Ready      bool     `json:"ready"`
	Detail     []string `json:"detail"` // why it is not ready
}

// RouterStatus is the router and the path through it.
type RouterStatus struct {
	Namespace string `json:"namespace"`
	Node      string `json:"node"` // behind it
	MTU       int    `json:"mtu"`
	Silent    bool   `json:"silent"` // sends no ICMP errors
}

// NodeStatus is one node.
type NodeStatus struct {
	Name      string       `json:"name"`
	Namespace string       `json:"namespace"`
	Addresses []string     `json:"addresses"`
	Prefixes  []string     `json:"prefixes"`
	Pods      []PodStatus  `json:"pods"`
	Agent     *AgentStatus `json:"agent"` // null in a lab without encryption
}

// PodStatus is one pod.
type PodStatus struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Addresses []string `json:"addresses"`
}

// AgentStatus is the agent of a node.
type AgentStatus struct {
	PID    int      `json:"pid"` // 0: not running
	Ready  bool     `json:"ready"`
	Peers  int      `json:"peers"`   // installed ones
	Detail []string `json:"detail"`  // why it is not ready
	RunDir string   `json:"run_dir"` // for --run-dir
	Log    string   `json:"log"`
}

// Ready reports whether the control plane, if there is one, and every agent is ready; a lab without either is.
func (s Status) Ready() bool {
	if s.Control != nil && !s.Control.Ready {
		return false
	}
	for _, node := range s.Nodes {
		if node.Agent != nil && !node.Agent.Ready {
			return false
		}
	}
	return true
}

// Status asks every agent. An agent that does not answer is part of the answer, not an error.
func (l *Lab) Status(ctx context.Context) Status {
	status := Status{Name: l.Spec.Name, CNI: l.Spec.CNI, MTU: l.Spec.MTU, Encryption: l.Spec.Agent != nil, Wire: l.Topology.Wire}
	if path := l.Spec.Path; path != nil {
		status.Router = &RouterStatus{Namespace: l.Topology.Router.Namespace, Node: nodeName(path.Node), MTU: path.MTU, Silent: path.Silent}
	}
	if l.Spec.Kube != nil {
		status.Control = l.controlStatus(ctx)
	}
	for _, node := range l.Topology.Nodes {
		status.Nodes = append(status.Nodes, l.nodeStatus(ctx, node))
	}
	return status
}

func (l *Lab) controlStatus(ctx context.Context) *ControlStatus {
	status := &ControlStatus{Node: controlNode, Kubeconfig: l.Kubeconfig(), Detail: []string{}}
	plane, err := l.Control()
	if err == nil {
		status.Server = "https://" + plane.Server().String()
		err = plane.Ready(ctx)
	}
	if err != nil {
		status.Detail = append(status.Detail, err.Error())
	}
	status.Ready = err == nil
	return status
}

func (l *Lab) nodeStatus(ctx context.Context, node Node) NodeStatus {
	status := NodeStatus{Name: node.Name, Namespace: node.Namespace, Addresses: texts(node.Addresses), Prefixes: texts(node.Prefixes), Pods: []PodStatus{}}
	for _, pod := range node.Pods {
		status.Pods = append(status.Pods, PodStatus{Name: pod.Name, Namespace: pod.Namespace, Addresses: texts(pod.Addresses)})
	}
	if l.Spec.Agent != nil {
		status.Agent = l.agentStatus(ctx, node)
	}
	return status
}

func (l *Lab) agentStatus(ctx context.Context, node Node) *AgentStatus {
	dirs := l.dirs(node)
	status := &AgentStatus{PID: l.AgentPID(node), RunDir: dirs.run(), Log: dirs.log(), Detail: []string{}}
	answer, err := dirs.client().Status(ctx)
	if err != nil {
		status.Detail = append(status.Detail, err.Error())
		return status
	}
	status.Ready, status.Detail = answer.Ready, append(status.Detail, answer.NotReady...)
	for _, peer := range answer.Peers {
		if peer.Installed {
			status.Peers++
		}
	}
	return status
}
