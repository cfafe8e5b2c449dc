package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"warren/internal/agent"
	"warren/internal/api"
)

func newLeave() *cobra.Command {
	var s settings
	var q query
	patience, keep := 30*time.Second, false
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Take this node out of the cluster without losing a packet, and clean up",
		Long: `Take this node out of the cluster in stages, each of which waits for the other nodes:

  announced   the record says that this node leaves; it encrypts on until each peer accepts clear
              packets from it, also those in strict mode
  withdrawn   the record is gone; it decrypts on until each peer has let go of it
  done        the agent ends, and all that it put on this node is removed, as by 'warren cleanup'

From then on this node's packets are in clear. A peer that does not answer is waited for as long as
--patience says, in each stage, and named. Interrupted before the record is withdrawn, the node stays.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.load(cmd)
			if err != nil {
				return err
			}
			q.runDir = c.RunDir
			status, err := q.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			left, err := leave(cmd.Context(), q.client(), patience, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if !keep {
				log, _ := newLogger(cmd.ErrOrStderr(), c)
				if err := endAndClean(cmd.Context(), status.PID, agent.CleanupOptions{Config: c, Log: log}); err != nil {
					return err
				}
			}
			return q.output.print(cmd.OutOrStdout(), left, func(w io.Writer) { fmt.Fprintln(w, leftLine(status.Node, left)) })
		},
	}
	s.addFlags(cmd, cleanupKeys...)
	q.output.addFlag(cmd)
	cmd.Flags().DurationVar(&patience, "patience", patience, "how long each stage waits for peers that do not answer")
	cmd.Flags().BoolVar(&keep, "keep-agent", false, "leave the agent running when it is done, and clean nothing up")
	return cmd
}

// leave goes through the stages and reports each on w.
func leave(ctx context.Context, client *api.Client, patience time.Duration, w io.Writer) (api.Leave, error) {
	shown := ""
	for {
		now, err := client.Leave(ctx, patience)
		if ctx.Err() != nil {
			return now, errors.Join(ctx.Err(), stay(client, now))
		}
		if err != nil {
			return now, err
		}
		if line := leaveLine(now); line != shown {
			fmt.Fprintln(w, line)
			shown = line
		}
		if now.Stage == api.LeaveDone {
			return now, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// stay keeps the node in the cluster when leaving was interrupted.
func stay(client *api.Client, last api.Leave) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := client.Stay(ctx); err != nil {
		return fmt.Errorf("stay in the cluster after all (it was %s): %w", last.Stage, err)
	}
	return errors.New("interrupted; the node stays in the cluster")
}

func leaveLine(l api.Leave) string {
	if len(l.Waiting) == 0 {
		return l.Stage
	}
	return l.Stage + ": waiting for " + abbreviate(l.Waiting, 8)
}

func leftLine(node string, l api.Leave) string {
	if len(l.Late) == 0 {
		return node + " has left; every peer has let go of it"
	}
	return fmt.Sprintf("%s has left; not waited for any longer: %s", node, strings.Join(l.Late, " "))
}

// endAndClean ends the agent and removes what it leaves in place.
func endAndClean(ctx context.Context, pid int, o agent.CleanupOptions) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end the agent (process %d): %w", pid, err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := agent.Cleanup(ctx, o)
		if err == nil || !errors.Is(err, agent.ErrRunning) || time.Now().After(deadline) {
			return err
		}
	}
}
