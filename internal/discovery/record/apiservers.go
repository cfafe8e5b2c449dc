package record

import (
	"fmt"
	"net/netip"
	"slices"

	"warren/internal/cluster"
	"warren/internal/yamldoc"
)

// apiServerList is the format of the list that says where the API server is reached.
type apiServerList struct {
	Version   uint32           `yaml:"version"`
	Endpoints []netip.AddrPort `yaml:"endpoints"`
}

// MarshalAPIServers writes the list that UnmarshalAPIServers reads.
func MarshalAPIServers(servers []netip.AddrPort) []byte {
	return fmt.Appendf(nil, "version: %d\nendpoints: %s\n", Version, yamldoc.Format(servers))
}

// UnmarshalAPIServers reads a list of API servers: address and port of each, in the order of the
// addresses. The error is yamldoc.Problems: every problem at once, with place, line, key and remedy.
func UnmarshalAPIServers(where string, data []byte) ([]netip.AddrPort, error) {
	doc, err := yamldoc.Parse(where, data)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(doc).Err(); err != nil {
		return nil, err
	}
	if err := checkEnd(where, data).Err(); err != nil {
		return nil, err
	}
	var list apiServerList
	if err := doc.DecodeAll(&list).Err(); err != nil {
		return nil, err
	}
	problems := checkServers(list.Endpoints)
	for i, p := range problems {
		problems[i].Where = doc.Where(p.Key)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Endpoints, netip.AddrPort.Compare)
	return list.Endpoints, nil
}

func checkServers(servers []netip.AddrPort) yamldoc.Problems {
	var problems yamldoc.Problems
	seen := map[netip.AddrPort]bool{}
	for i, server := range servers {
		p := yamldoc.Problem{Key: fmt.Sprintf("endpoints[%d]", i), Remedy: "write an address and a port, such as 192.0.2.1:6443"}
		switch err := cluster.ValidUnicast(server.Addr()); {
		case err != nil:
			p.Message = err.Error()
		case server.Port() == 0:
			p.Message = "port 0"
		case seen[server]:
			p.Message, p.Remedy = fmt.Sprintf("%s is there twice", server), "remove one of the two"
		default:
			seen[server] = true
			continue
		}
		problems = append(problems, p)
	}
	return problems
}
