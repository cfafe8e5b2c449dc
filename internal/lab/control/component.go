package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Component is one process of a control plane, called like its program.
type Component string

// The components.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
)

// EtcdClient is where etcd answers in the plane's namespace, without authentication.
const EtcdClient = "127.0.0.1:2379"

const etcdPeer = "127.0.0.1:2380"

// components are those of the plane, in the order in which they start.
func (p *Plane) components() []Component {
	if p.Options.Managers {
		return []Component{Etcd, APIServer, ControllerManager, Scheduler}
	}
	return []Component{Etcd, APIServer}
}

// StartComponent starts a component, if it does not run, and returns when it is ready. The error of one
// that ends or does not get ready shows the end of its log.
func (p *Plane) StartComponent(ctx context.Context, c Component) error {
	if p.PID(c) == 0 {
		if err := p.launch(c); err != nil {
			return fmt.Errorf("start %s: %w", c, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		err := p.probe(ctx, c)
		if err == nil {
			return nil
		}
		if p.PID(c) == 0 {
			return p.complaint(c, errors.New("it has ended"))
		}
		select {
		case <-ctx.Done():
			return p.complaint(c, errors.Join(ctx.Err(), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *Plane) complaint(c Component, err error) error {
	return fmt.Errorf("start %s: %w\nthe end of %s:\n%s", c, err, p.LogPath(c), LogTail(p.LogPath(c), 15))
}

// Ready reports what keeps the API server from answering that it is ready; nil when nothing.
func (p *Plane) Ready(ctx context.Context) error { return p.probe(ctx, APIServer) }

// probe asks a component whether it is ready.
func (p *Plane) probe(ctx context.Context, c Component) error {
	url := map[Component]string{
		Etcd:              "http://" + EtcdClient + "/health",
		APIServer:         "https://" + p.Server().String() + "/readyz",
		ControllerManager: "https://127.0.0.1:10257/healthz",
		Scheduler:         "https://127.0.0.1:10259/healthz",
	}[c]
	if err := p.get(ctx, url); err != nil {
		return fmt.Errorf("%s is not ready: %w", c, err)
	}
	return nil
}

// arguments of a component's command line.
func (p *Plane) arguments(c Component) []string {
	arguments := map[Component]func() []string{
		Etcd: p.etcdArguments, APIServer: p.apiServerArguments,
		ControllerManager: p.controllerManagerArguments, Scheduler: p.schedulerArguments,
	}[c]()
	return append(arguments, p.Options.Arguments[c]...)
}

func (p *Plane) etcdArguments() []string {
	client, peer := "http://"+EtcdClient, "http://"+etcdPeer
	return []string{
		"--name=etcd", "--data-dir=" + p.dataDir(),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=etcd=" + peer,
		"--unsafe-no-fsync", // a machine that crashes takes the lab along
	}
}

func (p *Plane) apiServerArguments() []string {
	o := p.Options
	bind := netip.IPv4Unspecified()
	if o.Address.Is6() {
		bind = netip.IPv6Unspecified()
	}
	arguments := []string{
		"--etcd-servers=http://" + EtcdClient,
		"--bind-address=" + bind.String(), "--advertise-address=" + o.Address.String(), "--secure-port=" + strconv.Itoa(int(o.port())),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-cluster-ip-range=" + joined(o.services()),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-allowed-names=front-proxy-client", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		"--v=1",
	}
	for _, file := range []struct{ flag, name string }{
		{"client-ca-file", "ca.crt"},
		{"tls-cert-file", "apiserver.crt"}, {"tls-private-key-file", "apiserver.key"},
		{"service-account-key-file", "service-accounts.pub"}, {"service-account-signing-key-file", "service-accounts.key"},
		{"kubelet-client-certificate", "kubelet-client.crt"}, {"kubelet-client-key", "kubelet-client.key"},
		{"requestheader-client-ca-file", "front-proxy-ca.crt"},
		{"proxy-client-cert-file", "front-proxy-client.crt"}, {"proxy-client-key-file", "front-proxy-client.key"},
	} {
		arguments = append(arguments, "--"+file.flag+"="+p.keys.path(file.name))
	}
	return arguments
}

func (p *Plane) controllerManagerArguments() []string {
	arguments := append(p.managerArguments(ControllerManager),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+p.keys.path("service-accounts.key"), "--root-ca-file="+p.keys.path("ca.crt"),
		"--requestheader-client-ca-file="+p.keys.path("front-proxy-ca.crt"),
		"--service-cluster-ip-range="+joined(p.Options.services()),
	)
	if len(p.Options.Pods) > 0 {
		arguments = append(arguments, "--allocate-node-cidrs=true", "--cluster-cidr="+joined(p.Options.Pods))
	}
	return arguments
}

func (p *Plane) schedulerArguments() []string { return p.managerArguments(Scheduler) }

// managerArguments are common to those that work on the API server's objects.
func (p *Plane) managerArguments(c Component) []string {
	config := p.kubeconfigPath("system:" + string(c))
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--tls-cert-file=" + p.keys.path("managers.crt"), "--tls-private-key-file=" + p.keys.path("managers.key"),
		"--leader-elect=false", "--v=1",
	}
}

func joined(prefixes []netip.Prefix) string {
	words := make([]string, 0, len(prefixes))
	for _, prefix := range prefixes {
		words = append(words, prefix.String())
	}
	return strings.Join(words, ",")
}
