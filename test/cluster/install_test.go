package cluster

import (
	"testing"
)

func TestUp(t *testing.T) {
	c := up(t)
	t.Log(c.kubectl(t, "get", "node", "-o", "wide"))
	c.populate(t)
	t.Log(c.kubectl(t, "get", "pod", "-A", "-o", "wide"))
	c.seeClear(t)
}

const (
	warrenNamespace = "warren-system"
	agentLabel      = "app.kubernetes.io/name=warren"
)
