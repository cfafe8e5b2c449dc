package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates, for servers on loopback and for clients.
type authority struct {
	t           *testing.T
	folder      string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, folder: t.TempDir()}
	a.key = a.newKey()
	a.certificate = a.sign(template("authority"), nil, &a.key.PublicKey)
	a.writePEM("ca.pem", "CERTIFICATE", a.certificate.Raw)
	return a
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: name == "authority", BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// issue writes NAME.pem and NAME.key, with the name as the common name.
func (a *authority) issue(name string) (certFile, keyFile string) {
	a.t.Helper()
	key := a.newKey()
	certificate := a.sign(template(name), a.certificate, &key.PublicKey)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.writePEM(name+".pem", "CERTIFICATE", certificate.Raw), a.writePEM(name+".key", "PRIVATE KEY", raw)
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) sign(wanted, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	a.t.Helper()
	if parent == nil {
		parent = wanted
	}
	raw, err := x509.CreateCertificate(rand.Reader, wanted, parent, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		a.t.Fatal(err)
	}
	return certificate
}

func (a *authority) file(name string) string { return filepath.Join(a.folder, name) }

func (a *authority) writePEM(name, kind string, raw []byte) string {
	a.t.Helper()
	write(a.t, a.file(name), string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})))
	return a.file(name)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
