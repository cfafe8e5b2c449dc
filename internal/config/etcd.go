package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// What two keys say together is judged at the later one: they are set one by one.

func checkEtcdEndpoints(c Config, say report) {
	if c.Discovery == DiscoveryEtcd && len(c.Etcd.Endpoints) == 0 {
		say("", errors.New("discovery by etcd needs to know where it is; name its members"))
	}
	for i, endpoint := range c.Etcd.Endpoints {
		if !isEndpoint(endpoint) {
			say(fmt.Sprintf("[%d]", i), fmt.Errorf("%q is not the URL of a member; write one such as https://192.0.2.1:2379", endpoint))
		}
	}
}

func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Port() != "" && u.Hostname() != "" && (u.Path == "" || u.Path == "/")
}

func checkEtcdPrefix(c Config, say report) {
	if p := c.Etcd.Prefix; !strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/") {
		say("", fmt.Errorf("%q does not begin, or ends, with a slash; write one such as /warren/v1", p))
	}
}

func checkEtcdKey(c Config, say report) {
	optionalFile(func(c Config) string { return c.Etcd.KeyFile })(c, say)
	if (c.Etcd.CertFile == "") != (c.Etcd.KeyFile == "") {
		say("", errors.New("a certificate and its key go together; set etcd.cert-file and etcd.key-file, or neither"))
	}
}

func checkEtcdPassword(c Config, say report) {
	optionalFile(func(c Config) string { return c.Etcd.PasswordFile })(c, say)
	if (c.Etcd.User == "") != (c.Etcd.PasswordFile == "") {
		say("", errors.New("a user and the password go together; set etcd.user and etcd.password-file, or neither and let the certificate name the user"))
	}
}
