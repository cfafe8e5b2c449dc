package docs_test

import (
	"strings"

	"warren/internal/config"
	"warren/internal/datapath/model"
)

// renderers make the parts of the pages that the code says first, by the name in the page.
var renderers = map[string]func() string{
	"apiserver": apiServers,
	"config":    configuration,
	"metrics":   metricsTable,
	"reasons":   reasons,
	"record":    wholeRecord,
}

func configuration() string { return yaml([]byte(config.Example())) }

func reasons() string {
	var rows [][]string
	for _, reason := range model.Reasons() {
		var programs []string
		for _, program := range reason.Programs() {
			programs = append(programs, program.String())
		}
		rows = append(rows, []string{"`" + reason.String() + "`", code(programs), reason.Description()})
	}
	return table([]string{"reason", "given by", "the packet was, and what becomes of it"}, rows)
}

func code(words []string) string { return "`" + strings.Join(words, "`, `") + "`" }
