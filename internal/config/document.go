package config

import (
	"fmt"
	"strings"

	"warren/internal/yamldoc"
)

// Example returns the defaults as a documented configuration file.
func Example() string { return Default().Document() }

// Document returns c as a configuration file in which every key is explained. Parse gives c back.
func (c Config) Document() string {
	var text strings.Builder
	text.WriteString("# Configuration of Warren. Every key may be left out. The flag of a key wins over this file:\n")
	text.WriteString("# --mode for mode, --dir-path for path below dir.\n")
	section := ""
	for i, leaf := range yamldoc.Leaves(&c) {
		parent, name, nested := strings.Cut(leaf.Key, ".")
		indent := ""
		if !nested {
			parent, name = "", leaf.Key
		} else {
			indent = "  "
		}
		if parent != section && nested {
			fmt.Fprintf(&text, "\n%s:\n", parent)
		} else {
			text.WriteString("\n")
		}
		section = parent
		comment(&text, indent, rules[i])
		fmt.Fprintf(&text, "%s%s: %s\n", indent, name, yamldoc.Format(leaf.Value))
	}
	return text.String()
}

// comment writes the help of a key, and its choices, in lines of at most 98 characters.
func comment(text *strings.Builder, indent string, r rule) {
	help := r.help
	if r.words != nil {
		help += " One of: " + strings.Join(r.words, ", ") + "."
	}
	line := indent + "#"
	for _, word := range strings.Fields(help) {
		if len(line)+1+len(word) > 98 {
			text.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	text.WriteString(line + "\n")
}
