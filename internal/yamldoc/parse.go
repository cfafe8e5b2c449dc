package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxSize is the size in bytes beyond which a document is refused unread.
const MaxSize = 1 << 20

// The parser takes time and memory that grow with the square of nesting and of keys, and recurses:
// one MiB of "[" takes gigabytes. Records come from other machines, so all is bounded before it runs.
const (
	maxWords   = 1 << 17 // what is between spaces, commas and brackets
	maxKeys    = 1024
	maxNesting = 16
)

// Document is a parsed document: one mapping, and where everything in it stands.
type Document struct {
	name string
	root ast.Node
	// at holds the position of every value that Decode met, by key path.
	at map[string]*token.Position
}

// Parse reads the syntax of a document; name is what problems call it, usually the path of the file.
// Windows line ends and a leading byte order mark are fine. An empty document has no keys. The error is
// Problems.
func Parse(name string, data []byte) (*Document, error) {
	d := &Document{name: name, at: map[string]*token.Position{}}
	text, err := d.text(data)
	if err != nil {
		return nil, err
	}
	if err := guard(func() error { return d.parse(text) }); err != nil {
		return nil, d.syntaxError(err)
	}
	return d, nil
}

func (d *Document) parse(text string) error {
	tokens := lexer.Tokenize(text)
	if err := d.screen(tokens); err != nil {
		return err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // Decode reports duplicates, with both lines
	if err != nil {
		return err
	}
	if len(file.Docs) > 1 {
		return d.fault(file.Docs[1].Start, "a second document starts here", "keep one document in a file")
	}
	if len(file.Docs) == 1 {
		d.root = file.Docs[0].Body
	}
	return nil
}

// guard makes a panic of the parser an error: a record of another machine may cost itself, never the agent.
func guard(parse func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("the parser gave up (%v)", reason)
		}
	}()
	return parse()
}

// text is data as the parser wants it.
func (d *Document) text(data []byte) (string, error) {
	if len(data) > MaxSize {
		return "", d.fault(nil, fmt.Sprintf("more than %d bytes", MaxSize), "a document of Warren is far smaller")
	}
	if words(data) > maxWords {
		return "", d.fault(nil, fmt.Sprintf("more than %d words", maxWords), "a document of Warren has far fewer")
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if bad := firstBadByte(data); bad >= 0 {
		line := 1 + bytes.Count(data[:bad], []byte("\n"))
		at := &token.Token{Position: &token.Position{Line: line, Column: bad - bytes.LastIndexByte(data[:bad], '\n')}}
		return "", d.fault(at, "not plain text in UTF-8", "write the file again; it may be damaged")
	}
	return strings.ReplaceAll(string(data), "\r\n", "\n"), nil
}

// words bounds the number of tokens from above, nearly: no token is shorter than what ends it.
func words(data []byte) int {
	count := 0
	for _, b := range data {
		if strings.IndexByte(" \n,[]{}", b) >= 0 {
			count++
		}
	}
	return count
}

// firstBadByte returns the index of the first byte that no text file has (not UTF-8, or a control
// character besides tab and line ends), -1 when there is none.
func firstBadByte(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		control := r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f
		if r == utf8.RuneError && size == 1 || control {
			return i
		}
		i += size
	}
	return -1
}

// refused are the tokens of YAML that Warren's documents do without, by the name people know.
var refused = map[token.Type]string{
	token.AnchorType:     "an anchor (&)",
	token.AliasType:      "an alias (*)",
	token.TagType:        "a tag (!)",
	token.MergeKeyType:   "a merge key (<<)",
	token.DirectiveType:  "a directive (%)",
	token.MappingKeyType: "a complex key (?)",
}

// screen refuses, before the parser sees them, documents that could hurt it and what Warren does without.
func (d *Document) screen(tokens token.Tokens) error {
	var depth nesting
	keys := 0
	for _, tk := range tokens {
		if what, no := refused[tk.Type]; no {
			return d.fault(tk, what+" is not understood here", "write the value out; quote it if it is meant as text")
		}
		if tk.Type == token.MappingValueType {
			keys++
		}
		if depth.after(tk) > maxNesting {
			return d.fault(tk, fmt.Sprintf("nested deeper than %d levels", maxNesting), "")
		}
		if keys > maxKeys {
			return d.fault(tk, fmt.Sprintf("more than %d keys", maxKeys), "")
		}
	}
	return nil
}

// nesting follows how deep the tokens of a document are nested: in brackets, and by indentation.
type nesting struct {
	brackets int
	columns  []int // of the block collections that are open
}

// after returns the depth once tk is read.
func (n *nesting) after(tk *token.Token) int {
	switch tk.Type {
	case token.SequenceStartType, token.MappingStartType:
		n.brackets++
	case token.SequenceEndType, token.MappingEndType:
		n.brackets--
	case token.SequenceEntryType:
		n.open(tk.Position.Column)
	case token.MappingValueType:
		if tk.Prev != nil && n.brackets == 0 {
			n.open(tk.Prev.Position.Column)
		}
	}
	return n.brackets + len(n.columns)
}

func (n *nesting) open(column int) {
	for len(n.columns) > 0 && n.columns[len(n.columns)-1] >= column {
		n.columns = n.columns[:len(n.columns)-1]
	}
	n.columns = append(n.columns, column)
}

// syntaxError places an error of the parser; one of ours has its place already.
func (d *Document) syntaxError(err error) error {
	var syntax yaml.Error
	switch {
	case errors.As(err, new(Problems)):
		return err
	case errors.As(err, &syntax):
		return d.fault(syntax.GetToken(), "not YAML: "+syntax.GetMessage(), "correct the syntax; the file may be half-written")
	}
	return d.fault(nil, "not YAML: "+err.Error(), "correct the syntax; the file may be half-written")
}

// fault is the problem for which the document is not read any further.
func (d *Document) fault(tk *token.Token, message, remedy string) Problems {
	where := d.name
	if tk != nil {
		where = d.place(tk.Position)
	}
	return Problems{{Where: where, Message: message, Remedy: remedy}}
}

func (d *Document) place(at *token.Position) string {
	if at == nil {
		return d.name + ":1:1"
	}
	return fmt.Sprintf("%s:%d:%d", d.name, at.Line, at.Column)
}

// Scalar returns the text of a value on the first level without judging anything else, so that a
// document can be asked for its version before it is decoded. ok is false when there is no such value.
func (d *Document) Scalar(key string) (text string, ok bool) {
	entries, _ := entriesOf(d.root)
	for _, entry := range entries {
		if entry.Key.GetToken().Value == key {
			d.at[key] = position(entry.Value)
			text, _, ok = scalarOf(entry.Value)
			return text, ok
		}
	}
	return "", false
}

// Has reports whether the document that was decoded has something at key.
func (d *Document) Has(key string) bool {
	_, ok := d.at[key]
	return ok
}

// Where returns "file:line:column" of the value at key ("keys[0].port"). A value that is not in the
// document stands where what should hold it stands: at worst, on the first line.
func (d *Document) Where(key string) string {
	for key != "" {
		if at, ok := d.at[key]; ok {
			return d.place(at)
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return d.place(nil)
}
