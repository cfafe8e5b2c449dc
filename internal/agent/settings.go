package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/discovery/durable"
	"warren/internal/plan"
)

// modeFile has the mode that was set by command; it survives a restart and a reboot.
const modeFile = "mode"

func (a *agent) modePath() string { return filepath.Join(a.Config.StateDir, modeFile) }

// recallMode makes the mode that was set by command count. What is in the file and is no mode does not,
// and the configured one does: a guess could open what was closed.
func (a *agent) recallMode() {
	text, err := os.ReadFile(a.modePath())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	mode := strings.TrimSpace(string(text))
	if err == nil {
		err = a.changeMode(mode)
	}
	if err != nil {
		a.problems.set("mode", []api.Problem{{
			Where: a.modePath(), Message: "the mode that was set by command is not known: " + err.Error(),
			Remedy: "warren mode set MODE, or warren mode reset",
		}}, time.Now(), a.Log)
	}
}

// changeMode makes a mode count, from the next full round on.
func (a *agent) changeMode(mode string) error {
	changed := a.Config
	if err := changed.Set("mode", mode); err != nil {
		return err
	}
	a.Config, a.commanded = changed, true
	return nil
}

// setMode is the command to change the mode: kept first, then done.
func (a *agent) setMode(ctx context.Context, mode string) error {
	before, commanded := a.Config, a.commanded
	if err := a.changeMode(mode); err != nil {
		return fmt.Errorf("%w: %w", errQuestion, err)
	}
	if err := durable.Replace(a.modePath(), []byte(mode+"\n"), 0o600); err != nil {
		a.Config, a.commanded = before, commanded
		return fmt.Errorf("keep the mode: %w", err)
	}
	a.problems.set("mode", nil, time.Now(), a.Log)
	return a.enact(ctx)
}

// resetMode goes back to the configured mode.
func (a *agent) resetMode(ctx context.Context) error {
	if err := os.Remove(a.modePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the mode that was set: %w", err)
	}
	a.problems.set("mode", nil, time.Now(), a.Log)
	a.Config.Mode, a.commanded = a.configured, false
	return a.enact(ctx)
}

// enact makes the settings count in the kernel. What fails is retried by later rounds.
func (a *agent) enact(ctx context.Context) error {
	a.Log.Info("settings changed", "mode", a.Config.Mode)
	if err := a.round(ctx, true); err != nil {
		return fmt.Errorf("settings are kept, and retried until they count: %w", err)
	}
	return nil
}

// reload reads the configuration anew. One that is not valid changes nothing.
func (a *agent) reload() {
	var found []api.Problem
	next, err := a.Reload()
	if err != nil {
		found = []api.Problem{{Where: "configuration", Message: "not reloaded: " + err.Error(), Remedy: "correct it and send SIGHUP again"}}
	} else {
		found = a.takeConfig(next)
	}
	a.problems.set("configuration", found, time.Now(), a.Log)
}

func (a *agent) takeConfig(next config.Config) []api.Problem {
	a.base = next
	effective, refused := withSettings(next, a.engineSays.Settings)
	a.refused = refused
	reloaded, fixed := a.Config.Reload(effective)
	a.configured = reloaded.Mode
	if a.commanded || a.leave != nil {
		reloaded.Mode = a.Config.Mode
	}
	a.Config = reloaded
	a.LogLevel.Set(reloaded.LogLevel.Level())
	a.apply(configuredFacts(reloaded.Facts))
	a.Log.Info("configuration reloaded", "mode", reloaded.Mode)
	problems := recordProblems(refused)
	if len(fixed) > 0 {
		problems = append(problems, api.Problem{
			Where: "configuration", Message: strings.Join(fixed, ", ") + " changed, which only a start of the agent reads",
			Remedy: "restart the agent",
		})
	}
	return problems
}

// configuredFacts is what the configuration states, as one resource.
func configuredFacts(facts []config.Fact) plan.Change {
	statement := plan.Statement{Source: cluster.SourceFile, Resource: "file/config"}
	for _, fact := range facts {
		statement.Facts = append(statement.Facts, cluster.Fact{Prefix: fact.Prefix, Info: fact.Info})
	}
	return plan.Change{Statement: &statement}
}

// mode returns the mode in force, and who chose it.
func (a *agent) mode() api.Mode {
	source := api.ModeConfigured
	if a.commanded {
		source = api.ModeCommanded
	}
	return api.Mode{Mode: a.Config.Mode.String(), Source: source, Configured: a.configured.String()}
}

func (a *agent) putMode(r *http.Request) (api.Mode, error) {
	var asked api.Mode
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 4096)).Decode(&asked); err != nil {
		return api.Mode{}, fmt.Errorf("%w: read the mode: %w", errQuestion, err)
	}
	err := a.setMode(r.Context(), asked.Mode)
	return a.mode(), err
}

func (a *agent) deleteMode(r *http.Request) (api.Mode, error) {
	err := a.resetMode(r.Context())
	return a.mode(), err
}

// forgetNodes lets go of the nodes that are held back.
func (a *agent) forgetNodes(*http.Request) ([]string, error) {
	gone := a.departures.Release()
	a.forget(gone)
	return texts(gone), nil
}
