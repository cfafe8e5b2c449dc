package control

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The administrator of a plane; the group's members may do everything (bootstrap RBAC of Kubernetes).
const (
	adminName  = "admin"
	adminGroup = "system:masters"
)

// Certificates are good from a day before they are made, so that clocks may be set back, for ten years.
const (
	validBefore = 24 * time.Hour
	validAfter  = 10 * 365 * 24 * time.Hour
)

// keyring is a folder of keys and certificates in PEM: NAME.key and NAME.crt.
type keyring struct{ dir string }

func (k keyring) path(name string) string { return filepath.Join(k.dir, name) }

// certificate is what one is made for.
type certificate struct {
	name   string // of its files
	signer string // name of the authority; "" signs itself and is one
	user   string
	groups []string
	hosts  []string // names and addresses of a server
}

// makeKeys makes what a plane needs and does not have yet.
func (p *Plane) makeKeys() error {
	if err := os.MkdirAll(p.keys.dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of keys: %w", err)
	}
	for _, c := range []certificate{
		{name: "ca", user: "warren-lab"},
		{name: "front-proxy-ca", user: "warren-lab-front-proxy"},
		{name: "apiserver", signer: "ca", user: "kube-apiserver", hosts: p.serverNames()},
		{name: "managers", signer: "ca", user: "managers", hosts: []string{"127.0.0.1"}},
		{name: "kubelet-client", signer: "ca", user: "kube-apiserver-kubelet-client", groups: []string{adminGroup}},
		{name: "front-proxy-client", signer: "front-proxy-ca", user: "front-proxy-client"},
		{name: adminName, signer: "ca", user: adminName, groups: []string{adminGroup}},
	} {
		if err := p.keys.make(c); err != nil {
			return fmt.Errorf("make the certificate %s: %w", c.name, err)
		}
	}
	if err := p.keys.makePair("service-accounts"); err != nil {
		return fmt.Errorf("make the key of ServiceAccounts: %w", err)
	}
	for _, client := range []Client{
		{User: adminName, Groups: []string{adminGroup}}, {User: "system:" + string(ControllerManager)}, {User: "system:" + string(Scheduler)},
	} {
		if _, err := p.Kubeconfig(client); err != nil {
			return err
		}
	}
	return nil
}

// serverNames are what clients may call the API server. A Service's first address is the API server's
// (Kubernetes, "Service IP address reservation").
func (p *Plane) serverNames() []string {
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
		"127.0.0.1", "::1", p.Options.Address.String()}
	for _, services := range p.Options.services() {
		names = append(names, services.Masked().Addr().Next().String())
	}
	return append(names, p.Options.Names...)
}

// NodeCertificate makes a certificate that a kubelet may both serve and identify itself with, and returns
// its files. It is made once for a name.
func (p *Plane) NodeCertificate(node string, addresses ...netip.Addr) (certificatePath, keyPath string, err error) {
	hosts := []string{node, "127.0.0.1"}
	for _, address := range addresses {
		hosts = append(hosts, address.String())
	}
	p.making.Lock()
	defer p.making.Unlock()
	name := "node-" + node
	err = p.keys.make(certificate{name: name, signer: "ca", user: "system:node:" + node, groups: []string{"system:nodes"}, hosts: hosts})
	if err != nil {
		return "", "", fmt.Errorf("make the certificate of node %s: %w", node, err)
	}
	return p.keys.path(name + ".crt"), p.keys.path(name + ".key"), nil
}

// Authority is the file with the certificate of the authority that signs servers' and clients'.
func (p *Plane) Authority() string { return p.keys.path("ca.crt") }

// make makes a key and its certificate, unless they are there.
func (k keyring) make(c certificate) error {
	if _, err := os.Stat(k.path(c.name + ".crt")); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	wanted, err := c.template()
	if err != nil {
		return err
	}
	parent, signer := wanted, crypto.Signer(key)
	if c.signer != "" {
		if parent, signer, err = k.load(c.signer); err != nil {
			return fmt.Errorf("read its authority: %w", err)
		}
	}
	signed, err := x509.CreateCertificate(rand.Reader, wanted, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	if err := k.writeKey(c.name, key); err != nil {
		return err
	}
	return k.write(c.name+".crt", "CERTIFICATE", signed)
}

func (c certificate) template() (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: c.user, Organization: c.groups},
		NotBefore: now.Add(-validBefore), NotAfter: now.Add(validAfter), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if c.signer == "" {
		t.IsCA, t.KeyUsage, t.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
	}
	for _, host := range c.hosts {
		if address := net.ParseIP(host); address != nil {
			t.IPAddresses = append(t.IPAddresses, address)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	if len(c.hosts) > 0 {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	return t, nil
}

// makePair makes a key without a certificate, with its public half in NAME.pub, unless it is there.
func (k keyring) makePair(name string) error {
	if _, err := os.Stat(k.path(name + ".pub")); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return errors.Join(k.writeKey(name, key), k.write(name+".pub", "PUBLIC KEY", public))
}

func (k keyring) writeKey(name string, key *ecdsa.PrivateKey) error {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return k.write(name+".key", "PRIVATE KEY", private)
}

func (k keyring) write(name, kind string, bytes []byte) error {
	return os.WriteFile(k.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600)
}

// load reads an authority.
func (k keyring) load(name string) (*x509.Certificate, crypto.Signer, error) {
	certificate, err := k.read(name + ".crt")
	if err != nil {
		return nil, nil, err
	}
	private, err := k.read(name + ".key")
	if err != nil {
		return nil, nil, err
	}
	parsed, err := x509.ParseCertificate(certificate)
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return parsed, key.(crypto.Signer), nil // written by writeKey
}

// read returns what is in the PEM block of a file.
func (k keyring) read(name string) ([]byte, error) {
	text, err := os.ReadFile(k.path(name))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: %w", k.path(name), fs.ErrInvalid)
	}
	return block.Bytes, nil
}

// fileName makes a file's name of a user's.
func fileName(user string) string { return strings.NewReplacer(":", "-", "/", "-").Replace(user) }
