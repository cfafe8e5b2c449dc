package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"warren/internal/lab"
)

// pathFlags put a router between one node of a lab and the others.
type pathFlags struct {
	mtu, icmp string
}

func (f *pathFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.mtu, "path-mtu", "", "put a router between a node and the others, which forwards so many bytes: n3=1400")
	cmd.Flags().StringVar(&f.icmp, "path-icmp", "pass", "whether that router tells senders of packets that it cannot forward: pass or block")
	_ = cmd.RegisterFlagCompletionFunc("path-icmp", cobra.FixedCompletions([]string{"pass", "block"}, cobra.ShellCompDirectiveNoFileComp))
}

// path returns the path of a lab with nodes of these numbers; nil when there is none.
func (f *pathFlags) path(nodes []int) (*lab.Path, error) {
	if !slices.Contains([]string{"pass", "block"}, f.icmp) {
		return nil, fmt.Errorf("--path-icmp %s: pass or block", f.icmp)
	}
	if f.mtu == "" {
		if f.icmp == "block" {
			return nil, errors.New("--path-icmp block: there is no router without --path-mtu")
		}
		return nil, nil
	}
	node, size, _ := strings.Cut(f.mtu, "=")
	mtu, err := strconv.Atoi(size)
	if err != nil {
		return nil, fmt.Errorf("--path-mtu %s: a node and a number of bytes, such as n3=1400", f.mtu)
	}
	for _, number := range nodes {
		if node == fmt.Sprintf("n%d", number) {
			return &lab.Path{Node: number, MTU: mtu, Silent: f.icmp == "block"}, nil
		}
	}
	return nil, fmt.Errorf("--path-mtu %s: the lab has %d nodes, from n1 on", f.mtu, len(nodes))
}
