package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Options are what a control plane consists of. They are kept in its folder.
type Options struct {
	// Dir holds everything of the plane: keys, data, logs, process ids. It is made if it is missing, and
	// what is there already is used again.
	Dir string `json:"dir"`
	// Binaries is the folder that scripts/kubetools.sh fills; see FindBinaries.
	Binaries string `json:"binaries"`
	// Namespace is the network namespace of the processes; "" is the caller's.
	Namespace string `json:"namespace,omitempty"`
	// Address at which the API server is reached and which it publishes as the endpoint of the Service
	// default/kubernetes. Kubernetes refuses loopback addresses there.
	Address netip.Addr `json:"address"`
	// Port of the API server; 0 is 6443.
	Port uint16 `json:"port,omitempty"`
	// Names are further names and addresses that the API server's certificate is good for, besides
	// Address, loopback and those of the Service.
	Names []string `json:"names,omitempty"`
	// Services are the prefixes of Service addresses, that of Address' family first; none is 10.96.0.0/16
	// or fd00:96::/112.
	Services []netip.Prefix `json:"services,omitempty"`
	// Managers: run the controller-manager and the scheduler too. Without them nobody makes default
	// ServiceAccounts, fills EndpointSlices, or schedules pods.
	Managers bool `json:"managers,omitempty"`
	// Pods are the prefixes that the controller-manager gives nodes their podCIDRs from; none: it gives
	// nodes none.
	Pods []netip.Prefix `json:"pods,omitempty"`
	// Arguments are further ones of a component's command line; they win over those of this package.
	Arguments map[Component][]string `json:"arguments,omitempty"`
}

// Port of the API server where Options name none.
const defaultPort = 6443

// startTime is how long a component may take until it is ready. An API server takes 5 seconds on a
// machine that has nothing else to do.
const startTime = 2 * time.Minute

// Plane is a control plane that was started. Its methods may be used from several processes, but not
// to start or end the same component at the same time.
type Plane struct {
	Options Options
	keys    keyring
	making  sync.Mutex // of certificates and kubeconfigs, each of which is several files
}

// Start makes a control plane or starts what does not run of one, and returns when it is ready.
// It is for the caller to end what runs when it returns an error: Open and Stop.
func Start(ctx context.Context, options Options) (*Plane, error) {
	p, err := create(options)
	if err != nil {
		return nil, fmt.Errorf("make a control plane in %s: %w", options.Dir, err)
	}
	for _, component := range p.components() {
		if err := p.StartComponent(ctx, component); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Open returns the control plane of a folder, whether it runs or not.
func Open(dir string) (*Plane, error) {
	text, err := os.ReadFile(optionsPath(dir))
	if err != nil {
		return nil, fmt.Errorf("open the control plane in %s: %w", dir, err)
	}
	var options Options
	if err := json.Unmarshal(text, &options); err != nil {
		return nil, fmt.Errorf("open the control plane in %s: %w", dir, err)
	}
	return &Plane{Options: options, keys: keyring{filepath.Join(dir, "pki")}}, nil
}

// Stop ends everything that runs, the API server before its etcd. That nothing runs is not an error.
func (p *Plane) Stop(ctx context.Context) error {
	var problems []error
	for _, component := range slices.Backward(p.components()) {
		problems = append(problems, p.StopComponent(ctx, component))
	}
	return errors.Join(problems...)
}

// Server is where the API server is reached.
func (p *Plane) Server() netip.AddrPort {
	return netip.AddrPortFrom(p.Options.Address, p.Options.port())
}

func (o Options) port() uint16 {
	if o.Port == 0 {
		return defaultPort
	}
	return o.Port
}

func (o Options) services() []netip.Prefix {
	switch {
	case len(o.Services) > 0:
		return o.Services
	case o.Address.Is4():
		return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	}
	return []netip.Prefix{netip.MustParsePrefix("fd00:96::/112")}
}

// create writes down what the plane is and makes its keys.
func create(options Options) (*Plane, error) {
	if !filepath.IsAbs(options.Dir) {
		return nil, errors.New("the folder is not an absolute path")
	}
	options.Dir = filepath.Clean(options.Dir)
	if !options.Address.IsValid() || options.Address.IsLoopback() || options.Address.IsUnspecified() {
		return nil, fmt.Errorf("an API server cannot publish the address %q", options.Address)
	}
	for _, dir := range []string{options.Dir, filepath.Join(options.Dir, "run")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make its folders: %w", err)
		}
	}
	text, err := json.MarshalIndent(options, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write its options: %w", err)
	}
	if err := os.WriteFile(optionsPath(options.Dir), append(text, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("write its options: %w", err)
	}
	p := &Plane{Options: options, keys: keyring{filepath.Join(options.Dir, "pki")}}
	return p, p.makeKeys()
}

func optionsPath(dir string) string { return filepath.Join(dir, "plane.json") }

func (p *Plane) path(name ...string) string {
	return filepath.Join(append([]string{p.Options.Dir}, name...)...)
}
