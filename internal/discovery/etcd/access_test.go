package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"warren/internal/cluster"
	"warren/internal/discovery/record/recordtest"
)

// tlsServer is an etcd that wants a certificate of its authority from clients.
func tlsServer(t *testing.T) (*server, *authority) {
	t.Helper()
	a := newAuthority(t)
	certFile, keyFile := a.issue("etcd")
	return newServer(t, "--client-cert-auth", "--cert-file", certFile, "--key-file", keyFile, "--trusted-ca-file", a.file("ca.pem")), a
}

// saysOne waits until a listener has one problem, with that in it.
func (l *listener) saysOne(part string) {
	l.t.Helper()
	eventually(l.t, l.etcd.Self.Name+" says "+part, func() bool {
		said := l.said()
		return len(said) == 1 && strings.Contains(said[0], part)
	})
}

func (l *listener) saysNothing() {
	l.t.Helper()
	eventually(l.t, l.etcd.Self.Name+" has no problem", func() bool { return len(l.said()) == 0 })
}

// TestEtcdCertificates: every file is read again until it is right, and for each session.
func TestEtcdCertificates(t *testing.T) {
	t.Parallel()
	s, a := tlsServer(t)
	certFile, keyFile := a.issue("n1")
	o := Options{Endpoints: []string{s.url()}, CAFile: a.file("ca.pem"), CertFile: certFile, KeyFile: keyFile}
	one := listen(t, "n1", o)
	one.publish(1)

	foreign := newAuthority(t)
	foreignCert, foreignKey := foreign.issue("n1")
	late := filepath.Join(t.TempDir(), "late.pem")
	for name, test := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"no file":                             {func(o *Options) { o.CAFile = late }, late + ": no session with etcd since "},
		"a file that is no certificate":       {func(o *Options) { o.CAFile = a.file("n1.key") }, "there is no certificate in it"},
		"an authority that did not sign it":   {func(o *Options) { o.CAFile = foreign.file("ca.pem") }, "certificate signed by unknown authority"},
		"a certificate of another authority":  {func(o *Options) { o.CertFile, o.KeyFile = foreignCert, foreignKey }, "no session with etcd since "},
		"no certificate":                      {func(o *Options) { o.CertFile, o.KeyFile = "", "" }, "no session with etcd since "},
		"a certificate and the key of others": {func(o *Options) { o.KeyFile = foreignKey }, "private key does not match public key"},
	} {
		t.Run(name, func(t *testing.T) {
			o := o
			test.change(&o)
			listen(t, "n2", o).saysOne(test.says)
		})
	}

	t.Run("the file comes later", func(t *testing.T) {
		o := o
		o.CAFile = late
		two := listen(t, "n2", o)
		two.saysOne(late)
		text, err := os.ReadFile(a.file("ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, late, string(text))
		two.publish(2)
		two.saysNothing()
	})
	t.Run("a new certificate counts for the next session", func(t *testing.T) {
		before, err := one.etcd.certificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		a.issue("n1")
		after, err := one.etcd.certificate(nil)
		if err != nil || string(before.Certificate[0]) == string(after.Certificate[0]) {
			t.Errorf("the old certificate is shown, %v", err)
		}
		s.kill()
		s.start()
		one.publish(3)
	})
}

// must is for what an operator does by etcdctl: the tests are the commands of docs/etcd.md in the words of the client.
func (a admin) must(_ any, err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// node makes the user and the role of a node.
func (a admin) node(name, password string) {
	a.t.Helper()
	role, key := "warren-"+name, testLayout.nodes()+name
	a.must(a.RoleAdd(a.ctx(), role))
	a.must(a.RoleGrantPermission(a.ctx(), role, testLayout.all(), clientv3.GetPrefixRangeEnd(testLayout.all()), clientv3.PermissionType(clientv3.PermRead)))
	a.must(a.RoleGrantPermission(a.ctx(), role, key, "", clientv3.PermissionType(clientv3.PermReadWrite)))
	if password == "" {
		a.must(a.UserAddWithOptions(a.ctx(), name, "", &clientv3.UserAddOptions{NoPassword: true}))
	} else {
		a.must(a.UserAdd(a.ctx(), name, password))
	}
	a.must(a.UserGrantRole(a.ctx(), name, role))
}

// enableAuth makes etcd ask who one is, and returns a client of the operator.
func (a admin) enableAuth(s *server, change ...func(*clientv3.Config)) admin {
	a.t.Helper()
	a.must(a.UserAdd(a.ctx(), "root", "secret"))
	a.must(a.UserGrantRole(a.ctx(), "root", "root"))
	a.must(a.AuthEnable(a.ctx()))
	return s.admin(append(change, func(c *clientv3.Config) { c.Username, c.Password = "root", "secret" })...)
}

// TestEtcdRoles: a node's user reads all and writes its own key; another node's key is refused, and so is what a role does
// not say. What is put right counts without a restart.
func TestEtcdRoles(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	operator := s.admin()
	operator.node("n1", "one")
	operator.node("n2", "two")
	operator = operator.enableAuth(s)
	file := func(password string) string {
		path := filepath.Join(t.TempDir(), "password")
		write(t, path, password+"\n")
		return path
	}
	as := func(user, password string) Options {
		return Options{Endpoints: []string{s.url()}, User: user, PasswordFile: file(password)}
	}
	one, two := listen(t, "n1", as("n1", "one")), listen(t, "n2", as("n2", "two"))
	one.publish(1)
	two.publish(2)
	one.knows("n2", 2)

	t.Run("another node's key", func(t *testing.T) {
		thief := listen(t, "n2", as("n1", "one"))
		thief.knows("n2", 2)
		stolen := recordtest.Sample("n2", 9)
		_ = thief.etcd.Publish(context.Background(), stolen)
		thief.saysOne("/warren/v1/nodes/n2: this machine's record cannot be written: permission denied; let a role of this node's user do it: " +
			"etcdctl role grant-permission ROLE readwrite /warren/v1/nodes/n2")
		if err := thief.etcd.Publish(context.Background(), stolen); err == nil || !strings.Contains(err.Error(), rpctypes.ErrPermissionDenied.Error()) {
			t.Errorf("publish: %v", err)
		}
		client, key := s.admin(func(c *clientv3.Config) { c.Username, c.Password = "n1", "one" }), testLayout.nodes()+"n2"
		now, _ := client.get("n2")
		_, deleted := client.Delete(client.ctx(), key)
		_, revoked := client.Revoke(client.ctx(), clientv3.LeaseID(now.lease))
		_, left := client.Put(client.ctx(), key, withdrawn)
		for what, err := range map[string]error{"delete the key": deleted, "revoke its lease": revoked, "declare it gone": left} {
			if !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := one.number("n2"); n != 2 {
			t.Errorf("n2 has record %d", n)
		}
	})
	t.Run("a node that may not read", func(t *testing.T) {
		operator.must(operator.UserAdd(operator.ctx(), "n3", "three"))
		three := listen(t, "n3", as("n3", "three"))
		three.saysOne("etcd does not let this node read, since ")
		operator.must(operator.UserGrantRole(operator.ctx(), "n3", "warren-n1"))
		three.knows("n1", 1)
	})
	t.Run("a password that is wrong, and then right", func(t *testing.T) {
		o := as("n2", "wrong")
		late := listen(t, "n2", o)
		late.saysOne("etcd does not know this node, since ")
		write(t, o.PasswordFile, "two\n")
		late.knows("n1", 1)
		late.saysNothing()
	})
	t.Run("a password that changes", func(t *testing.T) {
		operator.must(operator.UserChangePassword(operator.ctx(), "n1", "another"))
		write(t, one.etcd.PasswordFile, "another\n")
		one.publish(5)
		two.knows("n1", 5)
	})
}

// TestEtcdCertificateNamesTheUser: the common name of a certificate is the user.
func TestEtcdCertificateNamesTheUser(t *testing.T) {
	t.Parallel()
	s, a := tlsServer(t)
	withTLS := func(c *clientv3.Config) {
		certFile, keyFile := a.issue("operator")
		e, err := New(Options{Endpoints: []string{s.url()}, CAFile: a.file("ca.pem"), CertFile: certFile, KeyFile: keyFile})
		if err != nil {
			t.Fatal(err)
		}
		if c.TLS, err = e.tls(); err != nil {
			t.Fatal(err)
		}
	}
	operator := s.admin(withTLS)
	operator.node("n1", "")
	operator.enableAuth(s, withTLS)
	certFile, keyFile := a.issue("n1")
	o := Options{Endpoints: []string{s.url()}, CAFile: a.file("ca.pem"), CertFile: certFile, KeyFile: keyFile}
	listen(t, "n1", o).publish(1)
	thief := listen(t, "n2", o)
	thief.knows("n1", 1)
	_ = thief.etcd.Publish(context.Background(), recordtest.Sample("n2", 9))
	thief.saysOne("/warren/v1/nodes/n2: this machine's record cannot be written: permission denied")
}

// TestTLSIsAsked: without https there is no encryption, and at least TLS 1.2 with it.
func TestTLSIsAsked(t *testing.T) {
	for url, want := range map[string]uint16{"http://10.0.0.1:2379": 0, "https://10.0.0.1:2379": tls.VersionTLS12} {
		e, err := New(Options{Endpoints: []string{url}, Self: cluster.NodeID{Cluster: "default", Name: "n1"}})
		if err != nil {
			t.Fatal(err)
		}
		config, err := e.tls()
		if err != nil || (config != nil) != (want != 0) || config != nil && config.MinVersion != want {
			t.Errorf("%s: %+v, %v", url, config, err)
		}
	}
}
