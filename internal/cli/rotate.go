package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"warren/internal/api"
)

func newKeysRotate() *cobra.Command {
	var q query
	wait := false
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace this node's key without losing a packet",
		Long: `Make a new key for this node and publish it beside the present one. Each peer begins to use the
new key when that has answered through the tunnel; when nobody uses the old one any more, it is
withdrawn and deleted. All this goes on without this command, also after a restart of the agent;
'warren status' shows how far it is, and names peers that do not come along.

A node whose key is being replaced already goes on with that.`,
		Example: `  warren keys rotate
  warren keys rotate --wait`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			now, err := q.client().Rotate(cmd.Context())
			if err == nil && wait {
				now, err = awaitRotation(cmd.Context(), q.client(), now, cmd.ErrOrStderr())
			}
			if err != nil {
				return err
			}
			return q.output.print(cmd.OutOrStdout(), now, func(w io.Writer) { fmt.Fprintln(w, rotationLine(now)) })
		},
	}
	q.addFlags(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the old key is deleted")
	return cmd
}

// awaitRotation reports on w how far the rotation is, until it is over.
func awaitRotation(ctx context.Context, client *api.Client, now api.Rotation, w io.Writer) (api.Rotation, error) {
	shown := ""
	for now.Stage != "" {
		if line := rotationLine(now); line != shown {
			fmt.Fprintln(w, line)
			shown = line
		}
		select {
		case <-ctx.Done():
			return now, fmt.Errorf("wait for the rotation, which goes on: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
		next, err := client.Rotation(ctx)
		if err != nil {
			return now, err
		}
		now = next
	}
	return now, nil
}

// rotationLine says in one line which key counts, or is going to.
func rotationLine(r api.Rotation) string {
	switch r.Stage {
	case "":
		return fmt.Sprintf("epoch %d", r.Epoch)
	case api.RotationMoving:
		line := fmt.Sprintf("to epoch %d: %d of %d peers have moved", r.Epoch, len(r.Moved), len(r.Moved)+len(r.Waiting))
		if len(r.Waiting) > 0 {
			line += ", waiting for " + abbreviate(r.Waiting, 8)
		}
		return line
	}
	return fmt.Sprintf("to epoch %d: the old key is %s", r.Epoch, r.Stage)
}
