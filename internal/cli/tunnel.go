package cli

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"warren/internal/wireguard/userspace"
)

func newTunnel() *cobra.Command {
	var options userspace.Options
	cmd := &cobra.Command{
		Use:   "tunnel",
		Short: "Run a userspace WireGuard device, for kernels without WireGuard",
		Long: `Make a TUN device and encrypt what goes through it, as a kernel WireGuard device would. The agent
starts this where the kernel has no WireGuard, and configures it through its socket in
/var/run/wireguard. It outlives the agent, and ends when its device is deleted or at SIGTERM.

SIGUSR1 makes it write a CPU profile of the next ten seconds to the file that --profile names, for
'go tool pprof'. The agent names RUN-DIR/tunnel-DEVICE.pprof.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return userspace.Run(cmd.Context(), options)
		},
	}
	cmd.Flags().StringVar(&options.Device, "device", "warren0", "name of the device")
	cmd.Flags().IntVar(&options.MTU, "mtu", 0, "MTU in bytes (0 = WireGuard's default)")
	cmd.Flags().StringVar(&options.Profile, "profile", "", "file that gets a CPU profile of ten seconds on SIGUSR1")
	return cmd
}

func newLauncher() *cobra.Command {
	o := userspace.LauncherOptions{}
	cmd := &cobra.Command{
		Use:   "launcher",
		Short: "Start tunnel processes for agents in containers",
		Long: `Start 'warren tunnel' whenever an agent with the same run directory asks for it. What an agent in a
container starts by itself ends with that container; the tunnels of a launcher in another one stay when
the agent is replaced. An agent that finds the launcher's socket in its run directory asks it.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			executable, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the path of this program: %w", err)
			}
			o.Executable, o.Log = executable, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return userspace.Launch(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.RunDir, "run-dir", defaultRunDir(), "run directory of the agent")
	return cmd
}
