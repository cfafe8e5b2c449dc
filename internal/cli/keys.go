package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"warren/internal/cluster"
)

func newKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Replace this node's key, generate keys, derive public ones",
	}
	cmd.AddCommand(newKeysRotate(), newKeysGenerate(), newKeysPublic())
	return cmd
}

func newKeysGenerate() *cobra.Command {
	return &cobra.Command{
		Use:   "generate",
		Short: "Print a new private key",
		Long: `Print a new private key in base64, as 'wg genkey' does. The agent makes its own key at its first
start; this is for those who make keys elsewhere.`,
		Example: "  umask 077; warren keys generate > /var/lib/warren/private.key",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := cluster.NewPrivateKey()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key.Reveal())
			return err
		},
	}
}

func newKeysPublic() *cobra.Command {
	return &cobra.Command{
		Use:   "public [FILE]",
		Short: "Print the public key of a private key",
		Long:  "Print the public key that belongs to the private key in FILE, or on standard input without one.",
		Example: `  warren keys public /var/lib/warren/private.key
  warren keys generate | tee private.key | warren keys public`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, in := "standard input", cmd.InOrStdin()
			if len(args) == 1 && args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				name, in = args[0], file
			}
			key, err := readPrivateKey(in)
			if err != nil {
				return fmt.Errorf("read a private key from %s: %w", name, err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key.Public())
			return err
		},
	}
}

func readPrivateKey(in io.Reader) (cluster.PrivateKey, error) {
	line, err := bufio.NewReader(io.LimitReader(in, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return cluster.PrivateKey{}, err
	}
	return cluster.ParsePrivateKey(strings.TrimSpace(line))
}

func parseAddr(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return addr, exitError{exitUsage, fmt.Errorf("%q is not an IP address, such as 10.42.1.7 or fd00::7", text)}
	}
	return addr.Unmap().WithZone(""), nil
}
