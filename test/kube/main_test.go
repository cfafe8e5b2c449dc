package kube

import (
	"os"
	"testing"

	"warren/internal/lab/control/controltest"
)

func TestMain(m *testing.M) { os.Exit(controltest.Main(m)) }
