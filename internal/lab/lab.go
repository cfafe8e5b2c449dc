package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Lab is a lab that is there. Its methods may be used from several processes at a time.
type Lab struct {
	Spec     Spec
	Topology Topology
	progress func(string)
}

// Options are how a lab is worked with, not what it consists of.
type Options struct {
	// Progress is told about every step of long work; nil is silence.
	Progress func(step string)
	// Ready is how long agents may take until each of them has all its peers; 0 is a minute.
	Ready time.Duration
}

func (o Options) progress() func(string) {
	if o.Progress == nil {
		return func(string) {}
	}
	return o.Progress
}

func (o Options) ready() time.Duration {
	if o.Ready == 0 {
		return time.Minute
	}
	return o.Ready
}

func newLab(spec Spec, options Options) *Lab {
	return &Lab{Spec: spec, Topology: spec.Topology(), progress: options.progress()}
}

// Open returns the lab of a name; ErrNoLab when there is none.
func Open(name string, options Options) (*Lab, error) {
	spec, err := readSpec(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; 'warren lab up%s' builds it%s", ErrNoLab, name, nameFlag(name), otherLabs())
	}
	if err != nil {
		return nil, err
	}
	return newLab(spec, options), nil
}

func otherLabs() string {
	names, err := Names()
	if err != nil || len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" (there are: %v)", names)
}

func specPath(name string) string { return filepath.Join(labDir(name), "lab.json") }

func readSpec(name string) (Spec, error) {
	var spec Spec
	if err := ValidName(name); err != nil {
		return spec, err
	}
	text, err := os.ReadFile(specPath(name))
	if err != nil {
		return spec, fmt.Errorf("read the lab's description: %w", err)
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return spec, fmt.Errorf("read the lab's description %s: %w; '%s' removes the lab", specPath(name), err, downCommand(name))
	}
	return spec, nil
}

// saveSpec replaces the description in one step, so that nobody reads half of one.
func saveSpec(spec Spec) error {
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("write the lab's description: %w", err)
	}
	path := specPath(spec.Name)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the lab's description: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the lab's description: %w", err)
	}
	return nil
}

// change runs f while no other process changes the lab, with the spec as it is by then.
func change(ctx context.Context, name string, options Options, f func(*Lab) error) error {
	unlock, err := lockLab(ctx, name)
	if errors.Is(err, errVanished) {
		_, err = Open(name, options) // says so in the usual words
	}
	if err != nil {
		return err
	}
	defer unlock()
	l, err := Open(name, options)
	if err != nil {
		return err
	}
	return f(l)
}

// lockLab waits a while for whoever is changing the lab.
func lockLab(ctx context.Context, name string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return lockDir(ctx, labDir(name))
}

func (l *Lab) dirs(n Node) nodeDirs {
	return nodeDirs{root: filepath.Join(labDir(l.Spec.Name), n.Name)}
}

// RunDir is where the agent of a node has its socket.
func (l *Lab) RunDir(node string) string { return l.dirs(Node{Name: node}).run() }

// PinDir is the folder on the node's BPF file system for the agent's programs and maps.
func (l *Lab) PinDir(node string) string { return l.dirs(Node{Name: node}).pins() }

// ConfigPath is the configuration file of a node's agent.
func (l *Lab) ConfigPath(node string) string { return l.dirs(Node{Name: node}).config() }

// RecordDir is the folder of node records that all agents of the lab share.
func (l *Lab) RecordDir() string { return filepath.Join(labDir(l.Spec.Name), "nodes") }
