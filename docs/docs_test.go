// Package docs_test holds the documentation against the code: what is said twice is rendered from
// the code, and what is only named (make targets, commands, files) must exist.
//
//	go test ./docs -update # writes the rendered parts
package docs_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the rendered parts into the pages")

// pages returns every page that a user reads, relative to this folder.
func pages(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, pattern := range []string{"*.md", "../*.md", "../LICENSES/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	return paths
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRendered compares the parts between "<!-- rendered: NAME -->" and "<!-- end -->" with what
// the code renders.
func TestRendered(t *testing.T) {
	used := map[string]bool{}
	for _, page := range pages(t) {
		text := read(t, page)
		want, names, err := render(text, renderers)
		if err != nil {
			t.Errorf("%s: %v", page, err)
			continue
		}
		for _, name := range names {
			used[name] = true
		}
		if *update && want != text {
			if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(want, text); diff != "" {
			t.Errorf("%s is not what the code says; run make generate (-want +got):\n%s", page, diff)
		}
	}
	for name := range renderers {
		if !used[name] {
			t.Errorf("no page shows %q", name)
		}
	}
}

var renderedPart = regexp.MustCompile(`(?s)(<!-- rendered: ([a-z-]+) -->\n)(.*?)(<!-- end -->)`)

// render replaces the rendered parts of a page and returns their names.
func render(text string, renderers map[string]func() string) (page string, names []string, err error) {
	page = renderedPart.ReplaceAllStringFunc(text, func(part string) string {
		groups := renderedPart.FindStringSubmatch(part)
		names = append(names, groups[2])
		renderer, ok := renderers[groups[2]]
		if !ok {
			err = fmt.Errorf("nothing renders %q", groups[2])
			return part
		}
		return groups[1] + renderer() + groups[4]
	})
	return page, names, err
}

// TestRenderCanFail shows that a stale part is seen.
func TestRenderCanFail(t *testing.T) {
	renderers := map[string]func() string{"one": func() string { return "new\n" }}
	const stale = "a\n<!-- rendered: one -->\nold\n<!-- end -->\nb\n"
	got, names, err := render(stale, renderers)
	if err != nil {
		t.Fatal(err)
	}
	if want := "a\n<!-- rendered: one -->\nnew\n<!-- end -->\nb\n"; got != want {
		t.Errorf("rendered %q, want %q", got, want)
	}
	if diff := cmp.Diff([]string{"one"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if _, _, err := render("<!-- rendered: two -->\n<!-- end -->", renderers); err == nil {
		t.Error("a part that nothing renders was accepted")
	}
}

var makeTarget = regexp.MustCompile("(?:^|[`\\s])make ([a-z][a-z-]*)")

// TestTargets: whoever types what a page says about make gets what it says.
func TestTargets(t *testing.T) {
	makefile := read(t, "../Makefile")
	for _, page := range pages(t) {
		for _, line := range codeOf(read(t, page)) {
			for _, target := range makeTarget.FindAllStringSubmatch(line, -1) {
				if !strings.Contains(makefile, "\n"+target[1]+": ") {
					t.Errorf("%s: the Makefile has no target %q: %s", page, target[1], line)
				}
			}
		}
	}
}

var relativeLink = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// TestLinks: every link into the repository leads to a file.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, link := range relativeLink.FindAllStringSubmatch(read(t, page), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), link[1])); err != nil {
				t.Errorf("%s: link to %s leads nowhere", page, link[1])
			}
		}
	}
}

var mention = regexp.MustCompile(`\bdocs/[a-z-]+\.md\b`)

// TestMentions: every page that the code points to is there.
func TestMentions(t *testing.T) {
	for path, text := range codeFiles(t) {
		for _, page := range mention.FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join("..", page)); err != nil {
				t.Errorf("%s points to %s, which does not exist", path, page)
			}
		}
	}
}

// codeFiles returns the text of every file that points people to the documentation, by path.
func codeFiles(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, root := range []string{"../cmd", "../internal", "../scripts", "../test", "../deploy"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.Contains(" .go .h .c .sh .service ", " "+filepath.Ext(path)+" ") {
				return err
			}
			texts[path] = read(t, path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

var inlineCode = regexp.MustCompile("`([^`\n]+)`")

// codeOf returns the lines of a page's code: indented or fenced blocks, and what is between backticks.
func codeOf(page string) []string {
	var code []string
	fenced := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced, strings.HasPrefix(line, "    "):
			code = append(code, line)
		default:
			for _, found := range inlineCode.FindAllStringSubmatch(line, -1) {
				code = append(code, found[1])
			}
		}
	}
	return code
}

// table renders rows as a Markdown table.
func table(head []string, rows [][]string) string {
	var out strings.Builder
	line := func(cells []string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, row := range rows {
		line(row)
	}
	return out.String()
}
