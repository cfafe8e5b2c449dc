package control

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
)

// Client is who talks to the API server, and where it finds it.
type Client struct {
	// User is the name, "system:node:n1".
	User string
	// Groups it is in, "system:nodes".
	Groups []string
	// Token makes it identify itself by this bearer token instead of a certificate with User and Groups;
	// the user's name is then that of its file alone.
	Token string
	// Server is where the API server is reached; the zero value is the plane's address. Others need to be
	// loopback or among Options.Names.
	Server netip.AddrPort
	// Path of the kubeconfig; "" is a file in the plane's folder with the user's name.
	Path string
}

// Kubeconfig writes a kubeconfig that needs no other file, and returns its path.
func (p *Plane) Kubeconfig(client Client) (string, error) {
	p.making.Lock()
	defer p.making.Unlock()
	text, err := p.kubeconfig(client)
	if err != nil {
		return "", fmt.Errorf("make the kubeconfig of %s: %w", client.User, err)
	}
	path := client.Path
	if path == "" {
		path = p.kubeconfigPath(client.User)
	}
	if err := replaceFile(path, text); err != nil {
		return "", fmt.Errorf("write the kubeconfig of %s: %w", client.User, err)
	}
	return path, nil
}

// Admin is the kubeconfig of the plane's administrator, who may do everything.
func (p *Plane) Admin() string { return p.kubeconfigPath(adminName) }

func (p *Plane) kubeconfigPath(user string) string { return p.path(fileName(user) + ".kubeconfig") }

// kubeconfig is JSON, which is YAML as well.
func (p *Plane) kubeconfig(client Client) ([]byte, error) {
	authority, err := os.ReadFile(p.Authority())
	if err != nil {
		return nil, err
	}
	user, err := p.credentials(client)
	if err != nil {
		return nil, err
	}
	server := client.Server
	if !server.IsValid() {
		server = p.Server()
	}
	type object = map[string]any
	return json.MarshalIndent(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "warren-lab",
		"clusters": []object{{"name": "warren-lab", "cluster": object{"server": "https://" + server.String(), "certificate-authority-data": authority}}},
		"users":    []object{{"name": client.User, "user": user}},
		"contexts": []object{{"name": "warren-lab", "context": object{"cluster": "warren-lab", "user": client.User}}},
	}, "", "  ")
}

// credentials are the user's part of a kubeconfig.
func (p *Plane) credentials(client Client) (map[string]any, error) {
	if client.Token != "" {
		return map[string]any{"token": client.Token}, nil
	}
	c := certificate{name: "client-" + fileName(client.User), signer: "ca", user: client.User, groups: client.Groups}
	if err := p.keys.make(c); err != nil {
		return nil, err
	}
	certificate, err := os.ReadFile(p.keys.path(c.name + ".crt"))
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(p.keys.path(c.name + ".key"))
	if err != nil {
		return nil, err
	}
	return map[string]any{"client-certificate-data": certificate, "client-key-data": key}, nil
}

// replaceFile writes a file in one step, so that nobody reads half of one.
func replaceFile(path string, text []byte) error {
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
