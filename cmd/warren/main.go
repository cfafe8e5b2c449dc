// Command warren encrypts every packet between the machines of a cluster. See README.md.
package main

import (
	"os"

	"warren/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], cli.System())) }
