// Package config is the configuration of a Warren agent: one Config, its defaults, the YAML file that
// changes them, the flags that change them again, and the check of the result, all problems at once.
//
//	c, err := config.Load("/etc/warren/warren.yaml") // or config.Default()
//	err = c.Set("mode", "strict")                    // what a flag says
//	err = c.Validate()
//
// The keys, their help, their checks and the documented example (Example) come from one table, keys.go.
// The package decides nothing that depends on the machine except the node's default name.
package config
