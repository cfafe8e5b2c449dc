package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"warren/internal/api"
	"warren/internal/config"
	"warren/internal/discovery"
	"warren/internal/discovery/durable"
)

// toldFile has what the engine said last of this machine; it survives a reboot.
const toldFile = "engine.json"

// told is what the engine of discovery says of this machine itself. It is remembered, since this machine has
// prefixes and settings also while an API is away.
type told struct {
	Machine  discovery.Machine   `json:"machine"`
	Settings []discovery.Setting `json:"settings"`
}

func (a *agent) toldPath() string { return filepath.Join(a.Config.StateDir, toldFile) }

// loadTold reads what save wrote; no file is nothing told.
func loadTold(path string) (t told, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return told{}, nil
	}
	if err != nil {
		return told{}, err
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return told{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func (t told) save(path string) error {
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(path, append(text, '\n'), 0o600)
}

// recallTold makes what the engine said last count, until it says something else.
func (a *agent) recallTold() {
	var err error
	if a.engineSays, err = loadTold(a.toldPath()); err != nil {
		a.Log.Warn("nothing is remembered of what discovery said of this machine", "error", err)
	}
	a.Config, a.refused = withSettings(a.Config, a.engineSays.Settings)
	a.configured = a.Config.Mode
}

// noteTold takes in what the engine says of this machine.
func (a *agent) noteTold(change func(*told)) {
	change(&a.engineSays)
	a.view.complete = false
	var found []api.Problem
	if err := a.engineSays.save(a.toldPath()); err != nil {
		found = []api.Problem{{Where: a.toldPath(), Message: err.Error(), Remedy: "make room in the state directory, or make it writable"}}
	}
	a.problems.set("engine", found, time.Now(), a.Log)
}

// hearSettings makes the engine's settings count.
func (a *agent) hearSettings(settings []discovery.Setting) {
	if slices.Equal(settings, a.engineSays.Settings) {
		return
	}
	a.noteTold(func(t *told) { t.Settings = settings })
	a.problems.set("configuration", a.takeConfig(a.base), time.Now(), a.Log)
}

// withSettings returns the configuration with the engine's settings over it, and those that do not count.
func withSettings(base config.Config, settings []discovery.Setting) (config.Config, []discovery.Problem) {
	var refused []discovery.Problem
	for _, s := range settings {
		if err := base.Set(s.Key, s.Value); err != nil {
			refused = append(refused, discovery.Problem{
				Where: s.Where, Message: fmt.Sprintf("%s is ignored: %v", s.Key, err), Remedy: "correct it there",
			})
		}
	}
	return base, refused
}

// ownAddresses are those that the engine says this machine has, as far as a device has them.
func (t told) ownAddresses(has func(netip.Addr) bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(t.Machine.Addresses), func(a netip.Addr) bool { return !has(a) })
}

// ownPrefixes are the configured ones and those that the engine says live behind this machine.
func (t told) ownPrefixes(configured []netip.Prefix) []netip.Prefix {
	all := slices.Clone(configured)
	for _, p := range t.Machine.Prefixes {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}
