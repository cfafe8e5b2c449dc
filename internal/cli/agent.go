package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"warren/internal/agent"
	"warren/internal/config"
)

// settings are the configuration file and the flags that override it.
type settings struct {
	path   string
	values map[string]*string // by key
}

// addFlags gives the command --config and one flag for each of the keys; all of them when none is named.
func (s *settings) addFlags(cmd *cobra.Command, only ...string) {
	cmd.Flags().StringVar(&s.path, "config", fromEnv("WARREN_CONFIG", config.DefaultPath), "configuration file")
	s.values = map[string]*string{}
	for _, key := range config.Keys() {
		if len(only) > 0 && !slices.Contains(only, key.Name) {
			continue
		}
		value := new(string)
		s.values[key.Name] = value
		help := key.Help
		if key.Default != "" {
			help += fmt.Sprintf(" (default %s)", key.Default)
		}
		cmd.Flags().StringVar(value, key.Flag(), "", help)
		if key.Values != nil {
			_ = cmd.RegisterFlagCompletionFunc(key.Flag(), cobra.FixedCompletions(key.Values, cobra.ShellCompDirectiveNoFileComp))
		}
		if key.Name == "attach" { // for tests of what older kernels do
			_ = cmd.Flags().MarkHidden(key.Flag())
		}
	}
}

// load reads the file and applies the flags that were given. The default file need not exist.
func (s *settings) load(cmd *cobra.Command) (config.Config, error) {
	c, err := config.Load(s.path)
	named := cmd.Flags().Changed("config") || os.Getenv("WARREN_CONFIG") != ""
	if errors.Is(err, fs.ErrNotExist) && !named {
		c, err = config.Default(), nil
	}
	if err != nil {
		return config.Config{}, err
	}
	for _, key := range config.Keys() {
		value, ok := s.values[key.Name]
		if !ok || !cmd.Flags().Changed(key.Flag()) {
			continue
		}
		if err := c.Set(key.Name, *value); err != nil {
			return config.Config{}, exitError{exitUsage, err}
		}
	}
	return c, c.Validate()
}

func newAgent() *cobra.Command {
	var s settings
	printConfig := false
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this node's agent",
		Long: `Run the agent: publish this node's record, follow the others', keep the WireGuard device, the eBPF
programs and their maps as they must be, and mend what others change.

Ending the agent, also by kill -9, leaves all of that in place: packets go on being encrypted, and the
next agent adopts what is there. 'warren cleanup' removes it.

Every key of the configuration file has a flag, which wins over the file. SIGHUP reads the file anew.`,
		Example: `  warren agent --print-config > /etc/warren/warren.yaml
  warren agent --config /etc/warren/warren.yaml
  warren agent --node n1 --addresses 192.0.2.1 --prefixes 10.42.1.0/24 --dir-path /srv/warren`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.load(cmd)
			if err != nil {
				return err
			}
			if printConfig {
				_, err := io.WriteString(cmd.OutOrStdout(), c.Document())
				return err
			}
			executable, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the path of this program: %w", err)
			}
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			log, level := newLogger(cmd.ErrOrStderr(), c)
			return agent.Run(cmd.Context(), agent.Options{
				Config: c, Version: version, Executable: executable, Log: log, LogLevel: level,
				Hangup: hangup, Reload: func() (config.Config, error) { return s.load(cmd) },
			})
		},
	}
	s.addFlags(cmd)
	cmd.Flags().BoolVar(&printConfig, "print-config", false, "print the configuration with all defaults and explanations, and exit")
	return cmd
}

// cleanupKeys are what has to be known of an agent to remove what it left: its record too.
var cleanupKeys = []string{
	"node", "cluster", "device", "discovery", "dir.path", "kubernetes.kubeconfig",
	"etcd.endpoints", "etcd.prefix", "etcd.ca-file", "etcd.cert-file", "etcd.key-file", "etcd.user", "etcd.password-file",
	"state-dir", "run-dir", "bpf-dir", "log-level", "log-format",
}

// newLogger returns the log, and its level, which may change.
func newLogger(w io.Writer, c config.Config) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(c.LogLevel.Level())
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

func newCleanup() *cobra.Command {
	var s settings
	purge := false
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that Warren put on this node",
		Long: `Detach the programs, remove pins and maps, the WireGuard device, the tunnel process, the files in the
run directory and this node's record. From then on this node's packets are in clear. The state directory
with the private key stays, so that the node is the same when the agent comes back; --purge empties it.

It works without an agent, after a kill -9, and a second time. It refuses while an agent is running.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.load(cmd)
			if err != nil {
				return err
			}
			log, _ := newLogger(cmd.ErrOrStderr(), c)
			return agent.Cleanup(cmd.Context(), agent.CleanupOptions{Config: c, Purge: purge, Log: log})
		},
	}
	s.addFlags(cmd, cleanupKeys...)
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the private key, the snapshot and the mode that was set as well")
	return cmd
}
